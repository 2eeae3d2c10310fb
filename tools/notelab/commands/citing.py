"""`shardbook cite`: prints the citation of a symbol, and its parts if it is too long to cite."""

from bisect import bisect_right
from difflib import get_close_matches
from pathlib import Path

import msgspec

from notelab.book.evidence import CitedFile, State
from notelab.book.workbook import CheckSession, Workbook, open_lab
from notelab.cited import nearest_range
from notelab.cited.outline import Outline, Symbol
from notelab.errors import NotelabError
from notelab.lab import pins
from notelab.page.citation import format_citation

_WORDS = 40  # characters that are shown of a part's first line


class Part(msgspec.Struct, frozen=True):
    """A range of lines that belong together; `symbol` is set if it is exactly a symbol."""

    first: int
    last: int
    symbol: Symbol | None = None

    @property
    def lines(self) -> int:
        """Return the number of lines."""
        return self.last - self.first + 1


def cite(
    folder: Path, source: str, symbol: str, session: CheckSession
) -> tuple[list[tuple[str, bool]], bool]:
    """Find a symbol: in the file that `path.py:Name` names, or else in one that a lab cites.

    If no lab cites a file that has it, look in the symbol's module, and then in the source's tree.

    Returns the lines to print, each with whether it goes to standard error, and whether a symbol
    was found.
    """
    book = open_lab(folder, session)
    pin = book.pins[source]
    if not pin.commit:
        raise NotelabError(f"{pin.problem}", hint=f"write it with `{pins.format_command(pin)}`")
    files, name = _files(book, source, symbol)
    matches = [(file, match) for file in files for match in _find_symbols_in(file, name)]
    if not files and ":" in symbol:
        reasons = _explain_no_file(book, source, symbol.rpartition(":")[0])
        return [(reason, True) for reason in reasons], False
    if not matches:
        return [(reason, True) for reason in _explain_no_symbol(files, name, source)], False
    lines: list[tuple[str, bool]] = []
    max_lines = book.lab.file.lab.max_lines
    for file, match in matches:
        lines.append((f"`{format_citation(file.path, match.top, match.last)}`", False))
        length = match.last - match.top + 1
        if length > max_lines:
            limit = f"and a citation may have at most {max_lines}"
            remark = f"{match.name} has {length} lines, {limit}"
            parts = _parts(file, match, source, max_lines)
            lines += [
                (f"  {part}", True) for part in (f"{remark}; cite the part that you mean:", *parts)
            ]
    return lines, True


def _files(book: Workbook, source: str, symbol: str) -> tuple[list[CitedFile], str]:
    """Return the files that have the symbol, or that were searched for it, and its name in them."""
    path, colon, name = symbol.rpartition(":")
    if colon:
        return _read_files(book, source, [path]), name
    proved = (file for file in book.evidence.list_files() if file.state is State.PROVED)
    files = [file for file in proved if file.source == source]
    if not any(_find_symbols_in(file, symbol) for file in files):
        siblings = _read_files(book, source, book.evidence.list_sibling_paths(source))
        files += [file for file in siblings if file not in files]
    if any(_find_symbols_in(file, symbol) for file in files):
        return files, symbol
    if in_module := _find_module(book, source, symbol, files):
        return in_module
    paths = book.evidence.library.find_definitions(
        book.evidence.source(source), symbol.partition(".")[0]
    )
    return files + _read_files(book, source, paths), symbol


def _find_module(
    book: Workbook, source: str, symbol: str, files: list[CitedFile]
) -> tuple[list[CitedFile], str] | None:
    """Return the file of the module that a dotted name begins with, and the rest of the name."""
    parts = symbol.split(".")
    # A name can only be a module's if it begins like the paths of this source. For any other name,
    # the network would be asked for a file that doesn't exist.
    if parts[0] not in {file.path.partition("/")[0] for file in files}:
        return None
    for cut in range(len(parts) - 1, 0, -1):
        stem = "/".join(parts[:cut])
        for guess in (f"{stem}.py", f"{stem}/__init__.py"):
            if guess.count("/") and (module := _read_files(book, source, [guess])):
                return module, ".".join(parts[cut:])
    return None


def _read_files(book: Workbook, source: str, paths: list[str]) -> list[CitedFile]:
    book.evidence.gather((source, path) for path in paths)
    files = (book.evidence.file(source, path) for path in paths)
    return [file for file in files if file and file.state is State.PROVED]


def _find_symbols_in(file: CitedFile, name: str) -> list[Symbol]:
    return nearest_range.find_symbols(file.outline, name) if file.outline else []


