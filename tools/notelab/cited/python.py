"""The structure of a Python file, out of its syntax tree and its tokens."""

import ast
import io
import tokenize
import warnings
from collections.abc import Iterator

import msgspec

from notelab.cited.structure import CLASS, FUNCTION, Structure, Symbol

Place = tuple[int, int, int, int]
_Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
_QUIET = {"COMMENT", "NL", "INDENT", "DEDENT", "ENCODING", "ENDMARKER"}


class _Logical(msgspec.Struct):
    """`ends` gives the last row of each logical line by its first; `words` the word it opens with.

    `comments` are the rows that hold a comment and nothing else.
    """

    ends: dict[int, int] = {}
    words: dict[int, str] = {}
    comments: set[int] = set()


def structure(text: str, lines: list[str]) -> Structure | None:
    """Return the structure of Python text, or None for what this interpreter can't parse."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text)
        logical = _logical(text)
        reading = _Reading(logical, lines)
        reading.body(tree, "", -1)
    except (SyntaxError, ValueError, LookupError, RecursionError, MemoryError, tokenize.TokenError):
        return None
    return reading.made


def _logical(text: str) -> _Logical:
    found = _Logical()
    opened = 0
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        kind, row = tokenize.tok_name[token.type], token.start[0]
        if kind == "COMMENT" and not token.line[: token.start[1]].strip():
            found.comments.add(row)
        elif kind == "NEWLINE":
            found.ends[opened] = row
            opened = 0
        elif kind not in _QUIET and not opened:
            opened = row
            found.words[row] = token.string
    return found


class _Reading:
    def __init__(self, logical: _Logical, lines: list[str]) -> None:
        self.logical = logical
        self.made = Structure(lines, logical.comments)
        # ast counts columns in bytes of UTF-8, the lines are text.
        self.encoded = [None if line.isascii() else line.encode() for line in lines]

    def body(self, node: ast.AST, prefix: str, parent: int) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.stmt):
                self._statement(child, prefix, parent)
            elif isinstance(child, ast.excepthandler | ast.match_case):
                self.body(child, prefix, parent)
            else:
                self._expression(child)

    def _statement(self, node: ast.stmt, prefix: str, parent: int) -> None:
        first, last = node.lineno, node.end_lineno or node.lineno
        decorators = getattr(node, "decorator_list", [])
        top = min([first, *(decorator.lineno for decorator in decorators)])
        comment = self.made.statement(top, first, last)
        self._parts(node, comment)
        if isinstance(node, _Definition):
            kind = CLASS if isinstance(node, ast.ClassDef) else FUNCTION
            name = f"{prefix}{node.name}"
            self.made.symbols.append(Symbol(name, kind, comment, top, first, last, parent))
            self.body(node, f"{name}.", len(self.made.symbols) - 1)
        else:
            self.body(node, prefix, parent)

    def _parts(self, node: ast.stmt, comment: int) -> None:
        """Take a statement's decorators, header, branches, or the paragraphs of a docstring."""
        inner = getattr(node, "body", None)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            if isinstance(node.value.value, str) and node.end_lineno != node.lineno:
                self.made.paragraphs(node.lineno, node.end_lineno or node.lineno)
        elif isinstance(node, ast.Match):
            self._branches([(case.pattern.lineno, case.body) for case in node.cases])
        elif isinstance(inner, list) and inner:
            self._header(node, inner, comment)
            self._branches([(node.lineno, inner), *self._other_branches(node)])
        elif isinstance(node, ast.ImportFrom):
            self.made.elements(self._place(name) for name in node.names)

    def _header(self, node: ast.stmt, inner: list[ast.stmt], comment: int) -> None:
        end = self.logical.ends.get(node.lineno, node.lineno)
        if end >= _top(inner[0]):
            return
        decorators = getattr(node, "decorator_list", [])
        above = [(one.lineno, one.end_lineno or one.lineno) for one in decorators]
        top = min([node.lineno, *(first for first, _ in above)])
        parts = [(comment, top - 1)] if comment < top else []
        parts += [*above, (node.lineno, end)]
        if above:
            parts.append((_top(inner[0]), _last(inner)))
        self.made.group(parts)

    def _other_branches(self, node: ast.stmt) -> Iterator[tuple[int, list[ast.stmt]]]:
        for handler in getattr(node, "handlers", []):
            yield handler.lineno, handler.body
        for word, field in (("else", "orelse"), ("finally", "finalbody")):
            inner = getattr(node, field, [])
            if inner and (row := self._opens(word, _top(inner[0]))):
                yield row, inner

    def _opens(self, word: str, before: int) -> int:
        """Return the row of the `else` or `finally` that opens what begins at a row; 0 for none."""
        row = before
        while row and row not in self.logical.words:
            row -= 1
        if self.logical.words.get(row) != word and row == before:
            row -= 1
            while row and row not in self.logical.words:
                row -= 1
        return row if self.logical.words.get(row) == word else 0

    def _branches(self, branches: list[tuple[int, list[ast.stmt]]]) -> None:
        if len(branches) < 2:
            return
        self.made.group((row, _last(inner)) for row, inner in branches)
        for row, inner in branches:
            end = self.logical.ends.get(row, row)
            if end < _top(inner[0]):
                self.made.group([(row, end), *((_top(one), _last([one])) for one in inner)])

    def _expression(self, node: ast.AST) -> None:
        for one in ast.walk(node):
            if isinstance(one, ast.Call):
                inside: list[ast.AST] = [*one.args, *one.keywords]
                self.made.elements(sorted(self._place(each) for each in inside))
            elif isinstance(one, ast.Dict):
                self.made.elements(self._entries(one))
            elif isinstance(one, ast.List | ast.Tuple | ast.Set):
                self.made.elements(self._place(each) for each in one.elts)
            elif isinstance(one, ast.arguments):
                self.made.elements(sorted(self._parameters(one)))

    def _entries(self, node: ast.Dict) -> Iterator[Place]:
        for key, value in zip(node.keys, node.values, strict=True):
            yield (*self._place(key or value)[:2], *self._place(value)[2:])

    def _parameters(self, node: ast.arguments) -> Iterator[Place]:
        plain = [*node.posonlyargs, *node.args]
        missing = [None] * (len(plain) - len(node.defaults))
        pairs: list[tuple[ast.arg, ast.expr | None]] = []
        pairs += zip(plain, [*missing, *node.defaults], strict=True)
        pairs += zip(node.kwonlyargs, node.kw_defaults, strict=True)
        pairs += [(one, None) for one in (node.vararg, node.kwarg) if one]
        for one, default in pairs:
            yield (*self._place(one)[:2], *self._place(default or one)[2:])

    def _place(self, node: ast.AST) -> Place:
        assert isinstance(node, ast.expr | ast.keyword | ast.arg | ast.alias)
        row, end_row = node.lineno, node.end_lineno or node.lineno
        column = self._characters(row, node.col_offset)
        return row, column, end_row, self._characters(end_row, node.end_col_offset or 0)

    def _characters(self, row: int, offset: int) -> int:
        data = self.encoded[row - 1]
        return offset if data is None else len(data[:offset].decode("utf-8", "ignore"))


def _top(node: ast.stmt) -> int:
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min([node.lineno, *(one.lineno for one in decorators)])


def _last(body: list[ast.stmt]) -> int:
    return body[-1].end_lineno or body[-1].lineno
