"""The claims file: what can be judged is read, the rest refused in a line; all 37 stand there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from costlab.claims import ClaimsError, load
from tests.costlab.tiny_run import LAB, counted

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


def read(folder: Path, text: str) -> None:
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


def test_both_forms_of_claim_are_read(tmp_path: Path) -> None:
    read(tmp_path, ONE)
    read(tmp_path, CITED)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[[claim]", "is no TOML"),
        (ONE.replace("number = 1", 'number = "1"'), "claim 'one': Expected `int`, got `str`"),
        (ONE.replace('id = "one"\n', ""), "the 1th [[claim]]"),
        (ONE.replace('id = "one"', 'id = "One"'), "claim 'One'"),
        (ONE.replace("where", "wheer"), "wheer"),
        (ONE.replace('"=="', '"="'), "claim 'one': Invalid enum value '='"),
        (ONE.replace(", value = 2", ""), "neither or both of `value` and `than`"),
        (ONE.replace("[[claim.case]]\ntests", "nothing"), "nothing"),
        (ONE.split("[[claim.case]]", maxsplit=1)[0], "either [[claim.case]] or a `verdict`"),
        (CITED + ONE.split("una nota\" }\n")[1], "either [[claim.case]] or a `verdict`"),
        (CITED.split("[[claim.cite]]", maxsplit=1)[0], "no [[claim.cite]]"),
        (CITED.replace('instead = { en = "c", es = "d" }', ""), "no `instead`"),
        (CITED.replace('because = { en = "a", es = "b" }', ""), "no `because`"),
        (CITED.replace('"stale"', '"false"'), "claim 'one': Invalid enum value 'false'"),
        (CITED.replace("b.py:L1-L2", "b.py:1-2"), "claim 'one'"),
        (ONE + ONE, "2 claims have the number 1"),
        (ONE + ONE.replace("number = 1", "number = 2"), "2 claims have the id 'one'"),
        (
            ONE.replace("value = 2 }", 'value = 2 }, { metric = "a.*", op = "<", value = 1 }'),
            "only the first test",
        ),
    ],
)  # fmt: skip
def test_what_can_not_be_judged_is_refused_in_one_line(
    tmp_path: Path, text: str, said: str
) -> None:
    with pytest.raises(ClaimsError) as fault:
        read(tmp_path, text)
    assert said in str(fault.value)
    assert "\n" not in str(fault.value) and "claims.toml" in str(fault.value)


def test_a_file_that_is_not_there_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(ClaimsError, match="No such file"):
        load(tmp_path / "claims.toml")


def test_every_count_that_a_claim_names_is_counted() -> None:
    found = counted()
    for claim in load(LAB / "claims.toml"):
        named = [test for case in claim.case if not case.optional for test in case.tests]
        names = [name for test in named for name in (test.metric, test.than)] + list(claim.see)
        for name in names:
            if name.startswith("count."):
                assert name in found, f"claim {claim.number}"


def test_citations_and_their_names_have_the_workbooks_form() -> None:
    for claim in load(LAB / "claims.toml"):
        for cite in claim.cite:
            assert re.fullmatch(r"[\w/.-]+\.py:L\d+(-L\d+)?", cite.lines)
            assert all(re.fullmatch(r"[A-Za-z_]\w+", name) for name in cite.names)
