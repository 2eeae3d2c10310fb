"""The sentences that were judged by reading, and how early the order of reading brings the false.

`judged.toml` beside this file says what was judged and how.
"""

from pathlib import Path
from typing import Literal

import msgspec

from notelab.repin.carried import Repin

PLACE = Path(__file__).with_name("judged.toml")


class Judged(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A citation, the pages whose sentences hang on it, and whether these still hold.

    `says` is what the sentence meant has in it, where a page has several that cite the lines.
    """

    source: str
    cited: str
    pages: list[str]
    verdict: Literal["true", "partly", "false"]
    why: dict[str, str]
    says: str = ""


class _File(msgspec.Struct, forbid_unknown_fields=True):
    judged: list[Judged]


def load() -> list[Judged]:
    """Return every judgement."""
    return msgspec.toml.decode(PLACE.read_bytes(), type=_File).judged


def early(repin: Repin, *, verdicts: tuple[str, ...] = ("false",)) -> tuple[int, int]:
    """Return how many of the source's false sentences stand in the first half, and of how many."""
    places = {str(one.old): one.alarm for one in repin.citations if one.alarm is not None}
    return in_first_half(repin.source, places, verdicts=verdicts)


def in_first_half(
    source: str, places: dict[str, int], *, verdicts: tuple[str, ...] = ("false",)
) -> tuple[int, int]:
    """Return the same where `places` are those of the citations in the list.

    A sentence is a page and what it cites; its place is that of the citation.
    """
    half = len(places) / 2
    false = [
        places.get(one.cited)
        for one in load()
        if one.source == source and one.verdict in verdicts
        for _ in one.pages
    ]
    return sum(place is not None and place <= half for place in false), len(false)
