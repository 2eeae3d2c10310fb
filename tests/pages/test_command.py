"""`python -m pages` lists, writes and compares; a wrong command line says what is right."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from pages import __main__ as command
from pages import blocks, catalog
from pages.blocks import PageError


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A page with a block that is out of date, as the only page that there is."""
    path = tmp_path / "page.md"
    path.write_text("# Page\n\n<!-- sum -->\n3\n<!-- /sum -->\n\nEnd.\n", "utf-8")
    recorded: list[int] = [2, 2]

    def render() -> Iterator[tuple[Path, str]]:
        yield path, blocks.fill_blocks(path, {"sum": str(sum(recorded))})

    def record(first: str, second: str = "2") -> None:
        recorded[:] = [int(first), int(second)]

    module = SimpleNamespace(render=render, record=record)
    monkeypatch.setattr(catalog, "MODULES", {"sum": "pages.runs.trace"})
    monkeypatch.setattr(catalog, "load", lambda name: module)
    for holder in (command, blocks):
        monkeypatch.setattr(holder, "ROOT", tmp_path)
    return path


def test_a_page_is_compared_written_and_then_current(
    page: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = page.read_text("utf-8")
    assert command.main(["sum", "--check"]) == command.main(["--check"]) == 1
    assert capsys.readouterr().out == 2 * "page.md: out of date; run `python -m pages sum`\n"
    assert page.read_text("utf-8") == before
    assert command.main(["sum"]) == 0
    assert page.read_text("utf-8") == before.replace("\n3\n", "\n4\n")
    assert command.main(["sum", "--check"]) == 0


def test_what_a_page_is_made_from_is_recorded_first(page: Path) -> None:
    assert command.main(["sum", "--record", "5"]) == 0
    assert blocks.read_block(page, "sum") == "7"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["museum-of-art"], "invalid choice: 'museum-of-art' (choose from"),
        (["sum", "--record"], "sum --record takes: FIRST [SECOND]"),
        (["sum", "--record", "1", "2", "3"], "sum --record takes: FIRST [SECOND]"),
        (["sum", "--record", "1", "--check"], "choose --check or --record"),
        (["--record", "1"], "--record needs a NAME"),
    ],
)
def test_a_wrong_command_line_ends_with_2_and_says_what_is_right(
    page: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        command.main(arguments)
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


def test_a_page_without_the_marks_is_an_error_that_names_them(
    page: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page.write_text("# Page\n", "utf-8")
    assert command.main(["sum"]) == 2
    assert "page.md has no <!-- sum --> and <!-- /sum -->" in capsys.readouterr().err
    with pytest.raises(PageError):
        blocks.read_block(page, "sum")


def test_every_name_is_listed_with_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main([]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(catalog.MODULES)
    assert all(len(line.split()) > 3 for line in lines)
