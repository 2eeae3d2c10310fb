"""The commands as a user runs them: what they print, and how they exit."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from notelab.cli import cli
from notelab.codes import RULES
from notelab.report.formats import write
from notelab.report.outcome import LabReport, NoteReport, Report
from pages.blocks import ROOT
from tests.limits import LIMIT
from tests.notelab.in_process import run_shardbook
from tests.notelab.scratch import Scratch, commit_all, git
from tests.running import run_program


def test_check_without_a_path_proves_every_lab_and_says_what_was_proved(scratch: Scratch) -> None:
    done = scratch.run("check")
    assert done.returncode == 0, done
    assert done.stdout == "2 pages, 4 citations: 4 proved, 0 diagrams, 0 findings\n"
    assert done.stderr == ""


def test_the_labs_have_a_line_or_a_table_where_they_are_asked_for(scratch: Scratch) -> None:
    last = "2 pages, 4 citations: 4 proved, 0 diagrams, 0 findings\n"
    counts = "2 pages, 4 citations: 4 proved, 0 diagrams"
    assert scratch.run("check", "--by-lab").stdout == f"experiments/01-scratch: {counts}\n{last}"
    tables = scratch.run("check", "-v").stdout
    assert "  experiments/01-scratch/\n    note.md " in tables and tables.endswith(f"\n{last}")


def test_rules_are_selected_and_ignored_by_code_or_its_beginning(scratch: Scratch) -> None:
    scratch.replace("note.md", "L14-L15", "L15-L17")

    def codes(*options: str) -> set[str]:
        report = json.loads(scratch.run("check", "--output-format", "json", *options).stdout)
        return {finding["code"] for finding in report["findings"]}

    assert codes() == {"N208", "N503"}
    assert codes("--select", "N5") == {"N503"}
    assert codes("--select", "N2,N5", "--ignore", "N208") == {"N503"}
    assert codes("--ignore", "n503", "--ignore", "N208") == set()
    assert scratch.run("check", "--ignore", "N2,N5").returncode == 0
    assert scratch.run("check", "--exit-zero").returncode == 0
    wrong = scratch.run("check", "--select", "N2O")
    assert wrong.returncode == 2 and "'N2O' is no rule's code" in wrong.stderr


def check_input(text: str, *options: str, folder: Path) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, "SHARDBOOK_CACHE": str(folder / "cache"), "NO_COLOR": "1"}
    return run_shardbook("check", "-", *options, folder=folder, environment=environment, typed=text)


def test_a_document_on_standard_input_needs_no_lab(scratch: Scratch, tmp_path: Path) -> None:
    own = scratch.upstream
    good = check_input("`uses` grows in `scaler.py:14-15`.\n", folder=own)
    assert (good.returncode, good.stdout.count("\n")) == (0, 1), good
    bad = check_input("`uses` grows in `pkg/scaler.py:L14-L99`.\n", folder=own)
    assert bad.returncode == 1 and bad.stdout.startswith("-:1:17 N205 ")
    name = "docs/a.md"
    beside = check_input("[it](../pkg/gone.py#L4)\n", "--stdin-filename", name, folder=own)
    assert beside.stdout.startswith(f"{name}:1:1 N203 ") and "`pkg/gone.py`" in beside.stdout
    nowhere = tmp_path / "empty"
    nowhere.mkdir()
    alone = check_input("`a.py:4`, `b.py:9-3`\n", folder=nowhere)
    assert [line.split()[1] for line in alone.stdout.split("\n") if line[:1] == "-"] == ["N202"]
    assert check_input("x\n", "note.md", folder=own).returncode == 2
    outside = check_input("[it](a.py#L4)\n", "--stdin-filename", "../../a.md", folder=own)
    assert outside.returncode == 2 and "must be in" in outside.stderr
    other = check_input("\udcff\udcfe", folder=own)  # the bytes ff and fe
    assert other.returncode == 1 and "is not UTF-8" in other.stdout


def test_the_schema_of_the_lab_file_has_its_keys(scratch: Scratch) -> None:
    schema = json.loads(scratch.run("schema").stdout)
    lab = schema["$defs"]["LabTable"]
    assert {"max-lines", "quotes", "style"} <= set(lab["properties"])
    assert lab["additionalProperties"] is False and lab["required"] == ["title"]


def test_a_finding_is_a_line_with_its_place_and_code_and_exit_1(scratch: Scratch) -> None:
    scratch.replace("note.md", "L14-L15", "L15-L17")
    done = scratch.run("check", "experiments/01-scratch/note.md")
    assert done.returncode == 1
    line = next(line for line in done.stdout.split("\n") if " N208 " in line)
    assert line.startswith("experiments/01-scratch/note.md:10:")
    assert "\x1b" not in done.stdout


def test_json_is_one_object_alone_on_standard_output(scratch: Scratch) -> None:
    scratch.replace("note.md", "L14-L15", "L15-L17")
    done = scratch.run("check", "--output-format", "json")
    report = json.loads(done.stdout)
    assert set(report) == {"findings", "warnings", "notes", "labs"}
    finding = next(each for each in report["findings"] if each["code"] == "N208")
    assert finding["name"] == RULES["N208"]
    assert finding["filename"] == "experiments/01-scratch/note.md"
    assert set(finding["location"]) == set(finding["end_location"]) == {"row", "column"}
    note = next(each for each in report["notes"] if each["filename"].endswith("note.es.md"))
    assert (note["language"], note["choices"], note["citations"]) == ("es", 2, 2)
    assert all(type(note[key]) is int for key in ("words", "proved", "locked", "diagrams"))


def test_the_other_formats_name_code_and_place(scratch: Scratch) -> None:
    scratch.replace("note.md", "L14-L15", "L15-L17")
    github = scratch.run("check", "--output-format", "github").stdout
    assert "::error file=experiments/01-scratch/note.md,line=10," in github
    assert "title=N208 off-statement::" in github
    assert "nearest that fits: `pkg/scaler.py:L15-L16`" in github
    sarif = json.loads(scratch.run("check", "--output-format", "sarif").stdout)
    results = sarif["runs"][0]["results"]
    assert sarif["version"] == "2.1.0"
    assert "N208" in {result["ruleId"] for result in results}
    rules = sarif["runs"][0]["tool"]["driver"]["rules"]
    assert all(rules[result["ruleIndex"]]["id"] == result["ruleId"] for result in results)


def test_a_control_character_in_a_note_never_reaches_the_terminal(scratch: Scratch) -> None:
    scratch.replace("note.md", "Two amounts.", "Two \x1b[31mamounts " + "word " * 40)
    done = scratch.run("check")
    assert "N106" in done.stdout
    assert "\x1b" not in done.stdout


def test_a_workflow_command_cannot_be_smuggled_in_by_a_note(scratch: Scratch) -> None:
    scratch.replace(
        "note.md", "**Two amounts.**", "**Two%0A::warning::x\u2028::error::y** " + "w " * 50
    )
    done = scratch.run("check", "--output-format", "github")
    lines = [line for line in done.stdout.split("\n") if line]
    assert all(line.startswith("::error file=experiments/") for line in lines)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["check", "nowhere.md"], "no such file"),
        (["check", "experiments/nowhere"], "no such file"),
        (["check", "--mirror", "up"], "expected NAME=DIR"),
        (["check", "--mirror", "up=/nowhere/at/all"], "is not a folder"),
        *(
            (
                [*command, "--mirror", "pu=."],
                "no lab has a source called 'pu'; the sources are: `up`",
            )
            for command in (
                ["check"],
                ["check", "experiments/01-scratch"],
                ["cite", "up", "combine"],
                ["compare"],
                ["fetch"],
                ["lock"],
                ["new", "mine", "--repo", "https://example.invalid/up.git", "--ref", "v1"],
                ["pin", "up", "v1"],
                ["repin", "up", "v1"],
                ["show", "pkg/scaler.py:L1"],
            )
        ),
        (["check", "--mirror", "up=~nobody-here/up"], "no user has this name"),
        (["compare", "experiments/01-scratch/note.md"], "note.md/lab.toml: no such lab file"),
        (["check", "--output-format", "xml"], "xml"),
        (["explain", "N999"], "no rule"),
        (["show", "nonsense"], "is no citation"),
        (["show", "pkg/scaler.py:L900"], "goes past its end"),
        (["show", "pkg/nothing.py:L1"], "not available"),
        (["pin", "pu", "v1"], "no lab has a source called 'pu'"),
        (["cite", "pu", "x"], "did you mean `up`?"),
        (["fetch", "--worktree", "x", "--source", "no"], "no lab has a source called 'no'"),
        (["nonsense"], "nonsense"),
    ],
)
def test_a_wrong_call_exits_2_with_a_line(
    scratch: Scratch, arguments: list[str], message: str
) -> None:
    done = scratch.run(*arguments)
    assert done.returncode == 2, done
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_a_file_that_is_no_page_is_passed_over_and_named(scratch: Scratch) -> None:
    scratch.book.joinpath("README.md").write_text("# Hello\n")
    done = scratch.run("check", "README.md", "experiments/01-scratch/note.md")
    assert done.returncode == 0
    assert "README.md belongs to no lab" in done.stderr


@pytest.mark.parametrize("command", ["check", "fetch", "lock", "recall"])
def test_where_nothing_named_is_a_labs_that_is_a_fault(scratch: Scratch, command: str) -> None:
    scratch.book.joinpath("README.md").write_text("# Hello\n")
    done = scratch.run(command, "README.md")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: README.md: neither a page of a lab")


def test_a_changed_pin_or_lock_puts_the_whole_lab_in_question(scratch: Scratch) -> None:
    scratch.write("up-sha.txt", "abc\n")
    done = scratch.run("check", "experiments/01-scratch/up-sha.txt")
    assert done.returncode == 1
    assert "N121" in done.stdout


def test_cite_prints_a_citation_that_check_accepts(scratch: Scratch) -> None:
    done = scratch.run("cite", "up", "Scaler.apply")
    assert (done.returncode, done.stdout) == (0, "`pkg/scaler.py:L13-L19`\n")
    scratch.replace_both("`pkg/scaler.py:L14-L15`", done.stdout.strip())
    assert scratch.run("lock").returncode == 0
    assert scratch.run("check").returncode == 0


def test_cite_finds_a_file_not_cited_yet_by_path_and_by_module(scratch: Scratch) -> None:
    source = "@wrap(\n    1,\n)\ndef other():\n    return 1\n"
    scratch.upstream.joinpath("pkg/other.py").write_text(source)
    commit_all(scratch.upstream, "two")
    assert scratch.run("pin", "up", "main").returncode == 0
    for symbol in ("pkg/other.py:other", "pkg.other.other"):
        assert scratch.run("cite", "up", symbol).stdout == "`pkg/other.py:L1-L5`\n"


def test_cite_finds_in_a_lab_without_citations_what_another_lab_cites(scratch: Scratch) -> None:
    """Without a clone: the other lab's lock names the file, and the store has it."""
    assert scratch.run("check").returncode == 0
    assert scratch.run("new", "mine", "--from", "01-scratch").returncode == 0
    mine = ("cite", "up", "Scaler.apply", "--lab", "experiments/mine")
    done = scratch.run(*mine, "--offline", mirror=False)
    assert (done.returncode, done.stdout) == (0, "`pkg/scaler.py:L13-L19`\n"), done


