"""`shardbook cite`: the citation of a symbol."""

from difflib import get_close_matches
from pathlib import Path

from notelab.book.evidence import CitedFile, State
from notelab.book.workbook import Bench, Workbook, open_lab
from notelab.cited.fitting import class_or_function
from notelab.cited.outline import Symbol
from notelab.commands.parts import Part, parts_of
from notelab.errors import NotelabError
from notelab.lab import pins
from notelab.page.citation import format_citation

_WORDS = 40  # characters of a part's first line


def cite(
    folder: Path, source: str, symbol: str, bench: Bench
) -> tuple[list[tuple[str, bool]], bool]:
    """Find a symbol in the cited files, in the file `path.py:Name` names, or by its module.

    Returns lines to print, each with whether it is an aside (for standard error), and whether
    anything was found.
    """
    book = open_lab(folder, bench)
    pin = book.pins[source]
    if not pin.commit:
        raise NotelabError(f"{pin.problem}", hint=f"write it with `{pins.format_command(pin)}`")
    files, name = _files(book, source, symbol)
    found = [(file, one) for file in files for one in _symbols(file, name)]
    if not files and ":" in symbol:
        return [(one, True) for one in _no_file(book, source, symbol.rpartition(":")[0])], False
    if not found:
        return [(one, True) for one in _nothing(files, name, source)], False
    lines: list[tuple[str, bool]] = []
    most = book.lab.file.lab.max_lines
    for file, one in found:
        lines.append((f"`{format_citation(file.path, one.top, one.last)}`", False))
        length = one.last - one.top + 1
        if length > most:
            said = f"{one.name} is {length} lines, over the {most} that a citation may have"
            parts = _parts(file, one, source, most)
            lines += [(f"  {part}", True) for part in (f"{said}; cite the part you mean:", *parts)]
    return lines, True


def _files(book: Workbook, source: str, symbol: str) -> tuple[list[CitedFile], str]:
    path, colon, name = symbol.rpartition(":")
    if colon:
        return _read(book, source, path), name
    proved = (file for file in book.evidence.gathered() if file.state is State.PROVED)
    known = [file for file in proved if file.source == source]
    if any(_symbols(file, symbol) for file in known):
        return known, symbol
    parts = symbol.split(".")
    # Only a name that begins like the paths of this source can be a module's: asking for any other
    # would ask the network for a file that nobody has.
    if parts[0] not in {file.path.partition("/")[0] for file in known}:
        return known, symbol
    for cut in range(len(parts) - 1, 0, -1):
        stem = "/".join(parts[:cut])
        for guess in (f"{stem}.py", f"{stem}/__init__.py"):
            if guess.count("/") and (there := _read(book, source, guess)):
                return there, ".".join(parts[cut:])
    return known, symbol


def _read(book: Workbook, source: str, path: str) -> list[CitedFile]:
    book.evidence.gather([(source, path)])
    file = book.evidence.file(source, path)
    return [file] if file and file.state is State.PROVED else []


def _symbols(file: CitedFile, name: str) -> list[Symbol]:
    return class_or_function(file.outline, name) if file.outline else []


def _nothing(files: list[CitedFile], name: str, source: str) -> list[str]:
    known = {one.name: None for file in files if file.outline for one in file.outline.symbols}
    short = {full.rpartition(".")[2]: full for full in known}
    near = get_close_matches(name, [*known, *short], n=3)
    names = dict.fromkeys(short.get(one, one) for one in near)
    return [
        f"no symbol `{name}` in the {len(files)} files of `{source}` at hand",
        "closest: " + ", ".join(f"`{one}`" for one in names)
        if names
        else f"for a file not cited yet: shardbook cite {source} path/to/file.py:Name",
    ]


def _no_file(book: Workbook, source: str, path: str) -> list[str]:
    file = book.evidence.file(source, path)
    why = "; ".join(file.reasons) if file else ""
    near = ", ".join(f"`{one}`" for one in file.near[:3]) if file else ""
    if file and file.state is State.POINTER:
        return [f"`{path}` of `{source}` can't be cited: {why}"]
    said = f"no `{path}` in `{source}` at its pin" + (f": {why}" if why else "")
    return [said, f"closest: {near}"] if near else [said]


def _parts(file: CitedFile, whole: Symbol, source: str, most: int) -> list[str]:
    outline = file.outline
    assert outline is not None
    lines = []
    for part in parts_of(outline, whole, most):
        said = _first_words(file, part)
        if part.lines > most and part.symbol:
            said += f" ({part.lines} lines: `shardbook cite {source} {part.symbol.name}`)"
        elif part.lines > most:
            said += f" (one statement of {part.lines} lines: too long to cite)"
        lines.append(f"`{format_citation(file.path, part.first, part.last)}`  {said}")
    return lines


def _first_words(file: CitedFile, part: Part) -> str:
    """Return what a part is known by: its symbol's name, or how its first line of code begins."""
    if part.symbol:
        return part.symbol.name
    lines = (line.decode("utf-8", "replace") for line in file.lines[part.first - 1 : part.last])
    texts = (line.strip().removeprefix("r").strip("\"'") for line in lines)  # a docstring's text
    code = next((text for text in texts if text and not text.startswith("#")), "")
    return code if len(code) <= _WORDS else f"{code[: _WORDS - 1]}…"
