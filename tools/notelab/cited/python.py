"""The structure of a Python file, out of its syntax tree."""

import ast
import contextlib
import re
import tokenize
import warnings
from collections.abc import Iterator

from notelab.cited.structure import CLASS, FUNCTION, Structure, Symbol
from notelab.lines import places_of_rows

Place = tuple[int, int, int, int]
_Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
_Inner = (ast.stmt, ast.excepthandler, ast.match_case)
_LONE_RETURN = re.compile(r"\r(?!\n)")


def structure(text: str, lines: list[str]) -> Structure:
    """Return the structure of Python text; `lines` are its lines.

    Raises:
        SyntaxError: this interpreter can't parse the text.
        ValueError, LookupError, RecursionError, MemoryError: so it is with the text's structure.
    """
    tree = _parse(text)
    reading = _Reading(lines, _comments(tree, lines))
    reading.body(tree, "", -1)
    return reading.made


def parsed(text: str) -> ast.Module | None:
    """Return the tree of Python text, or None for what this interpreter can't parse."""
    try:
        return _parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _parse(text: str) -> ast.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tree = ast.parse(text)
    if _LONE_RETURN.search(text):
        _renumber(tree, places_of_rows(text))
    return tree


def _renumber(tree: ast.Module, places: list[tuple[int, int]]) -> None:
    """Convert the rows and columns of a tree to those of lines that end in a line feed."""
    for node in ast.walk(tree):
        for row, column in (("lineno", "col_offset"), ("end_lineno", "end_col_offset")):
            if at := getattr(node, row, None):
                line, before = places[at - 1]
                setattr(node, row, line)
                setattr(node, column, getattr(node, column) + before)


def _comments(tree: ast.AST, lines: list[str]) -> set[int]:
    """Return the rows that hold a comment and nothing else: not those of a string."""
    found = {row for row, line in enumerate(lines, start=1) if line.lstrip().startswith("#")}
    between: set[int] = set()
    for node in _spreading(tree) if found else ():
        if isinstance(node, ast.JoinedStr) or (
            isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)
        ):
            last = node.end_lineno or node.lineno
            if inside := found.intersection(range(node.lineno + 1, last + 1)):
                first = lines[node.lineno - 1].encode()[node.col_offset :]
                string = [first.decode("utf-8", "replace"), *lines[node.lineno : last]]
                between |= _between(string, node.lineno)
                found -= inside - between
    return found


def _between(lines: list[str], first: int) -> set[int]:
    """Return the rows of comments between strings that are written one after another."""
    # To read all of a file so would take longer than all else.
    rows = iter(f"{line}\n" for line in ("(", *lines))
    found = set()
    with contextlib.suppress(tokenize.TokenError, SyntaxError):  # cut out, it ends too early
        for token in tokenize.generate_tokens(lambda: next(rows, "")):
            if token.type == tokenize.COMMENT:
                found.add(token.start[0] + first - 2)
    return found