@pytest.mark.parametrize("symbol", ["Amount.half", "half", "Amount", "round_up"])
def test_cite_finds_in_the_tree_what_no_lab_cites(scratch: Scratch, symbol: str) -> None:
    files = {
        "pkg/amounts.py": "class Amount:\n    def half(self):\n        return 0.5\n",
        "src/rounding.cpp": "int round_up(int x) {\n  return x + 1;\n}\n",
        "pkg/users.py": "from pkg.amounts import Amount\n\nhalf = Amount().half()\n",
    }
    for path, text in files.items():
        scratch.upstream.joinpath(path).parent.mkdir(exist_ok=True)
        scratch.upstream.joinpath(path).write_text(text)
    commit_all(scratch.upstream, "two")
    assert scratch.run("pin", "up", "main").returncode == 0
    assert scratch.run("new", "mine", "--from", "01-scratch").returncode == 0
    done = scratch.run("cite", "up", symbol, "--lab", "experiments/mine")
    expected = {"Amount": "pkg/amounts.py:L1-L3", "round_up": "src/rounding.cpp:L1-L3"}
    assert done.stdout == f"`{expected.get(symbol, 'pkg/amounts.py:L2-L3')}`\n", done


@pytest.mark.parametrize("symbol", ["Nowhere", "-e", "a b", "x;y", "^.*", "é", "pkg.nowhere.Name"])
def test_cite_says_what_no_file_has(scratch: Scratch, symbol: str) -> None:
    assert scratch.run("new", "mine", "--from", "01-scratch").returncode == 0
    done = scratch.run("cite", "--lab", "experiments/mine", "--", "up", symbol)
    assert (done.returncode, done.stdout) == (1, ""), done
    assert f"no symbol `{symbol}` in the" in done.stderr