def _explain_no_symbol(files: list[CitedFile], name: str, source: str) -> list[str]:
    outlines = [file.outline for file in files if file.outline]
    symbols = {symbol.name: None for outline in outlines for symbol in outline.symbols}
    short = {full.rpartition(".")[2]: full for full in symbols}
    similar = get_close_matches(name, [*symbols, *short], n=3)
    names = dict.fromkeys(short.get(each, each) for each in similar)
    return [
        f"no symbol `{name}` in the {len(files)} available files of `{source}`",
        "closest: " + ", ".join(f"`{full}`" for full in names)
        if names
        else f"for a file not cited yet: shardbook cite {source} path/to/file.py:Name, or "
        f"--mirror {source}=DIR with a clone, whose whole tree is searched",
    ]


def _explain_no_file(book: Workbook, source: str, path: str) -> list[str]:
    file = book.evidence.file(source, path)
    why = "; ".join(file.reasons) if file else ""
    suggestions = (
        ", ".join(f"`{suggestion}`" for suggestion in file.suggestions[:3]) if file else ""
    )
    if file and file.state is State.POINTER:
        return [f"`{path}` of `{source}` can't be cited: {why}"]
    message = f"no `{path}` in `{source}` at its pin" + (f": {why}" if why else "")
    return [message, f"closest: {suggestions}"] if suggestions else [message]


def _parts(file: CitedFile, whole: Symbol, source: str, max_lines: int) -> list[str]:
    outline = file.outline
    assert outline is not None
    lines = []
    for part in split_symbol(outline, whole, max_lines):
        text = _describe_part(file, part)
        if part.lines > max_lines and part.symbol:
            text += f" ({part.lines} lines: `shardbook cite {source} {part.symbol.name}`)"
        elif part.lines > max_lines:
            text += f" (one statement of {part.lines} lines: too long to cite)"
        lines.append(f"`{format_citation(file.path, part.first, part.last)}`  {text}")
    return lines


def _describe_part(file: CitedFile, part: Part) -> str:
    """Describe a part by its symbol's name, or by the beginning of its first line of code."""
    if part.symbol:
        return part.symbol.name
    lines = (line.decode("utf-8", "replace") for line in file.lines[part.first - 1 : part.last])
    texts = (line.strip().removeprefix('r"').strip("\"'") for line in lines)  # a docstring's text
    code = next((text for text in texts if text and not text.startswith("#")), "")
    return code if len(code) <= _WORDS else f"{code[: _WORDS - 1]}…"


def split_symbol(outline: Outline, whole: Symbol, max_lines: int) -> list[Part]:
    """Split a symbol into parts of at most `max_lines` lines, if its statements allow that.

    Adjacent statements stay together. A short paragraph is joined with the next, up to half of the
    limit. A function or class inside a class becomes a separate part.
    """
    pieces = _split_body(outline, whole.line, whole.last, max_lines)
    parts: list[Part] = []
    for piece in pieces:
        joined = Part(parts[-1].first, piece.last) if parts else piece
        is_adjacent = parts and piece.first == parts[-1].last + 1
        if (
            parts
            and not (piece.symbol or parts[-1].symbol)
            and joined.lines <= (max_lines if is_adjacent else max_lines // 2)
            and nearest_range.is_whole(outline, joined.first, joined.last)
            and nearest_range.straddles(outline, joined.first, joined.last) is None
        ):
            parts[-1] = joined
        else:
            parts.append(piece)
    return parts


def _split_body(outline: Outline, header: int, last: int, max_lines: int) -> list[Part]:
    """Return the statements after line `header`; those that are too long are split."""
    parts: list[Part] = []
    before = header
    for top, end in _direct_statements(outline, header, last):
        # The part begins with its comment and decorators, the first start after the last part.
        first = outline.starts[bisect_right(outline.starts, before)]
        first = first if end - first < max_lines else top
        symbol = next(
            (symbol for symbol in outline.symbols if (symbol.top, symbol.last) == (top, end)), None
        )
        piece = Part(min(first, top), end, symbol)
        inner = []
        if piece.lines > max_lines and not symbol:
            inner = _split_body(outline, top, end, max_lines) or _split_statement(outline, top, end)
        if inner:
            # The header of a statement is joined with its first inner part, if that fits.
            opened = Part(piece.first, inner[0].last)
            whole = nearest_range.is_whole(outline, opened.first, opened.last)
            parts += [opened, *inner[1:]] if whole and opened.lines <= max_lines else inner
        else:
            parts.append(piece)
        before = end
    return parts


def _split_statement(outline: Outline, top: int, end: int) -> list[Part]:
    """Return the paragraphs, entries or arguments of a statement that contains no other."""
    within = [group for group in outline.groups if top <= group[0][0] and group[-1][1] <= end]
    longest = max(within, key=lambda group: group[-1][1] - group[0][0], default=[])
    return [Part(first, last) for first, last in longest]


def _direct_statements(outline: Outline, header: int, last: int) -> list[tuple[int, int]]:
    """Return the outermost statements between two lines."""
    direct: list[tuple[int, int]] = []
    for first, end in outline.statements:
        if header < first and end <= last and (not direct or first > direct[-1][1]):
            direct.append((first, end))
    return direct