class _Reading:
    def __init__(self, lines: list[str], comments: set[int]) -> None:
        self.made = Structure(lines, comments)

    def body(self, node: ast.AST, prefix: str, parent: int) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.stmt):
                self._statement(child, prefix, parent)
            elif isinstance(child, _Inner):
                self.body(child, prefix, parent)
            elif _spreads(child):
                self._expression(child)

    def _statement(self, node: ast.stmt, prefix: str, parent: int) -> None:
        top, first, last = _top(node), node.lineno, _last([node])
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
                self.made.paragraphs(node.lineno, _last([node]))
        elif isinstance(node, ast.Match):
            self._branches(
                [(case.pattern.lineno, self._header_end(case), case.body) for case in node.cases]
            )
        elif isinstance(inner, list) and inner:
            end = self._header_end(node)
            self._header(node, end, inner, comment)
            self._branches([(node.lineno, end, inner), *self._other_branches(node, inner)])
        elif isinstance(node, ast.ImportFrom):
            self.made.elements(_place(name) for name in node.names)

    def _header(self, node: ast.stmt, end: int, inner: list[ast.stmt], comment: int) -> None:
        if end >= _top(inner[0]):
            return
        decorators = getattr(node, "decorator_list", [])
        above = [(one.lineno, one.end_lineno or one.lineno) for one in decorators]
        top = _top(node)
        parts = [(comment, top - 1)] if comment < top else []
        parts += [*above, (node.lineno, end)]
        if above:
            parts.append((_top(inner[0]), _last(inner)))
        self.made.group(parts)

    def _header_end(self, node: ast.stmt | ast.excepthandler | ast.match_case) -> int:
        """Return the row of the colon that ends the header of a statement, handler or case."""
        places = [] if isinstance(node, ast.match_case) else [(node.lineno, node.col_offset)]
        header = [*ast.iter_child_nodes(node)]
        for part in header:
            if isinstance(part, ast.arguments | ast.withitem):  # which have no place of their own
                header += ast.iter_child_nodes(part)
            elif not isinstance(part, _Inner) and part not in getattr(node, "decorator_list", []):
                places.append((part.end_lineno, part.end_col_offset))  # type: ignore[attr-defined]
        return self._colon(*max(places))

    def _colon(self, row: int, offset: int) -> int:
        """Return the row of the first colon from a place on, where no expression follows it."""
        rows = range(row, len(self.made.lines) + 1)
        starts = (offset if one == row else 0 for one in rows)
        for one, start in zip(rows, starts, strict=True):
            if ":" in self.made.parted(one, start)[1].partition("#")[0]:
                return one
        return row

    def _other_branches(
        self, node: ast.stmt, inner: list[ast.stmt]
    ) -> Iterator[tuple[int, int, list[ast.stmt]]]:
        for handler in getattr(node, "handlers", []):
            inner = handler.body
            yield handler.lineno, self._header_end(handler), inner
        for word, field in (("else", "orelse"), ("finally", "finalbody")):
            before, inner = inner, getattr(node, field, []) or inner
            if inner is not before and (row := self._opens(word, _last(before), _top(inner[0]))):
                yield row, self._colon(row, 0), inner

    def _opens(self, word: str, after: int, before: int) -> int:
        """Return the row of the `else` or `finally` between two rows; 0 for none (an `elif`)."""
        said = re.compile(rf"\s*{word}\b")
        rows = range(before, after, -1)
        return next((row for row in rows if said.match(self.made.lines[row - 1])), 0)

    def _branches(self, branches: list[tuple[int, int, list[ast.stmt]]]) -> None:
        if len(branches) < 2:
            return
        self.made.group((row, _last(inner)) for row, _, inner in branches)
        for row, end, inner in branches:
            if end < _top(inner[0]):
                self.made.group([(row, end), *((_top(one), _last([one])) for one in inner)])

    def _expression(self, node: ast.AST) -> None:
        for one in _spreading(node):
            if isinstance(one, ast.Call):
                inside: list[ast.AST] = [*one.args, *one.keywords]
                self.made.elements(sorted(_place(each) for each in inside))
            elif isinstance(one, ast.Dict):
                self.made.elements(self._entries(one))
            elif isinstance(one, ast.List | ast.Tuple | ast.Set):
                self.made.elements(_place(each) for each in one.elts)
            elif isinstance(one, ast.arguments):
                self.made.elements(sorted(self._parameters(one)))

    def _entries(self, node: ast.Dict) -> Iterator[Place]:
        for key, value in zip(node.keys, node.values, strict=True):
            yield (*_place(key or value)[:2], *_place(value)[2:])

    def _parameters(self, node: ast.arguments) -> Iterator[Place]:
        plain = [*node.posonlyargs, *node.args]
        missing = [None] * (len(plain) - len(node.defaults))
        pairs: list[tuple[ast.arg, ast.expr | None]] = []
        pairs += zip(plain, [*missing, *node.defaults], strict=True)
        pairs += zip(node.kwonlyargs, node.kw_defaults, strict=True)
        pairs += [(one, None) for one in (node.vararg, node.kwarg) if one]
        for one, default in pairs:
            yield (*_place(one)[:2], *_place(default or one)[2:])


def _place(node: ast.AST) -> Place:
    assert isinstance(node, ast.expr | ast.keyword | ast.arg | ast.alias)
    end_row, end_column = node.end_lineno or node.lineno, node.end_col_offset or 0
    return node.lineno, node.col_offset, end_row, end_column


def _spreading(node: ast.AST) -> Iterator[ast.AST]:
    """Yield a node and those below it that have several lines, as `ast.walk` does all."""
    waiting = [node]
    for one in waiting:
        yield one
        waiting += filter(_spreads, ast.iter_child_nodes(one))


def _spreads(node: ast.AST) -> bool:
    """Tell whether an element of a node may have its lines to itself.

    Of what stands on one line none has, but the only element of a tuple without brackets.
    """
    row = getattr(node, "lineno", 0)
    return not row or node.end_lineno != row or isinstance(node, ast.Tuple)  # type: ignore[attr-defined]


def _top(node: ast.stmt) -> int:
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min([node.lineno, *(one.lineno for one in decorators)])


def _last(body: list[ast.stmt]) -> int:
    return body[-1].end_lineno or body[-1].lineno
