"""The sentences that were judged by reading, and how early the review lists the false ones.

`judged.toml` beside this file says what was judged and how.
"""

from pathlib import Path
from typing import Literal

import msgspec

from notelab.repin.changes import RepinResult

PLACE = Path(__file__).with_name("judged.toml")


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


def load() -> list[Judged]:
    """Return every judgement."""
    return msgspec.toml.decode(PLACE.read_bytes(), type=_File).judged


def count_early(repin: RepinResult, *, verdicts: tuple[str, ...] = ("false",)) -> tuple[int, int]:
    """Return how many false sentences of the source are in the first half, and the total."""
    places = {
        str(change.old): change.alarm for change in repin.citations if change.alarm is not None
    }
    return in_first_half(repin.source, places, verdicts=verdicts)


def in_first_half(
    source: str, places: dict[str, int], *, verdicts: tuple[str, ...] = ("false",)
) -> tuple[int, int]:
    """Return the same counts, given the rank of each cited place in the list.

    A sentence is a page and what it cites; its rank is that of the citation.
    """
    half = len(places) / 2
    false = [
        places.get(judged.cited)
        for judged in load()
        if judged.source == source and judged.verdict in verdicts
        for _ in judged.pages
    ]
    return sum(place is not None and place <= half for place in false), len(false)
