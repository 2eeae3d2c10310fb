"""What every page is held to. A check yields the line and what is wrong there.

A check takes a page's path and its text. `test_pages.py` runs all of them on each page, and shows
that each of them finds its fault.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

from tests.docs.page import ROOT, english_page, read_commands, read_tokens, spanish_page

Faults = Iterator[tuple[int, str]]
# They are where others point: the front page says how everything is set up, the README too.
DOORS = {
    ROOT / name for name in ("README.md", "CONTRIBUTING.md", "docs/index.md", "docs/index.es.md")
}
FIRST_BLOCK = re.compile(r"^ *```bash$", re.M)
SET_UP = re.compile(r"\((?:\.\./)+index(?:\.md#set-up|\.es\.md#preparar)\)")
# What reads otherwise in Spanish: the notes' language is the page's, and a placeholder is a word.
TRANSLATED = {
    "--from 35-reading-notes": "--from 35-reading-notes --language es",
    "--from 35-further-readings": "--from 35-further-readings --language es",
    "SOURCE": "FUENTE",
    "FOLDER": "CARPETA",
    "COMMAND": "ORDEN",
}
CODE = re.compile(r"```.*?```|`[^`\n]*`|\$\$.*?\$\$", re.S)
NO_PROSE = re.compile(r"```.*?```|`[^`\n]*`|\]\([^)]*\)|<[^>]+>|\A---\n.*?\n---\n", re.S)
THOUSANDS = re.compile(r"(?<![\d.,])\d{1,3}(?:,\d{3})+(?!\d)")
# A row's value is written to the letter as in the English page.
BY_ROWS = ("RESULTS.es.md", "CLAIMS.es.md")
# The pattern that a Spanish page must not hold, and the glossary's term.
TERMS = {
    r"\bcubos?\b": "bucket",
    r"\branks? tensorial(?:es)?\b": "rank de tensor",
    r"\brangos? (?:tensorial(?:es)?|de tensor|de datos)\b": "rank de tensor, rank de datos",
    r"\bhacia (?:a?delante|atrás)\b": "forward, backward",
    r"\bdispatchers?\b(?!\*)": "repartidor",
    r"\bmicro-?lotes?\b": "micro-batch",
    r"\blibros? de cuentas\b": "registro de bytes",
    r"\brecomputaci(?:ón|ones)\b": "recómputo",
    r"\bdesactivad[oa]s? por defecto\b": "inactivo por defecto",
    r"\b(?:rejilla|cuadrícula)s?\b": "malla",
    r"(?<!-)(?<!\?\? question )\bhidden\b(?!-)": "tamaño oculto",
    r"\bbalance(?:o|ar|ad[oa]s?)\b": "equilibrado, equilibrar",
}
GENERATED = re.compile(r"^<!-- (?:/[\w.: -]+|generated from .* sha256:\w{64}) -->$", re.M)
WRITER = re.compile(r"^<!-- (?:written by|escrito por) `(?:python -m ([\w.]+))?.*`", re.M)
SPEED = re.compile(r"\]\(\S*\b(kernels-speed(?:\.es)?\.md)#([\w-]+)\)")
FACTOR = re.compile(r"(?<![\d.,])\d\.\d\d(?![\d.])")


def line_of(text: str, position: int) -> int:
    """Return the line of a position in a text."""
    return text.count("\n", 0, position) + 1


def blank_out(pattern: re.Pattern[str], text: str) -> str:
    """Return the text without what matches, each line where it was."""
    return pattern.sub(lambda match: "\n" * match[0].count("\n"), text)


def check_blocks(page: Path, text: str) -> Faults:
    """A block names its kind, and a block of commands copies clean."""
    for token in read_tokens(text):
        if token.type != "fence":
            continue
        line = token.map[0] + 1 if token.map else 0
        if token.info.strip() in ("", "console", "shell", "sh"):
            yield line, "a block is `bash` (typed), `text` (seen), or a file's own kind"
        elif token.info == "bash":
            # A comment is none in every shell: zsh hands it to the command.
            for match in re.finditer(r"^[$#>%] .*|^.*\s#.*", token.content, re.M):
                yield line + line_of(token.content, match.start()), f"no command: {match[0]}"
            if token.content != token.content.strip() + "\n":
                yield line, "a block of commands begins or ends with an empty line"


def check_set_up(page: Path, text: str) -> Faults:
    """A page with commands links how to set up before its first section and its first command."""
    first = FIRST_BLOCK.search(text)
    if first and page not in DOORS:
        top = text.partition("\n## ")[0]
        if not SET_UP.search(top[: first.start()]):
            yield line_of(text, first.start()), "link `index.md#set-up` above it and the sections"


def check_environment(page: Path, text: str) -> Faults:
    """Once an environment is set up, its programs are typed when it is active."""
    if page.parent.name == "rules":  # one rule each; their top says where `shardbook` comes from
        return
    set_up, active = False, False
    for token in read_tokens(text):
        lines = token.content.splitlines() if (token.type, token.info) == ("fence", "bash") else []
        for number, line in enumerate(lines, (token.map or [0])[0] + 2):
            set_up |= line.startswith(("make ", "python3 -m venv "))
            active |= set_up and line == "source .venv/bin/activate"
            program = line.partition(" ")[0]
            if not active and program in ("shardbook", "python", "torchrun", "pytest"):
                yield number, f"the environment is not active: {line}"


def check_translated_commands(page: Path, text: str) -> Faults:
    """Both languages have the same commands; a sentence may name them in another order."""
    original = english_page(page)
    if original == page or not FIRST_BLOCK.search(original.read_text("utf-8")):
        return
    english, spanish = Counter[str](), read_commands(page)
    for command in read_commands(original):
        words = command.text
        for english_words, spanish_words in TRANSLATED.items():
            words = words.replace(english_words, spanish_words)
        english[words] += 1
    for command in spanish:
        english[command.text] -= 1
        if english[command.text] < 0:
            yield command.line, f"not in the English page: {command.text}"
    for words, missing in english.items():
        if missing > 0:
            yield 1, f"only in the English page: {words}"


def list_linked_pages(text: str) -> Iterator[tuple[int, str]]:
    """Yield the line and the address of each link to a page of this repository."""
    for token in read_tokens(text):
        for child in token.children or []:
            address = str(child.attrGet("href") or "").partition("#")[0]
            if child.type == "link_open" and address.endswith(".md") and "://" not in address:
                yield (token.map or [0])[0] + 1, unquote(address)


def check_links(page: Path, text: str) -> Faults:
    """A link stays in the page's language if the linked page exists in that language."""
    if page == ROOT / "README.md":  # the door to both languages
        return
    is_spanish = page.name.endswith(".es.md")
    for line, address in list_linked_pages(text):
        if address.endswith(".es.md") is not is_spanish and (
            not is_spanish or spanish_page(page.parent / address).exists()
        ):
            yield line, f"leads out of the page's language: {address}"


