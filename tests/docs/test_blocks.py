"""A command block copies clean, and a page that has commands says first what must be set up."""

import re
from pathlib import Path

import pytest

from tests.docs.page import ROOT, Command, list_pages, read_commands, read_fences, spanish_page

PAGES = list_pages()
WITH_COMMANDS = [page for page in PAGES if re.search(r"^ *```bash$", page.read_text("utf-8"), re.M)]
# They are where others point: the front page says how everything is set up, the README too.
DOORS = {
    ROOT / path_of
    for path_of in ("README.md", "CONTRIBUTING.md", "docs/index.md", "docs/index.es.md")
}
SET_UP = re.compile(r"\((?:\.\./)+index(?:\.md#set-up|\.es\.md#preparar)\)")
# What reads otherwise in Spanish: the notes' language is the page's, and a placeholder is a word.
TRANSLATED = {
    "--from 35-reading-notes": "--from 35-reading-notes --language es",
    "--from 35-further-readings": "--from 35-further-readings --language es",
    "SOURCE": "FUENTE",
    "FOLDER": "CARPETA",
    "COMMAND": "ORDEN",
}


def path_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", PAGES, ids=path_of)
def test_every_block_says_what_it_holds(page: Path) -> None:
    nameless = [token.map for token in read_fences(page) if not token.info.strip()]
    assert not nameless, "a block is `bash` to be typed, `text` to be seen, or a file's own kind"
    assert not [
        token.map for token in read_fences(page) if token.info in ("console", "shell", "sh")
    ]


@pytest.mark.parametrize("page", WITH_COMMANDS, ids=path_of)
def test_a_command_block_holds_commands_and_nothing_else(page: Path) -> None:
    for token in read_fences(page):
        if token.info == "bash":
            prompts = re.findall(r"^[$#>%] .*", token.content, re.M)
            # A comment is none in every shell: zsh hands it to the command.
            comments = re.findall(r"^.*\s#.*", token.content, re.M)
            assert not prompts + comments, f"in the block of line {token.map}"
            assert token.content == token.content.strip() + "\n"


@pytest.mark.parametrize("page", WITH_COMMANDS, ids=path_of)
def test_a_page_with_commands_says_first_what_to_set_up(page: Path) -> None:
    text = page.read_text("utf-8")
    if page in DOORS:
        return
    top = text[: text.index("\n## ")]
    link = SET_UP.search(top)
    assert link, f"link `index.md#set-up` in {path_of(page)} before its first section"
    assert link.start() < text.index("```bash")


@pytest.mark.parametrize("page", WITH_COMMANDS, ids=path_of)
def test_what_lies_in_the_environment_is_typed_when_it_is_active(page: Path) -> None:
    if "/rules/" in path_of(
        page
    ):  # one rule each; their top line says where `shardbook` comes from
        return
    blocks = [token.content for token in read_fences(page) if token.info == "bash"]
    set_up, active = False, False
    for line in "".join(blocks).splitlines():
        set_up |= line.startswith("make ")
        active |= set_up and line == "source .venv/bin/activate"
        program = line.partition(" ")[0]
        assert active or program not in ("shardbook", "python", "torchrun", "pytest"), line


def translate(english: Command) -> str:
    text = english.text
    for english_words, spanish_words in TRANSLATED.items():
        text = text.replace(english_words, spanish_words)
    return text


@pytest.mark.parametrize(
    "page", [page for page in WITH_COMMANDS if spanish_page(page).exists()], ids=path_of
)
def test_both_languages_have_the_same_commands(page: Path) -> None:
    # A sentence may name them in another order.
    assert sorted(c.text for c in read_commands(spanish_page(page))) == sorted(
        map(translate, read_commands(page))
    )
