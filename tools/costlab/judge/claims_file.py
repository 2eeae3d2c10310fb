"""The claims file: what is said about sharded training, where, and what would settle it.

A claim is tested in one or more *cases*, each a conjunction of comparisons of named metrics. Or a
citation at the pin settles it, and then the file states the verdict that the cited lines give; that
they stand where it says is proved by notelab, on the page that `costlab.publish.claims_page` makes.
"""

import re
import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal

import click
import msgspec

from costlab.record.names import parse
from costlab.record.words import Words

VerdictWord = Literal[
    "holds", "holds only if", "too strong", "refuted", "stale", "not measurable here"
]
# What a claim comes to if some of its cases pass and some fail.
Mixed = Literal["holds only if", "too strong"]
Op = Literal["==", "!=", "<", "<=", ">", ">="]
Need = Literal["gpu", "gpus", "nvlink"]

_INDEX = re.compile(r"\$\.claim\[(\d+)\]\.?(.*)")


class ClaimsError(click.ClickException):
    """A claims file that can't be used, in one line: which claim, what was expected and found."""


class Comparison(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A comparison of a metric with a value, or with another metric.

    Args:
        metric: an id; left out, each of the metrics that its case is tried on.
        op: how it must compare.
        value: in the metric's unit; after "==" the number that the claim itself names.
        than: another metric's id, in place of `value`.
        definition: what makes a value after "<" or ">" no choice of ours. None but 0 goes without.
        tolerance: relative, for "==" and "!="; a fifth more or less must leave every verdict.
        field: what of the metric: its value, or a name in its detail.
    """

    op: Op
    metric: str = ""
    value: float | None = None
    than: str = ""
    definition: Words | None = None
    tolerance: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    field: str = "value"


class Case(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One thing that the claim says, or one situation that it is said of.

    Args:
        tests: all must pass.
        each: fields that a metric's name must have; the tests are tried on each such metric.
        words: which situation; left out where the claim has only one.
        optional: judged where it was measured, and passed over elsewhere.
    """

    tests: Annotated[tuple[Comparison, ...], msgspec.Meta(min_length=1)]
    each: dict[str, str | int | list[str | int]] = {}
    words: Words | None = None
    optional: bool = False


class Cite(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Lines at the pin, in the workbook's syntax, and names that stand in them."""

    lines: Annotated[str, msgspec.Meta(pattern=r"^\S+:L\d+(-L\d+)?$")]
    names: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]


class Claim(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A claim.

    If all its cases pass it holds, and if none passes it is refuted. If some pass, it *holds only
    if* an ordinary setting that the claim leaves out is so, and `instead` says which, in these
    words. Or it is *too strong*: true in a case that `instead` names, and false as it is worded.

    Args:
        number: in LABS.md's list; those above 37 are the workbook's own.
        id: kebab-case.
        lab: the number of the lab that asks it; its reader opens the verdict after that.
        words: the claim itself.
        where: who says it.
        needs: what a machine must have to judge it.
        case: how it is tested.
        cite: lines that bear on it.
        verdict: what the citations settle, where there are no cases: read, not computed.
        mixed: what the claim is if some of its cases pass and some fail.
        because: why, in a sentence or two.
        instead: what is true, where the claim is not.
        see: metrics worth reading beside it.
    """

    number: Annotated[int, msgspec.Meta(ge=1)]
    id: Annotated[str, msgspec.Meta(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$")]
    words: Words
    where: Words
    lab: Annotated[str, msgspec.Meta(pattern=r"^\d\d[a-z]?$")] | None = None
    needs: tuple[Need, ...] = ()
    case: tuple[Case, ...] = ()
    cite: tuple[Cite, ...] = ()
    verdict: VerdictWord | None = None
    mixed: Mixed = "holds only if"
    because: Words | None = None
    instead: Words | None = None
    see: tuple[str, ...] = ()

    @property
    def machine_bound(self) -> bool:
        """Whether another machine may come to another verdict: not where all is counted."""
        return any(
            (case.each.get("topic") or parse(test.metric).topic) != "count"
            for case in self.case for test in case.tests
        )  # fmt: skip


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    claim: tuple[Claim, ...]


def load(path: Path) -> tuple[Claim, ...]:
    """Read the claims, in the order of their numbers.

    Raises:
        ClaimsError: the file can't be read, or isn't of this form. What the form can't say, such as
            a case or a verdict for each claim, tests say of the one file that there is.
    """
    try:
        raw = _spell_verdicts(tomllib.loads(path.read_text("utf-8")))
        claims = msgspec.convert(raw, _File).claim
    except OSError as fault:
        raise ClaimsError(f"{path}: {fault.strerror or fault}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as fault:
        raise ClaimsError(f"{path} is no TOML: {fault}") from None
    except msgspec.ValidationError as fault:
        raise ClaimsError(f"{path}: {_named(str(fault), raw)}") from None
    return tuple(sorted(claims, key=lambda claim: claim.number))


def _spell_verdicts(raw: dict[str, Any]) -> dict[str, Any]:
    """Return the file's content with verdicts in words: "too-strong" is "too strong"."""
    claims = raw.get("claim")
    for claim in claims if isinstance(claims, list) else []:
        for key in ("verdict", "mixed"):
            if isinstance(claim, dict) and isinstance(claim.get(key), str):
                claim[key] = claim[key].replace("-", " ")
    return raw


def _named(fault: str, raw: dict[str, object]) -> str:
    """Say which claim msgspec speaks of, where it gives a place in the list."""
    what, _, place = fault.partition(" - at ")
    match = _INDEX.match(place.strip("`"))
    listed = raw.get("claim")
    if not match or not isinstance(listed, list):
        return fault
    claim = listed[int(match[1])]
    name = claim.get("id") if isinstance(claim, dict) else None
    where = f"claim {name!r}" if name else f"the {int(match[1]) + 1}th [[claim]]"
    return f"{where}: {what}" + (f" in `{match[2]}`" if match[2] else "")
