"""The house stays as small as it is: lines of code by room, as tinygrad's sz.py counts them.

Run with `-s`, the first test prints the table. A room that is over its budget has its present size
as its limit, so that it can only shrink. Whoever adds a capability raises a line here and says why.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from pages.house import count_code_lines
from tests.docs.page import ROOT

# Lines of code: what the plan for the house asks, and what there may be today.
LIMITS = {
    # A Llama's block (100), models by protocol (100), the parity command (890), weights (290),
    # FSDP's step on a clock (130), orders compared beside a GPU (12), scaled rope with all of
    # yarn's settings, and Qwen3 (130).
    "tools/shardlab": (7_000, 10_319),
    # N114 compares a lab with its earlier pages; `cite` looks in the tree of a source; forms of
    # citations, `audit` and `adopt`, and six languages more have structure rules.
    # Since: words that only look like paths, `path::symbol` and lines behind a comma, the whole of
    # what a range meant, readings dated by heads and headings (205 lines).
    # Since: renamed files, moved functions in nine languages, symbols that left their file (170);
    # lines of renamed files, reference links, numbers of a commit that were right (66);
    # numbers that miss a name by two lines, ranges up to the next definition (26); text in JSX (2).
    "tools/notelab": (8_000, 13_573),
    # With the cases that `make benchmark` had in tests, and a budget of time (130 lines); `fits`
    # and `predict` (1,330); FSDP's buffers, and a line for each tensor (45). The terms of a layer,
    # which shardlab had twice (25), and step times of models with experts (70). What steps hold on
    # a GPU (88). Names of options in errors, FSDP that cuts weights by default (4).
    # Measured runs that cannot be (4), a folder too long for sockets (8).
    "tools/costlab": (6_000, 10_044),
    # With the page of all cards (50 lines), FSDP's step (105) and the process grid (105), a ring's
    # steps (95), the causal square (80), memory over two steps (130), a collective's fit (10).
    # With drawings (60), the plain tree (85), an answer while the site is built (65), bars and
    # ticks (100), chips (60). With the calculator that takes what `fits` takes (75),
    # and its bar of the card (7). With terms of the glossary that find a page (28), the
    # address to clone from (9), intervals and formulas on one line (6), the verdict's bracket (7).
    # With rows of the glossary and sections that the search finds by themselves (60).
    # With what each rank holds in ZeRO's stages (55), the files that a note reads (15), letters
    # and punctuation in sentences (24). With the rows that travel to their experts (90).
    "tools/sitelab": (1_200, 3_003),
    # With the pages of lab 06, diagrams drawn (105), the scored predictions (95), the drawers of
    # the API pages (25), layouts measured on CPU ranks (165), scores of models with experts (6).
    # With what lab 01's runs print (33). From tests: the corpora's
    # table (125), the makers of pictures with their browser (120).
    "tools/pages": (1_600, 2_495),
    "experiments": (1_900, 3_473),  # with the museum's rooms, a grader of each sentence, and lab 06
}
TESTS = (36_000, 51_068)  # lines of all tests: wanted, and at most today
FILES = 471  # in all these rooms; the plan asks for 370
SMALL, SHORTEST = 2, 30  # at most so many files have fewer lines
FOLDER = 15  # Python files in a folder
ENTRIES = {"__init__.py", "__main__.py"}


def list_files() -> list[Path]:
    return [path for room in LIMITS for path in sorted((ROOT / room).rglob("*.py"))]


def test_each_room_has_at_most_so_many_lines_of_code() -> None:
    print(f"\n{'room':<16}{'files':>6}{'lines':>8}{'code':>8}{'budget':>8}{'limit':>8}")
    over = []
    for room, (budget, limit) in LIMITS.items():
        files = sorted((ROOT / room).rglob("*.py"))
        lines = sum(path.read_text("utf-8").count("\n") for path in files)
        code = sum(map(count_code_lines, files))
        print(f"{room:<16}{len(files):>6}{lines:>8}{code:>8}{budget:>8}{limit:>8}")
        if code > limit:
            over.append(f"{room}: {code} lines of code, at most {limit}")
    assert not over, "\n".join(over)
    assert len(list_files()) <= FILES


def test_the_tests_grow_no_longer() -> None:
    files = [*(ROOT / "tests").rglob("*.py")]
    lines = sum(path.read_text("utf-8").count("\n") for path in files)
    assert lines <= TESTS[1], f"{lines} lines of tests: let one test take the place of two"


def test_few_files_are_too_small_to_be_looked_up() -> None:
    small = [
        str(path.relative_to(ROOT))
        for path in list_files()
        if path.name not in ENTRIES and path.read_text("utf-8").count("\n") < SHORTEST
    ]
    assert len(small) <= SMALL, "\n".join(small)


@pytest.mark.parametrize("room", [room for room in LIMITS if room != "experiments"])
def test_no_file_name_occurs_twice_in_a_room(room: str) -> None:
    names = Counter(path.name for path in (ROOT / room).rglob("*.py"))
    assert not [name for name in names - Counter({*names}) if name not in ENTRIES]


@pytest.mark.parametrize("root", ["tools", "tests", "experiments"])
def test_no_folder_is_crowded(root: str) -> None:
    folders = {path.parent for path in (ROOT / root).rglob("*.py")}
    crowded = {
        f"{folder.relative_to(ROOT)}: {count}"
        for folder in folders
        if (count := sum(1 for _ in folder.glob("*.py"))) > FOLDER
    }
    assert not crowded, crowded
