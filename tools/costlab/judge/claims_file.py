"""The claims file: what is said about sharded training, where, and what would settle it.

A claim is tested in one or more *cases*, each a conjunction of comparisons of named metrics. Or a
citation at the pin settles it, and then the file states the verdict that the cited lines give; that
they stand where it says is proved by notelab, on the page that `costlab.publish.claims_page` makes.
"""

import re
import tomllib
from collections import Counter
from pathlib import Path
from typing import Annotated, Any, Literal

import click
import msgspec

from costlab.record.names import FIELDS, parse
from costlab.record.words import Words

VerdictWord = Literal[
    "holds", "holds only if", "too strong", "refuted", "stale", "not measurable here"
]
# What a claim comes to if some of its cases pass and some fail.
Mixed = Literal["holds only if", "too strong"]
Op = Literal["==", "!=", "<", "<=", ">", ">="]
Need = Literal["gpu", "gpus", "nvlink"]
# Verdicts whose claim must say in `instead` what is true.
QUALIFIED = ("holds only if", "too strong", "refuted", "stale")
CONDITION = ("Holds only if", "Solo vale si")

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
    def conditional(self) -> bool:
        """Whether what is true instead is a condition."""
        return any(self.conditions)

    @property
    def conditions(self) -> tuple[bool, bool]:
        """Whether it is one in English, and in Spanish."""
        texts = (self.instead.en, self.instead.es) if self.instead else ("", "")
        english, spanish = map(str.startswith, texts, CONDITION)
        return english, spanish

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
        ClaimsError: the file can't be read, or a claim in it can't be judged.
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
    problem = next((message for claim in claims if (message := _problem(claim))), "") or _repeated(
        claims
    )
    if problem:
        raise ClaimsError(f"{path}: {problem}")
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


def _problem(claim: Claim) -> str:
    """Return what makes a claim impossible to judge, in one line, or nothing."""
    name = f"claim {claim.id!r}"
    if bool(claim.case) == bool(claim.verdict):
        present = "both" if claim.case else "neither"
        return f"{name} needs either [[claim.case]] or a `verdict` that it cites, found {present}"
    if claim.verdict and not claim.cite:
        return f"{name} states a verdict, {claim.verdict!r}, and no [[claim.cite]] that settles it"
    if claim.verdict and not claim.because:
        return f"{name} states a verdict and no `because`: say what the cited lines settle"
    if claim.verdict in QUALIFIED and not claim.instead:
        return f"{name} is {claim.verdict!r} and has no `instead`: say what is true"
    if claim.mixed == "too strong" and not (claim.case and claim.instead):
        return (
            f"{name} is too strong if only some cases pass, and lacks "
            f"{'`instead`: say what is true' if claim.case else '[[claim.case]]'}"
        )
    ill_conditioned = _condition(name, claim)
    return ill_conditioned or next(
        (message for case in claim.case if (message := _misfit(name, case))), ""
    )


def _condition(name: str, claim: Claim) -> str:
    """Hold a claim to the words of a condition: both languages or none, and only where one is."""
    words = " and ".join(map(repr, CONDITION))
    if len(set(claim.conditions)) > 1:
        return f"{name}: `instead` begins with {words} in both languages or in none"
    verdict = "too strong" if claim.mixed == "too strong" else claim.verdict
    if verdict and (verdict == "holds only if") != claim.conditional:
        return (
            f"{name} is {verdict!r}; `instead` begins with {words} where a claim holds only "
            f"if something is so, and nowhere else"
        )
    return ""


def _misfit(name: str, case: Case) -> str:
    if unknown := sorted(case.each.keys() - FIELDS.keys()):
        fields = ", ".join(FIELDS)
        return f"{name}: `each` has {unknown[0]!r}, a metric's name has the fields {fields}"
    for test in case.tests:
        if not test.metric and not case.each:
            return f"{name} has a test of no `metric`, and its case no `each` to try it on"
        what = test.metric or "a metric"
        if (test.value is None) == (not test.than):
            return f"{name} compares {what} with neither or both of `value` and `than`"
        if test.op not in ("==", "!=") and test.value and not test.definition:
            return (
                f"{name} compares {what} with {test.value:g}, which somebody chose: name a "
                f"metric in `than`, or say in `definition` what makes it no choice"
            )
    return ""


def _repeated(claims: tuple[Claim, ...]) -> str:
    for what in ("number", "id"):
        for value, times in Counter(getattr(claim, what) for claim in claims).items():
            if times > 1:
                return f"{times} claims have the {what} {value!r}; each needs its own"
    return ""
