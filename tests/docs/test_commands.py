"""Every command of the README, the front page and the labs runs in a fresh clone, as it stands.

The pages are the input: what a page says is typed, in its order, in one shell, in a clone of this
working tree, with a home and a cache of its own. instead.py says what is run otherwise, and why.
"""

import re
import subprocess
from pathlib import Path

import pytest

from tests.docs.instead import ENDS, INSTEAD, run_for
from tests.docs.page import ROOT, commands

PAGES = [
    ROOT / "README.md",
    ROOT / "docs/index.md",
    *sorted(page for page in ROOT.glob("docs/labs/*.md") if not page.name.endswith(".es.md")),
]
# A laptop types what everybody types first.
TYPED = ("README.md", "docs/index.md", "docs/labs/00-ffn-by-hand.md")


def typed(page: Path) -> list[str]:
    """Return the page's commands, after those that bring the reader to a clone."""
    texts = [command.text for command in commands(page)]
    start = ["git clone REPOSITORY shardbook", "cd shardbook"]
    return texts if texts[:2] == start else start + texts


def endings(page: Path, texts: list[str]) -> list[tuple[int, str]]:
    """Return for each command the status and the words that it must end with."""
    said = {command: iter(each) for command, each in ENDS.get(name(page), {}).items()}
    return [next(said[text]) if text in said else (0, "") for text in texts]


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, id=name(page), marks=[pytest.mark.ci] * (name(page) not in TYPED))
        for page in PAGES
    ],
)
def test_the_commands_of_a_page_do_what_it_says(
    page: Path, shell: dict[str, str], tmp_path: Path
) -> None:
    texts = typed(page)
    wanted = endings(page, texts)
    script = ["set -o pipefail"]
    for number, text in enumerate(texts):
        script += [
            f"{{ {run_for(text)}\n}} >{tmp_path}/{number}.out 2>&1 </dev/null",
            f"ended=$?; [ $ended = {wanted[number][0]} ] || exit {number + 1}",
        ]
    done = subprocess.run(
        ["bash", "-c", "\n".join(script)],
        cwd=tmp_path,
        env=shell,
        capture_output=True,
        text=True,
        check=False,
    )
    at = done.returncode - 1
    assert at < 0, f"{texts[at]!r}, run as {run_for(texts[at])!r}:\n{printed(tmp_path, at)}"
    for number, (_, words) in enumerate(wanted):
        assert words in printed(tmp_path, number), texts[number]


def printed(folder: Path, number: int) -> str:
    return (folder / f"{number}.out").read_text("utf-8", errors="replace")


def test_nothing_is_run_otherwise_that_no_page_says() -> None:
    texts = [text for page in PAGES for text in typed(page)]
    assert [one for one in INSTEAD if not any(re.fullmatch(one.pattern, t) for t in texts)] == []
    for page, commands_of in ENDS.items():
        for command, each in commands_of.items():
            assert typed(ROOT / page).count(command) == len(each)