def check_spanish_numbers(page: Path, text: str) -> Faults:
    """A Spanish page has the English page's points and commas, but none between thousands."""
    if not page.name.endswith(".es.md"):
        return
    # With 131.072 for tokens and 1.25 for a ratio on one page, nobody can tell which is which.
    english = english_page(page).read_text("utf-8")
    number = re.compile(r"\d+(?:[.,]\d+)+")
    numbers = {*number.findall(english), *number.findall(re.sub(r"(?<=\d),(?=\d{3})", "", english))}
    for match in number.finditer(text):
        if match[0] not in numbers:
            yield line_of(text, match.start()), f"not in the English page: {match[0]}"
    if page.name not in BY_ROWS:
        prose = blank_out(CODE, text)
        for match in THOUSANDS.finditer(prose):
            yield line_of(prose, match.start()), f"a comma between thousands: {match[0]}"


def check_spanish_terms(page: Path, text: str) -> Faults:
    """A thing has one Spanish term, the glossary's."""
    if page.name.endswith(".es.md"):
        prose = blank_out(NO_PROSE, text)
        for pattern, term in TERMS.items():
            for match in re.finditer(pattern, prose, re.I):
                yield line_of(prose, match.start()), f"for {match[0]!r} write {term!r}"


def check_writer(page: Path, text: str) -> Faults:
    """A page that a command writes says at its top which."""
    if not GENERATED.search(text):
        return
    writer = WRITER.search(text.partition("\n# ")[0])
    if not writer:
        yield 1, "generated, and no `written by` at the top"
    elif writer[1]:
        path = writer[1].replace(".", "/")
        places = [ROOT / room / path for room in (".", "tools")]
        if not any(p.with_suffix(".py").is_file() or (p / "__main__.py").is_file() for p in places):
            yield line_of(text, writer.start()), f"no module {writer[1]}"


def read_section(heading: str, page: Path) -> str:
    """Return the text of the section that has this anchor, or nothing."""
    _, *sections = re.split(r"^##+ ", page.read_text("utf-8"), flags=re.M)
    for section in sections:
        title, _, body = section.partition("\n")
        plain = unicodedata.normalize("NFKD", title).encode("ascii", "ignore").decode()
        if plain.lower().replace(" ", "-") == heading:
            return body
    return ""


def check_speed(page: Path, text: str) -> Faults:
    """A factor in a paragraph that links the kernels' speed is in the linked section's table."""
    # These tables are measured again now and then, and no rule holds a sentence to them.
    start = 0
    for paragraph in text.split("\n\n"):
        for name, heading in SPEED.findall(paragraph):
            measured = read_section(heading, ROOT / "docs/reference" / name)
            for match in FACTOR.finditer(paragraph):
                if f"(**{match[0]}**," not in measured:
                    yield line_of(text, start + match.start()), f"{match[0]} not in #{heading}"
        start += len(paragraph) + 2


CHECKS = (
    check_blocks,
    check_set_up,
    check_environment,
    check_translated_commands,
    check_links,
    check_spanish_numbers,
    check_spanish_terms,
    check_writer,
    check_speed,
)