def test_cite_answers_a_slip_with_the_closest_names(scratch: Scratch) -> None:
    done = scratch.run("cite", "up", "Scaler.aply")
    assert (done.returncode, done.stdout) == (1, "")
    assert "`Scaler.apply`" in done.stderr


def test_show_prints_the_lines_with_their_numbers(scratch: Scratch) -> None:
    done = scratch.run("show", "pkg/scaler.py:L14-L15")
    assert done.returncode == 0
    assert "Scaler.apply" in done.stdout
    assert "    15          self.uses += 1" in done.stdout
    around = scratch.run("show", "-C", "1", "pkg/scaler.py:L15").stdout
    assert ">    15" in around
    assert "     16" in around


def test_explain_lists_the_rules_and_shows_a_page_by_code_or_name(scratch: Scratch) -> None:
    listed = scratch.run("explain").stdout
    assert all(code in listed for code in RULES)
    assert scratch.run("explain", "n208").stdout == scratch.run("explain", "off-statement").stdout
    assert "N208" in scratch.run("explain", "N208", "--language", "es").stdout


def test_pin_moves_the_pin_file_and_the_lock_together(scratch: Scratch) -> None:
    scratch.upstream.joinpath("pkg/new.py").write_text("x = 1\n")
    head = commit_all(scratch.upstream, "two")
    done = scratch.run("pin", "up", "main")
    assert done.returncode == 0, done
    assert scratch.read("up-sha.txt") == f"{head}\n"
    assert head in scratch.read("citations.lock")
    # The notes still say the old commit: that is for their author to read and mend.
    assert scratch.run("check").returncode == 1


