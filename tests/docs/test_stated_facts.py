"""Statements of pages and labs about themselves are true."""

import re
import subprocess
import sys
import unicodedata
from pathlib import Path

import pytest

from tests.docs.page import ROOT, list_pages, spanish_page

NUMBER = re.compile(r"\d+")


def test_the_readme_shows_how_make_check_ends() -> None:
    shown = re.search(r"```text\n(\d+ pages, .*)\n```", (ROOT / "README.md").read_text("utf-8"))
    done = subprocess.run(
        [sys.executable, "-m", "notelab", "check", "--offline"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert shown and done.returncode == 0, done.stdout
    # How much is proved depends on which hosts answer; what there is to prove doesn't.
    fixed = re.compile(r"\d+ (?:pages|citations|diagrams|findings)")
    last = done.stdout.splitlines()[-1]
    assert fixed.findall(shown[1]) == fixed.findall(last), f"write into the README: {last}"
    if "lock only" in last:  # no git host has been reached, as on the README's machine
        assert NUMBER.sub("n", shown[1]) == NUMBER.sub("n", last)


CODE = re.compile(r"```.*?```|`[^`\n]*`|\$\$.*?\$\$", re.S)
THOUSANDS = re.compile(r"(?<![\d.,])\d{1,3}(?:,\d{3})+(?!\d)")
BY_ROWS = (
    "RESULTS.es.md",
    "CLAIMS.es.md",
)  # a row's value is one to the letter in both languages


def test_spanish_pages_have_no_comma_between_thousands() -> None:
    pages = [page for page in list_pages() if page.name.endswith(".es.md")]
    texts = {
        page: CODE.sub("", page.read_text("utf-8")) for page in pages if page.name not in BY_ROWS
    }
    thousands = {
        name: numbers for name, text in texts.items() if (numbers := THOUSANDS.findall(text))
    }
    assert len(texts) > 100 and thousands == {}


COUNTED = re.compile(r"^    (\S+\.md) +(\d+) +(\d+) +(\d+)", re.M)  # words, choices, cited


@pytest.mark.parametrize("page", ["commands.md", "commands.es.md"])
def test_the_commands_page_shows_what_check_counts(page: str) -> None:
    lab = "experiments/35-ffn-by-hand"
    text = (ROOT / "docs/reference" / page).read_text("utf-8")
    shown = text.partition(f"shardbook check {lab}\n")[2].partition("\n```\n\n*")[0]
    done = subprocess.run(
        [sys.executable, "-m", "notelab", "check", "--offline", lab],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert COUNTED.findall(shown) == COUNTED.findall(done.stdout) != [], done.stderr


@pytest.mark.parametrize(
    ("script", "module"),
    [
        ("35-ffn-by-hand/ffn.py", "torch"),
        ("35-three-d/train.py", "torch"),
        ("35-three-d/train.py", "shardlab"),
        ("35-three-d/traced.py", "torch"),
        ("37-batches/check.py", "numpy"),
        ("35-write-it/grade.py", "torch"),
    ],
)
def test_a_lab_without_its_packages_says_in_one_line_how_to_get_them(
    script: str, module: str
) -> None:
    path = ROOT / "experiments" / script
    hidden = (
        f"import runpy, sys; sys.modules[{module!r}] = None; sys.path[0] = {str(path.parent)!r}"
    )
    done = subprocess.run(
        [sys.executable, "-c", f"{hidden}; runpy.run_path({str(path)!r})"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1, done.stderr
    assert done.stderr.startswith(f"{path.name}: error: this Python has no {module}")
    assert "`make bench-env`" in done.stderr and "activate" in done.stderr


GENERATED = re.compile(r"^<!-- (?:/[\w.: -]+|generated from .* sha256:\w{64}) -->$", re.M)
MADE = [page for page in list_pages() if GENERATED.search(page.read_text("utf-8"))]


@pytest.mark.parametrize("page", MADE, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_a_page_that_a_command_writes_says_at_its_top_which(page: Path) -> None:
    top, _, _ = page.read_text("utf-8").partition("\n# ")
    writer = re.search(r"^<!-- (?:written by|escrito por) `(?:python -m ([\w.]+)|.*)`", top, re.M)
    assert writer
    assert not writer[1] or (ROOT / f"{writer[1].replace('.', '/')}.py").is_file()


SPEED = re.compile(r"\]\(\S*\b(kernels-speed(?:\.es)?\.md)#([\w-]+)\)")
FACTOR = re.compile(r"(?<![\d.,])\d\.\d\d(?![\d.])")


def read_section(heading: str, page: Path) -> str:
    """Return the text of the section that has this anchor."""
    _, *sections = re.split(r"^##+ ", page.read_text("utf-8"), flags=re.M)
    for section in sections:
        title, _, body = section.partition("\n")
        plain = unicodedata.normalize("NFKD", title).encode("ascii", "ignore").decode()
        if plain.lower().replace(" ", "-") == heading:
            return body
    raise AssertionError(f"{page.name} has no #{heading}")


def test_a_factor_beside_a_link_to_the_speed_stands_there_in_a_table() -> None:
    # These tables are measured anew now and then, and no rule holds a sentence to them.
    wrong, count = [], 0
    for page in list_pages():
        for paragraph in page.read_text("utf-8").split("\n\n"):
            for name, heading in SPEED.findall(paragraph):
                measured = read_section(heading, ROOT / "docs/reference" / name)
                factors = FACTOR.findall(paragraph)
                wrong += [
                    (page.name, factor) for factor in factors if f"(**{factor}**," not in measured
                ]
                count += len(factors)
    assert wrong == [] and count >= 6  # of zero bubble, three in each language


def find_numbers(text: str) -> set[str]:
    """Return the numbers that contain a point or a comma."""
    return set(re.findall(r"\d+(?:[.,]\d+)+", text))


@pytest.mark.parametrize(
    "page",
    [page for page in list_pages() if spanish_page(page).exists()],
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_points_and_commas_in_numbers_are_the_english_page_s(page: Path) -> None:
    # With 131.072 for tokens and 1.25 for a ratio on one page, nobody can tell which is which.
    text = page.read_text("utf-8")
    without_thousands = re.sub(r"(?<=\d),(?=\d{3})", "", text)
    english_numbers = find_numbers(text) | find_numbers(without_thousands)
    assert sorted(find_numbers(spanish_page(page).read_text("utf-8")) - english_numbers) == []
