"""The claims file: another form is refused in a line; all 37 claims are there and can be judged."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest
from msgspec.structs import replace

from costlab.judge.claims_file import Claim, ClaimsError, Comparison, load
from costlab.judge.judge import evidence_kinds, examine, judge
from costlab.record.names import FIELDS
from costlab.record.result import Metric
from costlab.record.result import load as load_result
from tests.costlab.tiny_run import DATASETS, LAB, ROOT, count_metrics

CONDITION = ("Holds only if", "Solo vale si")
ONE = """
[[claim]]
number = 1
id = "one"
words = { en = "It is so.", es = "Es así." }
where = { en = "a note", es = "una nota" }
[[claim.case]]
tests = [{ metric = "count.a", op = "==", value = 2 }]
"""
CITED = """
[[claim]]
number = 1
id = "one"
words = { en = "It is so.", es = "Es así." }
where = { en = "a note", es = "una nota" }
verdict = "stale"
because = { en = "a", es = "b" }
instead = { en = "c", es = "d" }
[[claim.cite]]
lines = "a/b.py:L1-L2"
names = ["x"]
"""


def load_text(folder: Path, text: str) -> None:
    path = folder / "claims.toml"
    path.write_text(text, "utf-8")
    load(path)


def test_every_claim_of_the_course_is_there_once_in_both_languages() -> None:
    claims = load(LAB / "claims.toml")
    numbers = [claim.number for claim in claims]
    assert numbers == list(range(1, len(claims) + 1)) and len(claims) >= 37
    for claim in claims:
        for words in (claim.words, claim.because, claim.instead):
            assert words is None or (words.en != words.es and words.en.endswith("."))


def conditions(claim: Claim) -> list[bool]:
    """Return whether what is true instead is a condition, in English and in Spanish."""
    texts = (claim.instead.en, claim.instead.es) if claim.instead else ("", "")
    return [text.startswith(words) for text, words in zip(texts, CONDITION, strict=True)]


def test_each_claim_can_be_judged() -> None:
    """By its cases or by its citation; it says what is true instead, in words of a condition."""
    claims = load(LAB / "claims.toml")
    assert len({claim.id for claim in claims}) == len(claims)
    for claim in claims:
        assert bool(claim.case) != bool(claim.verdict), claim.id
        assert not claim.verdict or (claim.cite and claim.because), claim.id
        verdict = "too strong" if claim.mixed == "too strong" else claim.verdict
        assert claim.case or claim.mixed != "too strong", claim.id
        assert verdict in (None, "holds", "not measurable here") or claim.instead, claim.id
        in_english, in_spanish = conditions(claim)
        assert in_english == in_spanish, claim.id
        assert not verdict or (verdict == "holds only if") == in_english, claim.id


def test_each_comparison_has_a_metric_and_no_bound_that_somebody_chose() -> None:
    for claim in load(LAB / "claims.toml"):
        for case in claim.case:
            assert case.each.keys() <= FIELDS.keys(), claim.id
            for test in case.tests:
                assert test.metric or case.each, claim.id
                assert (test.value is None) == bool(test.than), claim.id
                assert test.op in ("==", "!=") or not test.value or test.definition, claim.id


INSTEAD = 'instead = { en = "It is true of c.", es = "Es cierto en d." }\n'


@pytest.mark.parametrize("spelt", ["too-strong", "too strong"])
def test_a_claim_may_be_too_strong_by_its_cases_or_by_its_citation(
    tmp_path: Path, spelt: str
) -> None:
    path = tmp_path / "claims.toml"
    by_cases = ONE.replace("[[claim.case]]", f'mixed = "{spelt}"\n{INSTEAD}[[claim.case]]')
    second = '[[claim.case]]\ntests = [{ metric = "count.a", op = "==", value = 3 }]\n'
    path.write_text(by_cases + second, "utf-8")
    metrics = {"count.a": Metric(id="count.a", value=2, unit="count", how="counted")}
    (only,) = judge(load(path), metrics, {})
    assert only.verdict == "too strong"
    path.write_text(CITED.replace('"stale"', f'"{spelt}"'), "utf-8")
    (only,) = judge(load(path), {}, {})
    assert only.verdict == "too strong"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[[claim]", "is no TOML"),
        (ONE.replace("number = 1", 'number = "1"'), "claim 'one': Expected `int`, got `str`"),
        (ONE.replace('id = "one"\n', ""), "the 1th [[claim]]"),
        (ONE.replace('id = "one"', 'id = "One"'), "claim 'One'"),
        (ONE.replace("where", "wheer"), "wheer"),
        (ONE.replace('"=="', '"="'), "claim 'one': Invalid enum value '='"),
        (ONE.replace("[[claim.case]]\ntests", "nothing"), "nothing"),
        (CITED.replace('"stale"', '"false"'), "claim 'one': Invalid enum value 'false'"),
        (CITED.replace("b.py:L1-L2", "b.py:1-2"), "claim 'one'"),
        (ONE.replace("[[claim.case]]", 'mixed = "refuted"\n[[claim.case]]'), "Invalid enum value"),
        (CITED + 'mixed = "too-strong"', "unknown field `mixed`"),
    ],
)  # fmt: skip
def test_what_has_another_form_is_refused_in_one_line(
    tmp_path: Path, text: str, reason: str
) -> None:
    with pytest.raises(ClaimsError) as fault:
        load_text(tmp_path, text)
    assert reason in str(fault.value)
    assert "\n" not in str(fault.value) and "claims.toml" in str(fault.value)


def test_a_file_that_is_not_there_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(ClaimsError, match="No such file"):
        load(tmp_path / "claims.toml")


def test_the_names_of_citations_have_the_workbooks_form() -> None:
    for claim in load(LAB / "claims.toml"):
        for cite in claim.cite:
            assert all(re.fullmatch(r"[A-Za-z_]\w+", name) for name in cite.names)


@cache
def load_metrics() -> dict[str, Metric]:
    """Return the committed times, and the counts of this machine."""
    times = load_result(LAB / "results/reference.json").metrics()
    return {
        name: metric for name, metric in times.items() if not name.startswith("count.")
    } | count_metrics()


def test_no_verdict_hangs_on_a_constant_that_somebody_chose() -> None:
    """A fifth more or less of a tolerance, or of a bound that nothing defines, changes no case."""
    for claim in load(LAB / "claims.toml"):
        here = [case.passed for case in examine(claim, load_metrics())]
        for factor in (0.8, 1.2):
            moved = examine(_scale_thresholds(claim, factor), load_metrics())
            assert [case.passed for case in moved] == here, f"claim {claim.number}"


def _scale_thresholds(claim: Claim, factor: float) -> Claim:
    def moved(test: Comparison) -> Comparison:
        free = test.op not in ("==", "!=") and not test.definition
        value = test.value * factor if free and test.value else test.value
        return replace(test, value=value, tolerance=test.tolerance * factor)

    return replace(
        claim,
        case=tuple(replace(case, tests=tuple(map(moved, case.tests))) for case in claim.case),
    )


def test_a_claim_with_mixed_cases_names_its_condition_or_the_case_in_which_it_is_true() -> None:
    """The file's rule: if some cases pass and some don't, `instead` names a condition or a case.

    Where a machine's times may come to another verdict, `instead` serves both of the others.
    """
    claims = load(LAB / "claims.toml")
    for claim, verdict in zip(claims, judge(claims, load_metrics(), {}), strict=True):
        message = f"claim {claim.number} is {verdict.verdict!r}"
        if verdict.verdict == "holds":
            assert claim.because, message
        if verdict.verdict == "holds only if":
            assert all(conditions(claim)), message
        if verdict.verdict in ("too strong", "refuted", "stale"):
            assert claim.instead, message
            assert claim.machine_bound or not any(conditions(claim)), message
        if claim.case and verdict.verdict in ("holds only if", "too strong"):
            assert {each.passed for each in examine(claim, load_metrics())} >= {True, False}, (
                message
            )


# What a claim of Megatron or PyTorch is decided by: their own code, run or asked.
REAL = re.compile(r"megatron|torch|ddp|fsdp[12]\b|inference|-source\.|groups|batch-shares|refused")
# Of algorithms, models and machines, not of what those two do.
OF_NOBODYS_CODE = {4, 5, 6, 7, 8, 18, 40, 55, 56, 57, 58, 61}


def test_a_claim_on_megatron_or_pytorch_is_decided_by_the_real_thing() -> None:
    for claim in load(LAB / "claims.toml"):
        named = [test.metric for case in claim.case for test in case.tests]
        if named and claim.number not in OF_NOBODYS_CODE:
            assert any(REAL.search(name) for name in named), f"claim {claim.number}: {named}"


def test_what_has_no_case_is_read_and_the_rest_is_computed() -> None:
    claims = load(LAB / "claims.toml")
    how = {claim.number: evidence_kinds(claim, load_metrics()) for claim in claims}
    read = [number for number, kinds in how.items() if kinds == ["read"]]
    assert read == [11, 12, 15, 16, 24, 32, 34, 36, 37, *range(41, 50)]
    assert [number for number, kinds in how.items() if "source" in kinds] == [17, 25, 31, 33, 39]
    assert how[4] == how[5] == ["measured", "counted"] and how[40] == ["measured"]
    assert how[8] == []  # no NVLink where the reference was taken
    assert all(kinds and "read" not in kinds for number, kinds in how.items()
               if number not in (*read, 8, *([] if DATASETS else [35])))  # fmt: skip


def test_everything_worth_seeing_beside_a_claim_was_measured() -> None:
    for claim in load(LAB / "claims.toml"):
        for name in claim.see:
            assert name in load_metrics(), f"claim {claim.number}"


def test_the_theorys_tables_come_to_the_same_verdicts() -> None:
    words = {
        "refuted": "refut",
        "stale": "stale|caducad",
        "too strong": "too strong|demasiado fuerte",
    }
    verdicts = {
        verdict.number: verdict.verdict
        for verdict in judge(load(LAB / "claims.toml"), load_metrics(), {})
    }
    pages = sorted((ROOT / "docs" / "theory").glob("*.md"))
    rows = [row for page in pages for row in re.findall(r"^\| (\d+)\. .*?\| (.*)$", page.read_text(
        "utf-8"), re.MULTILINE)]  # fmt: skip
    assert len(rows) > 40
    for number, sentence in rows:
        for verdict, form in words.items():
            stands = re.search(form, sentence.split(";")[0], re.IGNORECASE) is not None
            assert stands == (verdicts[int(number)] == verdict), f"claim {number}: {sentence}"
