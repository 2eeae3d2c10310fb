"""A path that git has is cited as it is written, or refused for what is true of it."""

from pathlib import Path
from urllib.parse import quote

import pytest

from notelab.commands import showing
from notelab.errors import NotelabError
from tests.notelab.page.test_citation_forms import Lab, make_lab
from tests.notelab.scratch import make_repository

CODE = "def add_one(number):\n    total = number + 1\n    return total\n"
PLAIN = [
    "a b.py", "a  b.py", "(x).py", "x).py", "(x.py", "it's.py", "'q'.py", '"q".py', "'q.py",
    "d'/a.py", "a,b.py", "a;b.py", "a#b.py", "[x].py", "a&b.py", "ñ.py", "a%20b.py", "-x.py",
    "a=b.py", "a?b.py", "a*b.py", "<a>.py", "pkg/(g)/[id]/p.tsx", "a–b.py", "a L1.py", "a,L2.py",
    "pkg/a_(1).py", "~a.py", "~/b.py", "a..b.py", ".hidden", "é/“x”.md", "no ending", "a`b.py",
]  # fmt: skip
# Read as a source's name and a path, so that its source must be written before it.
WITH_COLON = ["a:b.py", "x:L1.py", "s:c.py", "C:/x.py"]
BLANK_ENDS = [" e.py", "f.py "]
BACKSLASH, TAB, LONG = "g\\h.py", "i\tj.py", f"{'k' * 200}/{'l' * 201}.py"
NAMES = [*PLAIN, *WITH_COLON, *BLANK_ENDS, BACKSLASH, TAB, LONG]


def _source(folder: Path) -> None:
    make_repository(folder, dict.fromkeys(NAMES, CODE))


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    """Return a lab that cites a repository with odd names; each test writes its note and lock."""
    return make_lab(tmp_path_factory.mktemp("odd"), _source, "HEAD")


def proved(lab: Lab, form: str) -> bool:
    """Tell whether a note with the form has one citation, which is proved, and no finding."""
    report = lab.judge(form, strict=True)
    counts = [(note.citations, note.proved) for note in report.notes]
    return (report.findings, counts) == ([], [(1, 1)])


def code(text: str) -> str:
    """Return a text as a code span, whatever backticks it has."""
    return f"`` {text} ``" if "`" in text else f"`{text}`"


def link(name: str) -> str:
    """Return a permalink to the first lines of a file."""
    return f"[here](<https://example.org/o/s/blob/@SHA@/{quote(name)}#L1-L3>)"


@pytest.mark.parametrize("name", [*PLAIN, *WITH_COLON, *BLANK_ENDS])
def test_an_odd_path_is_linked_to_and_cited_as_it_is(lab: Lab, name: str) -> None:
    assert proved(lab, link(name))
    if name not in BLANK_ENDS:
        assert proved(lab, code(f"s:{name}:L1-L3"))
    if name in PLAIN:
        assert proved(lab, code(f"{name}:L1-L3"))
        assert showing.find([lab.folder], f"{name}:L1-L3", lab.bench()).file.path == name


@pytest.mark.parametrize(
    ("name", "reason"),
    [(BACKSLASH, "backslash"), (TAB, "control character"), (LONG, "longer than 400 characters")],
)
def test_a_path_that_cannot_be_cited_is_refused_with_a_reason(
    lab: Lab, name: str, reason: str
) -> None:
    for form in (code(f"s:{name}:L1-L3"), link(name)):
        (finding,) = lab.judge(form).findings
        assert (finding.code, reason in finding.message) == ("N201", True)
    with pytest.raises(NotelabError, match=reason):
        showing.find([lab.folder], f"s:{name}:L1-L3", lab.bench())


@pytest.mark.parametrize(
    ("written", "closest"),
    [('"a b.py', "a b.py"), ("(a b.py", "a b.py"), ("s: a b.py", "a b.py"), ("hidden", ".hidden")],
)
def test_a_slip_in_a_path_is_answered_with_the_path(lab: Lab, written: str, closest: str) -> None:
    (finding,) = lab.judge(f"`{written}:L1-L3`").findings
    assert finding.code == "N203" and f"`{closest}`" in finding.help


@pytest.mark.parametrize("wrapped", ['"{}"', "'{}'", "“{}”", "({})", "[[{}]]", "{}.", "{},"])
def test_what_stands_around_a_whole_citation_is_no_part_of_it(lab: Lab, wrapped: str) -> None:
    assert proved(lab, f"`{wrapped.format('a b.py:L1-L3')}`")


@pytest.mark.parametrize("form", ["`no ending:1-3`", "`no ending:L1`", "`s:no ending#L1-L3`"])
def test_a_form_that_may_be_code_is_read_where_the_tree_has_the_path(lab: Lab, form: str) -> None:
    assert proved(lab, form)
    nothing = lab.judge(form.replace("no ending", "no path"), strict=True)
    assert nothing.findings == [] and nothing.notes[0].citations == 0