@pytest.mark.parametrize("ref", ["no-such-tag", "0" * 40, "abc", "--help-me", "a..b", "", "x y"])
def test_pinning_a_ref_that_is_none_leaves_everything_as_it_was(scratch: Scratch, ref: str) -> None:
    before = {path.name: path.read_bytes() for path in scratch.lab.iterdir()}
    done = scratch.run("pin", "up", "--", ref)
    assert done.returncode == 2, done
    assert "Traceback" not in done.stderr
    assert {path.name: path.read_bytes() for path in scratch.lab.iterdir()} == before


def test_a_tag_a_branch_and_a_commit_can_be_pinned(scratch: Scratch) -> None:
    git(scratch.upstream, "tag", "-a", "annotated", "-m", "x")
    for ref in ("v1", "main", "annotated", scratch.commit, scratch.commit[:10]):
        done = scratch.run("pin", "up", ref)
        assert done.returncode == 0, done
        assert scratch.read("up-sha.txt") == f"{scratch.commit}\n"


@pytest.mark.parametrize("command", [["explain"], ["check"]])
def test_a_reader_that_goes_away_early_is_no_fault(scratch: Scratch, command: list[str]) -> None:
    environment = {**os.environ, "SHARDBOOK_CACHE": str(scratch.root / "cache")}
    with subprocess.Popen(
        [sys.executable, "-m", "notelab", *command],
        cwd=scratch.book,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.stderr is not None
        assert process.stderr.read() == b""
    assert process.returncode == 2


@pytest.mark.skipif(os.name == "nt", reason="POSIX signals")
def test_an_interrupt_is_one_line_and_exit_2(scratch: Scratch, tmp_path: Path) -> None:
    code = (
        "import os, signal, sys\n"
        "import notelab.check as check\n"
        "check.check_labs = lambda *a, **k: os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.argv = ['shardbook', 'check']\n"
        "from notelab.cli import main\n"
        "main()\n"
    )
    done = run_program(
        [sys.executable, "-c", code],
        cwd=scratch.book,
        env={**os.environ, "SHARDBOOK_CACHE": str(tmp_path / "c")},
    )
    assert (done.returncode, "error: interrupted" in done.stderr) == (2, True)
    assert "Traceback" not in done.stderr


@pytest.mark.skipif(os.name == "nt", reason="a folder that is stood in can't be removed")
def test_a_folder_that_is_gone_is_what_cannot_be_read(scratch: Scratch) -> None:
    gone = scratch.root / "gone"
    gone.mkdir()
    run = f"rmdir {gone} && {sys.executable} -m notelab check"
    done = run_program(["sh", "-c", run], cwd=gone)
    assert done.returncode == 2
    assert "error: the current folder cannot be read" in done.stderr


def test_two_checks_at_once_agree(scratch: Scratch) -> None:
    scratch.root.joinpath("cache").rename(scratch.root / "gone")
    environment = {
        **os.environ,
        "SHARDBOOK_CACHE": str(scratch.root / "cache"),
        "SHARDBOOK_MIRROR_UP": str(scratch.upstream),
    }
    running = [
        subprocess.Popen(
            [sys.executable, "-m", "notelab", "check"], cwd=scratch.book, env=environment,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for _ in range(2)
    ]  # fmt: skip
    outputs = [process.communicate(timeout=LIMIT) for process in running]
    assert [process.returncode for process in running] == [0] * 2, outputs
    # Whoever comes second may find the file in the store; what was proved is the same.
    assert {out.strip().rpartition("\n")[2] for out, _ in outputs} == {
        "2 pages, 4 citations: 4 proved, 0 diagrams, 0 findings"
    }


@pytest.mark.parametrize("language", ["", ".es"])
def test_the_reference_shows_the_help_that_is_printed(scratch: Scratch, language: str) -> None:
    page = ROOT / f"docs/reference/commands{language}.md"
    environment = {**os.environ, "COLUMNS": "100"}
    done = run_program(
        [sys.executable, "-c", "from notelab.cli import cli; cli(prog_name='shardbook')", "--help"],
        cwd=scratch.book,
        env=environment,
        check=True,
    )
    assert done.stdout.strip() in page.read_text("utf-8")


@pytest.mark.parametrize("command", ["show", "cite"])
def test_a_locked_file_is_had_where_the_store_is_still_empty(
    scratch: Scratch, command: str
) -> None:
    shutil.rmtree(scratch.root / "cache")
    arguments = ["pkg/scaler.py:L14-L15"] if command == "show" else ["up", "Scaler.apply"]
    done = scratch.run(command, *arguments)
    assert done.returncode == 0, done


@pytest.mark.parametrize("command", [[], *([name] for name in sorted(cli.commands))])
def test_no_help_is_cut_short_in_a_terminal_of_80_columns(command: list[str]) -> None:
    result = CliRunner().invoke(cli, [*command, "--help"], terminal_width=80)
    assert result.exit_code == 0
    lines = [line for line in result.output.splitlines() if not line.startswith("Usage: ")]
    assert lines
    assert not [line for line in lines if "..." in line or len(line) > 80]


def test_what_was_proved_of_the_workbooks_own_pages_fits_into_80_columns() -> None:
    pages = [*ROOT.glob("docs/**/*.md"), *ROOT.glob("experiments/*/*.md")]
    names = sorted(page.relative_to(ROOT).as_posix() for page in pages)
    for some in (names[first : first + 40] for first in range(0, len(names), 40)):
        notes = [NoteReport(name, "lab", "en", 12_000, 99, 999, 888, 111, 20) for name in some]
        lab = LabReport("A lab", "lab", [], len(some), 999, 888, 111, 20, {}, 0)
        text = write(Report([], notes, [lab]), colour=False, detail="tables")
        assert all(f" {name.rpartition('/')[2]} " in text for name in some)
        assert [line for line in text.splitlines()[:-1] if len(line) > 80] == []
