"""The structure of a cited file: its symbols, its statements, which names stand where.

Computed from a Python file's syntax tree once and kept by blob id. A file that is not Python (or
is newer Python than this interpreter parses) has only lines.
"""

import ast
import io
import keyword
import tokenize
import warnings

import msgspec

FUNCTION, CLASS = "function", "class"
# Names that stand everywhere anchor nothing.
_NO_ANCHOR = frozenset({*keyword.kwlist, "self", "cls"})


class Symbol(msgspec.Struct, frozen=True, array_like=True):
    """A function or class, from the `first` line of its comment to its `last`.

    `top` is the line of its first decorator, `line` that of its `def` or `class`; `parent` is the
    index of the enclosing symbol, or -1.
    """

    name: str
    kind: str
    first: int
    top: int
    line: int
    last: int
    parent: int


class Outline(msgspec.Struct, frozen=True, array_like=True):
    """What the citation rules ask of a file. `names` has the names of each line, spaced,
    from line 1 on: one string a line is read back from the cache far faster than a list.
    """

    lines: int
    python: bool
    symbols: list[Symbol]
    starts: list[int]
    ends: list[int]
    statements: list[tuple[int, int]]
    names: list[str]

    def names_between(self, first: int, last: int) -> set[str]:
        """Return the identifiers that stand as whole name tokens in the lines, inclusive."""
        return set(" ".join(self.names[first - 1 : last]).split())

    def innermost(self, first: int, last: int) -> Symbol | None:
        """Return the smallest symbol that holds all the lines; None is the module."""
        best: Symbol | None = None
        for symbol in self.symbols:
            holds = symbol.first <= first and last <= symbol.last
            if holds and (best is None or symbol.last - symbol.first < best.last - best.first):
                best = symbol
        return best


def is_anchor(name: str) -> bool:
    """Tell whether an identifier is telling enough to anchor a citation."""
    return len(name) > 1 and name not in _NO_ANCHOR


def split_lines(data: bytes) -> list[bytes]:
    """Split a file into its lines as git and an editor count them."""
    lines = data.split(b"\n")
    return lines[:-1] if lines[-1] == b"" else lines


def of_file(path: str, data: bytes) -> Outline:
    """Return the outline of a file's bytes; never raises."""
    lines = split_lines(data)
    plain = Outline(len(lines), False, [], [], [], [], [])
    if not path.endswith((".py", ".pyi")):
        return plain
    try:
        text = data.decode("utf-8")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text)
        names, comments = _tokens(text, len(lines))
    except (SyntaxError, ValueError, RecursionError, MemoryError, tokenize.TokenError):
        return plain
    reading = _Reading(comments)
    reading.body(tree, "", -1)
    return Outline(
        len(lines),
        True,
        reading.symbols,
        sorted(reading.starts),
        sorted(reading.ends),
        sorted(set(reading.statements)),
        names,
    )


def _tokens(text: str, count: int) -> tuple[list[str], set[int]]:
    """Return each line's anchoring names, and the rows that hold a comment and nothing else."""
    names: list[list[str]] = [[] for _ in range(count)]
    comments: set[int] = set()
    # From 3.12 on the tokenizer looks inside f-strings; a name there is skipped, so that a lock
    # made under one Python agrees with another's check.
    inside_fstring = 0
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        kind, row = tokenize.tok_name[token.type], token.start[0]
        if kind in ("FSTRING_START", "TSTRING_START"):
            inside_fstring += 1
        elif kind in ("FSTRING_END", "TSTRING_END"):
            inside_fstring -= 1
        elif kind == "COMMENT" and not token.line[: token.start[1]].strip():
            comments.add(row)
        elif kind == "NAME" and not inside_fstring and is_anchor(token.string):
            names[row - 1].append(token.string)
    return [" ".join(dict.fromkeys(row)) for row in names], comments


class _Reading:
    def __init__(self, comments: set[int]) -> None:
        self.comments = comments
        self.symbols: list[Symbol] = []
        self.starts: set[int] = set()
        self.ends: set[int] = set()
        self.statements: list[tuple[int, int]] = []

    def body(self, node: ast.AST, prefix: str, parent: int) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.stmt):
                self._statement(child, prefix, parent)
            elif isinstance(child, ast.excepthandler | ast.match_case):
                self.body(child, prefix, parent)

    def _statement(self, node: ast.stmt, prefix: str, parent: int) -> None:
        first, last = node.lineno, node.end_lineno or node.lineno
        decorators = getattr(node, "decorator_list", [])
        top = min([first, *(decorator.lineno for decorator in decorators)])
        comment = top
        while comment - 1 in self.comments:
            comment -= 1
        self.starts |= {first, top, comment}
        self.ends.add(last)
        self.statements.append((top, last))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            kind = CLASS if isinstance(node, ast.ClassDef) else FUNCTION
            name = f"{prefix}{node.name}"
            self.symbols.append(Symbol(name, kind, comment, top, first, last, parent))
            self.body(node, f"{name}.", len(self.symbols) - 1)
        else:
            self.body(node, prefix, parent)
