"""A fence directly after a citation quotes the cited lines, or is a finding (N234)."""

import pytest

from notelab.check import check_labs
from tests.notelab.page.test_citation_forms import PERMALINK, Lab, lab

__all__ = ["lab"]
ADD_ONE = "def add_one(number):\n    total = number + 1\n    return total"
ADD_TWO = "def add_two(number):\n    twice = number + 2\n    return twice"


def find(lab: Lab, text: str, *, quotes: bool = True) -> list[tuple[str, str]]:
    """Return code and help of each finding of a note, apart from those of its lock."""
    lab_file = lab.folder / "lab.toml"
    plain = lab_file.read_text().replace("quotes = true\n", "")
    lab_file.write_text(plain.replace("[lab]\n", "[lab]\nquotes = true\n", 1) if quotes else plain)
    lab.write(text)
    lab.check()
    report = check_labs({lab.folder: None}, lab.bench())
    return [(finding.code, finding.help) for finding in report.findings]


def fence(text: str, language: str = "python") -> str:
    return f"```{language}\n{text}\n```"


HONEST = [
    ADD_ONE,
    "    def add_one(number):\n        total   =  number+1\n        return total\n",
    "def add_one(number):\n    …\n    return total",
    "def add_one(number):\n    # ...\n    return total",
    "def add_one(number):\n    # ... (中略。the sum) ...\n    return total",
    "def add_one(number):\n    // … as before\n    return total",
    "total = number + 1",
    "# pkg/work.py\ndef add_one(number):\n    total = number + 1",
    "def add_one(…):\n    total = number + 1",
]


@pytest.mark.parametrize("quoted", HONEST)
def test_a_quotation_of_the_cited_lines_is_no_finding(lab: Lab, quoted: str) -> None:
    text = f"`add_one` is this (`pkg/work.py:L4-L6`):\n\n{fence(quoted)}"
    assert find(lab, text) == []
    assert find(lab, text, quotes=False) == []  # it is shorter than a run of 25 tokens


def test_a_quotation_of_the_cited_lines_anchors_a_citation_that_names_nothing(lab: Lab) -> None:
    assert find(lab, f"`pkg/work.py:L4-L6`\n\n{fence(ADD_ONE)}") == []
    assert [code for code, _ in find(lab, "`pkg/work.py:L4-L6`")] == ["N209"]
    slipped = find(lab, f"`pkg/work.py:L9-L11`\n\n{fence(ADD_ONE)}")
    assert [code for code, _ in slipped] == ["N209", "N234"]
    weak = find(lab, f"`pkg/work.py:L4-L6`\n\n{fence('    …')}")
    assert [code for code, _ in weak] == ["N209"]


def test_a_comment_for_what_is_left_out_is_no_missing_line(lab: Lab) -> None:
    text = ADD_ONE.replace("+ 1", "+ 3").replace("\n    ret", "\n    # ... more\n    ret")
    found = find(lab, f"`add_one` (`pkg/work.py:L4-L6`)\n\n{fence(text)}")
    assert found == [("N234", "the file has no line “total = number + 3”")]


@pytest.mark.parametrize(
    "citation",
    [
        "`pkg/work.py:L4-L6`:", f"[`work.py:4-6`]({PERMALINK}/work.py#L4-L6).", "pkg/work.py:4-6",
        "`work.py`, lines 4-6:", "`pkg/work.py:L4-L6`, as follows:",
    ],
)  # fmt: skip
def test_a_quotation_of_other_lines_names_the_range_that_holds_it(lab: Lab, citation: str) -> None:
    text = f"`add_one` is in {citation}\n\n{fence(ADD_TWO)}"
    assert find(lab, text) == [("N234", "`pkg/work.py:L9-L11` holds all of it")]


def test_a_quotation_that_is_longer_than_the_range_names_all_of_it(lab: Lab) -> None:
    text = f"`add_one` (`pkg/work.py:L4-L6`)\n\n{fence(ADD_ONE + chr(10) * 3 + ADD_TWO)}"
    assert find(lab, text) == [("N234", "`pkg/work.py:L4-L11` holds all of it")]


def test_a_quotation_with_another_word_names_the_line(lab: Lab) -> None:
    text = f"`add_one` (`pkg/work.py:L4-L6`)\n\n{fence(ADD_ONE.replace('+ 1', '+ 3'))}"
    assert find(lab, text) == [("N234", "the file has no line “total = number + 3”")]
    other = f"`add_one` (`pkg/work.py:L4-L6`)\n\n{fence('def other(): pass')}"
    assert [code for code, _ in find(lab, other)] == ["N234"]


@pytest.mark.parametrize(
    "text",
    [
        f"`add_one` is `pkg/work.py:L4-L6`.\n\nBy hand:\n\n{fence(ADD_TWO)}",
        f"`add_one` (`pkg/work.py:L4-L6`) prints:\n\n{fence('3', 'text')}",
        f"`add_one` (`pkg/work.py:L4-L6`) is called so:\n\n{fence('print(add_one(2))')}",
        f"`add_one` (`pkg/work.py:L4-L6`).\n\n{fence('python -m pkg.work', 'bash')}",
        f"- `add_one` (`pkg/work.py:L4-L6`)\n\n{fence(ADD_TWO)}",
    ],
)
def test_a_fence_that_quotes_no_cited_file_is_not_judged(lab: Lab, text: str) -> None:
    assert find(lab, text) == []


def test_one_quotation_may_serve_citations_that_cover_it(lab: Lab) -> None:
    cited = "`add_one` and `add_two`: `pkg/work.py:L4-L6`, `pkg/work.py:L9-L11`"
    both = fence(f"{ADD_ONE}\n\n\n{ADD_TWO}")
    assert find(lab, f"{cited}\n\n{both}") == []
    assert "N234" in dict(find(lab, f"{cited.replace('L9-L11', 'L10-L11')}\n\n{both}"))


def test_one_of_several_citations_before_it_is_enough(lab: Lab) -> None:
    text = f"`add_two` and `add_one`: `pkg/work.py:L9-L11`, `pkg/work.py:L4-L6`\n\n{fence(ADD_TWO)}"
    assert find(lab, text) == []


def test_a_long_quotation_needs_the_labs_leave_and_its_own_citation(lab: Lab) -> None:
    both = "\n\n\n".join([ADD_ONE, ADD_TWO])
    quoted = f"`add_one` is in `pkg/work.py:L4-L11`:\n\n{fence(both)}"
    assert "N601" in {code for code, _ in find(lab, quoted, quotes=False)}
    assert "N601" not in {code for code, _ in find(lab, quoted)}
    loose = f"`add_one` is in `pkg/work.py:L4-L11`.\n\nPasted:\n\n{fence(both)}"
    assert "N601" in {code for code, _ in find(lab, loose)}
