"""What the pages are made from: the record of each source, and the judgements by reading.

docs/measured/since.json has no source text in it; `record` writes it again when a source has moved.
docs/measured/since-judged.toml says what was judged, and how.
"""

from typing import Literal

import msgspec

from notelab.repin.changes import Kind, Place
from notelab.repin.review_order import ReviewReason
from pages.blocks import MEASURED

DATA = MEASURED / "since.json"
JUDGED = MEASURED / "since-judged.toml"


class Quote(msgspec.Struct, frozen=True):
    """A sentence of a page, in each language."""

    page: str
    text: dict[str, str]
    anchor: str = ""


class ReviewedCitation(msgspec.Struct, frozen=True):
    """A citation to review, in the order of the list."""

    old: Place
    kind: Kind
    why: ReviewReason
    names: list[str]
    share: float
    quotes: list[Quote] = msgspec.field(name="said")  # the stored name
    new: Place | None = None


class Since(msgspec.Struct, frozen=True):
    """A source since its pin; `changed` holds the names that vanished or appeared."""

    source: str
    title: str
    url: str
    commits: tuple[str, str]
    releases: tuple[str, str]
    kinds: dict[Kind, int]
    changed: dict[str, Literal["vanished", "appeared"]]
    reread: list[ReviewedCitation]


def load_data() -> list[Since]:
    """Return the sources as they were last carried."""
    return msgspec.json.decode(DATA.read_bytes(), type=list[Since])


class Judged(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A citation, the pages whose sentences rest on it, and whether these still hold.

    `says` is a part of the sentence that is meant, where a page has several that cite the lines.
    """

    source: str
    cited: str
    pages: list[str]
    verdict: Literal["true", "partly", "false"]
    why: dict[str, str]
    says: str = ""


class _File(msgspec.Struct, forbid_unknown_fields=True):
    judged: list[Judged]


def load_judged() -> list[Judged]:
    """Return every judgement."""
    return msgspec.toml.decode(JUDGED.read_bytes(), type=_File).judged
