"""Every command of the README, the front page and the labs runs in a fresh clone, as it stands.

The pages are the input: the commands of a page are typed in their order, in one shell, in a clone
of this working tree, with its own home and cache. The labs are typed one after another in one
clone: a learner's command finds there what the labs before have left. replacements.py names the
commands that are replaced, and why.
"""

import re
import subprocess
from pathlib import Path

import pytest

from pages.runs.lab_05 import normalize
from tests.docs.page import ROOT, Command, path_of, read_commands, read_outputs
from tests.docs.replacements import EXPECTED_ENDS, REPLACEMENTS, replace_command

DOORS = [ROOT / "README.md", ROOT / "docs/index.md"]
LABS = sorted(page for page in ROOT.glob("docs/labs/*.md") if not page.name.endswith(".es.md"))
# Its corpora are the clone's pages, whose numbers lab 02 has replaced.
ABOUT_PAGES = ROOT / "docs/labs/05-from-text-to-the-batch.md"
START = ["git clone REPOSITORY shardbook", "cd shardbook"]
Typed = tuple[Path, Command]


def commands_to_type(pages: list[Path]) -> list[Typed]:
    """Return the commands of the pages, after those that clone the repository."""
    commands = [(page, command) for page in pages for command in read_commands(page)]
    if [command.text for _, command in commands[:2]] == START:
        return commands
    return [*((pages[0], Command(0, text)) for text in START), *commands]


def expected_ends(commands: list[Typed]) -> list[tuple[int, str]]:
    """Return the expected status and last words of each command."""
    ends = {
        (page, text): iter(each)
        for page, of_page in EXPECTED_ENDS.items()
        for text, each in of_page.items()
    }
    keys = [(path_of(page), command.text) for page, command in commands]
    return [next(ends[key]) if key in ends else (0, "") for key in keys]


@pytest.mark.parametrize(
    "pages",
    [
        *(pytest.param([page], id=path_of(page)) for page in [*DOORS, LABS[0]]),
        pytest.param(LABS, id="the-labs-in-one-clone", marks=pytest.mark.ci),
    ],
)
def test_the_commands_of_the_pages_do_what_they_say(
    pages: list[Path], shell: dict[str, str], tmp_path: Path
) -> None:
    commands = commands_to_type(pages)
    ends = expected_ends(commands)
    script = ["set -o pipefail"]
    for number, (_, command) in enumerate(commands):
        script += [
            f"{{ {replace_command(command.text)}\n}} >{tmp_path}/{number}.out 2>&1 </dev/null",
            f"ended=$?; [ $ended = {ends[number][0]} ] || {{ echo {number} >&2; exit 1; }}",
        ]
    done = subprocess.run(
        ["bash", "-c", "\n".join(script)], cwd=tmp_path, env=shell, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    if done.returncode:
        failed = int(done.stderr.split()[-1])
        page, command = commands[failed]
        place = f"{path_of(page)}:{command.line}: {command.text}"
        run = replace_command(command.text)
        pytest.fail(f"{place}\nrun as {run}:\n{read_output(tmp_path, failed)}")
    for number, (_, words) in enumerate(ends):
        assert words in read_output(tmp_path, number), commands[number]
    if pages[0] in LABS:
        assert find_absent_lines(commands, tmp_path) == []


def find_absent_lines(commands: list[Typed], folder: Path) -> list[str]:
    """Return the lines that a page shows below its commands and that they did not print.

    Runs of train.py are cut short here; `python -m pages lab-01` writes what whole runs print.
    """
    absent = []
    for page in dict.fromkeys(page for page, _ in commands):
        for block, shown in read_outputs(page).items():
            numbers = [i for i, (of, c) in enumerate(commands) if (of, c.line) == (page, block)]
            if numbers and all("train.py" in commands[i][1].text for i in numbers):
                continue
            printed = "\n".join(read_output(folder, i) for i in numbers)
            lines = shown
            if page == ABOUT_PAGES:
                printed, lines = normalize(printed), normalize("\n".join(shown)).splitlines()
            printed = " ".join(printed.split())
            absent += [
                f"{path_of(page)}:{block}: {line}"
                for line in lines
                if " ".join(line.split()) not in printed
            ]
    return absent


def read_output(folder: Path, number: int) -> str:
    return (folder / f"{number}.out").read_text("utf-8", errors="replace")


def test_the_labs_show_what_their_commands_print() -> None:
    assert sum(len(read_outputs(page)) for page in LABS) >= 9


def test_nothing_is_run_otherwise_that_no_page_says() -> None:
    commands = commands_to_type([*DOORS, *LABS])
    texts = [command.text for _, command in commands]
    assert [
        replacement
        for replacement in REPLACEMENTS
        if not any(re.fullmatch(replacement.pattern, t) for t in texts)
    ] == []
    for page, commands_of in EXPECTED_ENDS.items():
        typed = [command.text for of, command in commands if path_of(of) == page]
        for text, ends in commands_of.items():
            assert typed.count(text) == len(ends)
