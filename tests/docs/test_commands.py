"""Every command of the README, the front page and the labs runs in a fresh clone, as it stands.

The pages are the input: the commands of a page are typed in their order, in one shell, in a clone
of this working tree, with its own home and cache. replacements.py names the commands that are
replaced, and why.
"""

import re
import subprocess
from pathlib import Path

import pytest

from tests.docs.page import ROOT, path_of, read_commands
from tests.docs.replacements import EXPECTED_ENDS, REPLACEMENTS, replace_command

PAGES = [
    ROOT / "README.md",
    ROOT / "docs/index.md",
    *sorted(page for page in ROOT.glob("docs/labs/*.md") if not page.name.endswith(".es.md")),
]
# A laptop types what everybody types first.
TYPED = ("README.md", "docs/index.md", "docs/labs/00-ffn-by-hand.md")


def commands_to_type(page: Path) -> list[str]:
    """Return the page's commands, after the commands that clone the repository."""
    texts = [command.text for command in read_commands(page)]
    start = ["git clone REPOSITORY shardbook", "cd shardbook"]
    return texts if texts[:2] == start else start + texts


def expected_ends(page: Path, texts: list[str]) -> list[tuple[int, str]]:
    """Return the expected status and last words of each command."""
    ends = {command: iter(each) for command, each in EXPECTED_ENDS.get(path_of(page), {}).items()}
    return [next(ends[text]) if text in ends else (0, "") for text in texts]


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, id=path_of(page), marks=[pytest.mark.ci] * (path_of(page) not in TYPED))
        for page in PAGES
    ],
)
def test_the_commands_of_a_page_do_what_it_says(
    page: Path, shell: dict[str, str], tmp_path: Path
) -> None:
    texts = commands_to_type(page)
    ends = expected_ends(page, texts)
    script = ["set -o pipefail"]
    for number, text in enumerate(texts):
        script += [
            f"{{ {replace_command(text)}\n}} >{tmp_path}/{number}.out 2>&1 </dev/null",
            f"ended=$?; [ $ended = {ends[number][0]} ] || exit {number + 1}",
        ]
    done = subprocess.run(
        ["bash", "-c", "\n".join(script)],
        cwd=tmp_path,
        env=shell,
        capture_output=True,
        text=True,
        check=False,
    )
    failed = done.returncode - 1
    if failed >= 0:
        output = read_output(tmp_path, failed)
        pytest.fail(f"{texts[failed]!r}, run as {replace_command(texts[failed])!r}:\n{output}")
    for number, (_, words) in enumerate(ends):
        assert words in read_output(tmp_path, number), texts[number]


def read_output(folder: Path, number: int) -> str:
    return (folder / f"{number}.out").read_text("utf-8", errors="replace")


def test_nothing_is_run_otherwise_that_no_page_says() -> None:
    texts = [text for page in PAGES for text in commands_to_type(page)]
    assert [
        replacement
        for replacement in REPLACEMENTS
        if not any(re.fullmatch(replacement.pattern, t) for t in texts)
    ] == []
    for page, commands_of in EXPECTED_ENDS.items():
        for command, ends in commands_of.items():
            assert commands_to_type(ROOT / page).count(command) == len(ends)
