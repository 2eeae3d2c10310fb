"""`shardbook cite`: prints the citation of a symbol."""

from difflib import get_close_matches
from pathlib import Path

from notelab.book.evidence import CitedFile, State
from notelab.book.workbook import CheckSession, Workbook, open_lab
from notelab.cited.fitting import find_symbols
from notelab.cited.outline import Symbol
from notelab.commands.parts import Part, split_symbol
from notelab.errors import NotelabError
from notelab.lab import pins
from notelab.page.citation import format_citation

_WORDS = 40  # characters that are shown of a part's first line


def cite(
    folder: Path, source: str, symbol: str, session: CheckSession
) -> tuple[list[tuple[str, bool]], bool]:
    """Find a symbol in the cited files, in the file that `path.py:Name` names, or in its module.

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
    path, colon, name = symbol.rpartition(":")
    if colon:
        return _read_file(book, source, path), name
    proved = (file for file in book.evidence.list_files() if file.state is State.PROVED)
    files = [file for file in proved if file.source == source]
    if any(_find_symbols_in(file, symbol) for file in files):
        return files, symbol
    parts = symbol.split(".")
    # A name can only be a module's if it begins like the paths of this source. For any other name,
    # the network would be asked for a file that doesn't exist.
    if parts[0] not in {file.path.partition("/")[0] for file in files}:
        return files, symbol
    for cut in range(len(parts) - 1, 0, -1):
        stem = "/".join(parts[:cut])
        for guess in (f"{stem}.py", f"{stem}/__init__.py"):
            if guess.count("/") and (files_of_module := _read_file(book, source, guess)):
                return files_of_module, ".".join(parts[cut:])
    return files, symbol


def _read_file(book: Workbook, source: str, path: str) -> list[CitedFile]:
    book.evidence.gather([(source, path)])
    file = book.evidence.file(source, path)
    return [file] if file and file.state is State.PROVED else []


def _find_symbols_in(file: CitedFile, name: str) -> list[Symbol]:
    return find_symbols(file.outline, name) if file.outline else []


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
        else f"for a file not cited yet: shardbook cite {source} path/to/file.py:Name",
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
    texts = (line.strip().removeprefix("r").strip("\"'") for line in lines)  # a docstring's text
    code = next((text for text in texts if text and not text.startswith("#")), "")
    return code if len(code) <= _WORDS else f"{code[: _WORDS - 1]}…"
