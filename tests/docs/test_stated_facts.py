"""Statements of pages and labs about themselves are true."""

import math
import re
import sys

import pytest

from tests.docs.page import EXERCISE, ROOT
from tests.running import run_program

NUMBER = re.compile(r"\d+")


def test_the_readme_shows_how_make_check_ends() -> None:
    shown = re.search(r"```text\n(\d+ pages, .*)\n```", (ROOT / "README.md").read_text("utf-8"))
    done = run_program([sys.executable, "-m", "notelab", "check", "--offline"], cwd=ROOT)
    assert shown and done.returncode == 0, done.stdout
    # How much is proved depends on which hosts answer; what there is to prove doesn't.
    fixed = re.compile(r"\d+ (?:pages|citations|diagrams|findings)")
    last = done.stdout.splitlines()[-1]
    assert fixed.findall(shown[1]) == fixed.findall(last), f"write into the README: {last}"
    if "lock only" in last:  # no git host has been reached, as on the README's machine
        assert NUMBER.sub("n", shown[1]) == NUMBER.sub("n", last)


COUNTED = re.compile(r"^    (\S+\.md) +(\d+) +(\d+) +(\d+)", re.M)  # words, choices, cited


@pytest.mark.parametrize("page", ["commands.md", "commands.es.md"])
def test_the_commands_page_shows_what_check_counts(page: str) -> None:
    lab = "experiments/35-ffn-by-hand"
    text = (ROOT / "docs/reference" / page).read_text("utf-8")
    shown = text.partition(f"shardbook check -v {lab}\n")[2].partition("\n```\n\n*")[0]
    done = run_program([sys.executable, "-m", "notelab", "check", "-v", "--offline", lab], cwd=ROOT)
    assert COUNTED.findall(shown) == COUNTED.findall(done.stdout) != [], done.stderr


# Of a page of theory: what a reader doesn't read, or reads later.
UNREAD = re.compile(
    r"\A---\n.*?\n---\n|^```.*?^```|<!--.*?-->|<details.*?</details>|\]\([^)]*\)|`[^`\n]*:L\d[^`\n]*`"
    r"|<[^>]+>|^\?\?\? [^\n]*\n(?:(?: {4}[^\n]*)?\n)*",
    re.S | re.M,
)


@pytest.mark.parametrize("page", ["index.md", "index.es.md"])
def test_the_minutes_of_the_theory_are_those_that_the_front_page_counts(page: str) -> None:
    text = (ROOT / "docs" / page).read_text("utf-8")
    rates = re.findall(r" (?:assumes|supone) (\d+) .*? (\d) .*? (\d) .*? (\d) ", text, re.S)
    words_a_minute, *costs = map(int, rates[0])
    steps = re.findall(r"\]\((theory/\d[\w-]+)[.\w]*\) · \*(\d+) min\.\*", text)
    assert len(steps) == 11
    for name, minutes in steps:
        theory = (ROOT / f"docs/{name}.md").read_text("utf-8")
        words = len(re.findall(r"\w[\w’'-]*", UNREAD.sub(" ", theory)))
        parts = (
            theory.count('class="figure"'),
            len(EXERCISE.findall(theory)),
            theory.count("??? question"),
        )
        needed = words / words_a_minute + sum(map(math.prod, zip(costs, parts, strict=True)))
        assert int(minutes) == 5 * math.ceil(needed / 5), name


@pytest.mark.parametrize("page", ["01-three-d.md", "01-three-d.es.md"])
def test_an_exercise_that_changes_a_file_names_functions_of_it(page: str) -> None:
    text = re.split(r"\n## (?:Exercises|Ejercicios)\n", (ROOT / "docs/labs" / page).read_text())[1]
    for item in re.split(r"\n(?=\d\. |## )", text):
        if file := re.search(r"^\d\. (?:In|En) .*?`((?:tools|experiments)/\S+\.py)`", item):
            names = re.findall(r"`(?:\w+\.)?([a-z_]+)`", item)
            source = (ROOT / file[1]).read_text("utf-8")
            assert names and all(f"def {name}(" in source for name in names), item


@pytest.mark.parametrize(
    ("script", "module"),
    [
        ("35-ffn-by-hand/ffn.py", "torch"),
        ("35-three-d/train.py", "torch"),
        ("35-three-d/train.py", "shardlab"),
        ("35-three-d/traced.py", "torch"),
        ("37-batches/check.py", "numpy"),
        ("35-write-it/grade.py", "torch"),
        ("38-long-sequences/attend.py", "torch"),
        ("38-long-sequences/grade_faulty.py", "torch"),
    ],
)
def test_a_lab_without_its_packages_says_in_one_line_how_to_get_them(
    script: str, module: str
) -> None:
    path = ROOT / "experiments" / script
    hidden = (
        f"import runpy, sys; sys.modules[{module!r}] = None; sys.path[0] = {str(path.parent)!r}"
    )
    done = run_program([sys.executable, "-c", f"{hidden}; runpy.run_path({str(path)!r})"])
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1, done.stderr
    assert done.stderr.startswith(f"{path.name}: error: this Python has no {module}")
    assert "`make bench-env`" in done.stderr and "activate" in done.stderr
