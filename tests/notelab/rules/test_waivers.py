"""A finding may be waived: in a place with a reason, for a note, for a lab; and it is counted."""

import pytest

from tests.notelab.scratch import Scratch

ALLOW = "<!-- shardbook: allow N208 because the range was cut in class -->"


@pytest.fixture
def broken(scratch: Scratch) -> Scratch:
    """A lab whose two notes cite half a statement."""
    scratch.replace_both("L14-L15", "L15-L17")
    scratch.lock()
    assert scratch.codes() == ["N208", "N208"]
    return scratch


def put(scratch: Scratch, comment: str, *, after: str = "") -> None:
    """Put a comment into both notes, at the end of the choice of the broken citation."""
    for name, end in (("note.md", "says so."), ("note.es.md", "el comentario.")):
        scratch.replace(name, end, f"{end}{after or ' '}{comment}")


@pytest.mark.parametrize("where", [" ", "\n  ", "\n"])
def test_a_comment_with_a_reason_waives_and_is_counted(broken: Scratch, where: str) -> None:
    put(broken, ALLOW, after=where)
    report = broken.check()
    assert report.findings == []
    assert [note.waived for note in report.notes] == [1, 1]
    assert [note.proved for note in report.notes] == [1, 1]
    assert "0 findings, 2 waived" in broken.run("check").stdout


def test_a_comment_of_its_own_spares_the_next_block_alone(broken: Scratch) -> None:
    for name, head in (("note.md", "- **Counted"), ("note.es.md", "- **Se cuenta")):
        broken.replace(name, head, f"{ALLOW}\n\n{head}")
    assert broken.codes() == []
    for name, head in (("note.md", "- **Two"), ("note.es.md", "- **Dos")):
        broken.replace(name, f"{ALLOW}\n\n", "")
        broken.replace(name, head, f"\n{ALLOW}\n\n{head}")
    assert sorted(broken.codes()) == ["N208", "N208", "N702", "N702"]


def test_a_waiver_of_another_rule_or_another_choice_spares_nothing(broken: Scratch) -> None:
    put(broken, ALLOW.replace("N208", "N209"))
    assert sorted(broken.codes()) == ["N208", "N208", "N702", "N702"]


@pytest.mark.parametrize(
    ("comment", "problem"),
    [
        ("<!-- shardbook: allow N208 -->", "gives no reason"),
        ("<!-- shardbook: allow N208 because -->", "gives no reason"),
        ("<!-- shardbook: allow N208 because … -->", "gives no reason"),
        ("<!-- shardbook: allow N999 because so -->", "`N999`, which is no rule"),
        ("<!-- shardbook: allow all because so -->", "`ALL`, which is no rule"),
        ("<!-- shardbook: ignore N208 -->", "is not `allow CODE because REASON`"),
        ("<!-- shardbook allow -->", "is not `allow CODE because REASON`"),
    ],
)
def test_a_waiver_without_a_reason_or_a_rule_is_a_finding_and_spares_nothing(
    broken: Scratch, comment: str, problem: str
) -> None:
    put(broken, comment)
    findings = broken.check("note.md").findings
    assert {"N208", "N701"} == {finding.code for finding in findings}
    malformed = next(finding for finding in findings if finding.code == "N701")
    assert problem in malformed.message
    row = broken.read(malformed.filename.rpartition("/")[2]).split("\n")[malformed.span.row - 1]
    assert row[malformed.span.column - 1 :].startswith("<!-- shardbook")


def test_a_waiver_that_waives_nothing_is_a_finding(scratch: Scratch) -> None:
    put(scratch, ALLOW)
    assert scratch.codes() == ["N702", "N702"]


def test_a_comment_may_allow_several_rules_with_a_reason_in_spanish(broken: Scratch) -> None:
    broken.replace("note.md", "**Counted before.**", "Counted before.")
    put(broken, "<!-- shardbook: allow N208, N107 porque se\n  cortó en clase -->")
    assert [finding.code for finding in broken.check().findings] == ["N702"]  # the Spanish N107


def test_a_note_may_ignore_a_rule_and_a_lab_too(broken: Scratch) -> None:
    text = broken.read("lab.toml")
    broken.write("lab.toml", text.replace("max-words", 'ignore = ["N208"]\nmax-words'))
    assert broken.codes() == []
    broken.write("lab.toml", text.replace("languages", 'ignore = ["N208"]\nlanguages'))
    report = broken.check()
    assert (report.findings, report.labs[0].waived) == ([], 2)


def test_a_lab_that_ignores_an_unbroken_rule_is_a_finding_at_the_line(scratch: Scratch) -> None:
    text = scratch.read("lab.toml")
    scratch.write(
        "lab.toml",
        text.replace("languages", 'ignore = ["N208"]\nlanguages').replace(
            "max-words", 'ignore = ["N206"]\nmax-words'
        ),
    )
    report = scratch.check()
    assert [(finding.code, finding.span.row) for finding in report.findings] == [("N702", 12)]
    assert [(finding.code, finding.span.row) for finding in report.warnings] == [("N702", 3)]
    done = scratch.run("check")
    assert " N702 warning: `N208` is waived" in done.stdout and done.returncode == 1
    assert "::warning file=" in scratch.run("check", "--output-format", "github").stdout
    scratch.write("lab.toml", text.replace("languages", 'ignore = ["N208"]\nlanguages'))
    done = scratch.run("check")
    assert done.stdout.endswith("0 findings, 1 warning\n") and done.returncode == 0
    # A part of the lab can't tell what the rest of it breaks.
    assert scratch.check("note.md").warnings == []


def test_a_lab_that_ignores_what_is_no_rule_is_refused_with_the_nearest(scratch: Scratch) -> None:
    text = scratch.read("lab.toml")
    scratch.write("lab.toml", text.replace("languages", 'ignore = ["N601X"]\nlanguages'))
    done = scratch.run("check")
    assert done.returncode == 2
    assert "did you mean `N601`?" in done.stderr
