"""Reads the structure of a Python file from its syntax tree."""

import ast
import re
import warnings
from collections.abc import Iterator

from notelab.cited.structure import CLASS, FUNCTION, Structure, Symbol
from notelab.lines import places_of_rows

Place = tuple[int, int, int, int]
_Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
_Inner = (ast.stmt, ast.excepthandler, ast.match_case)
_LONE_RETURN = re.compile(r"\r(?!\n)")


def structure(text: str, lines: list[str]) -> Structure:
    """Return the structure of Python text, whose lines are `lines`.

    Raises:
        SyntaxError: this interpreter can't parse the text.
        ValueError, LookupError, RecursionError, MemoryError: the text can't be parsed or walked,
            because it holds a NUL or is nested too deeply.
    """
    tree = _parse(text)
    reader = _Reader(lines, _comments(tree, lines))
    reader.body(tree, "", -1)
    return reader.structure


def parse_or_none(text: str) -> ast.Module | None:
    """Return the tree of Python text, or None if this interpreter can't parse it."""
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
    """Convert a tree's rows and columns to those of lines that end in a line feed."""
    for node in ast.walk(tree):
        for row, column in (("lineno", "col_offset"), ("end_lineno", "end_col_offset")):
            if at := getattr(node, row, None):
                line, before = places[at - 1]
                setattr(node, row, line)
                setattr(node, column, getattr(node, column) + before)


def _comments(tree: ast.AST, lines: list[str]) -> set[int]:
    """Return the rows that hold only a comment; rows inside a string are no comments."""
    rows = {row for row, line in enumerate(lines, start=1) if line.lstrip().startswith("#")}
    for node in _walk_several_lines(tree) if rows else ():
        if isinstance(node, ast.JoinedStr) or (
            isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)
        ):
            rows.difference_update(range(node.lineno + 1, (node.end_lineno or node.lineno) + 1))
    return rows


class _Reader:
    def __init__(self, lines: list[str], comments: set[int]) -> None:
        self.structure = Structure(lines, comments)

    def body(self, node: ast.AST, prefix: str, parent: int) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.stmt):
                self._statement(child, prefix, parent)
            elif isinstance(child, _Inner):
                self.body(child, prefix, parent)
            elif _has_several_lines(child):
                self._expression(child)

    def _statement(self, node: ast.stmt, prefix: str, parent: int) -> None:
        top, first, last = _top(node), node.lineno, _last([node])
        comment = self.structure.add_statement(top, first, last)
        self._parts(node, comment)
        if isinstance(node, _Definition):
            kind = CLASS if isinstance(node, ast.ClassDef) else FUNCTION
            name = f"{prefix}{node.name}"
            self.structure.symbols.append(Symbol(name, kind, comment, top, first, last, parent))
            self.body(node, f"{name}.", len(self.structure.symbols) - 1)
        else:
            self.body(node, prefix, parent)

    def _parts(self, node: ast.stmt, comment: int) -> None:
        """Add a statement's decorators, header and branches, or the paragraphs of a docstring."""
        inner = getattr(node, "body", None)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            if isinstance(node.value.value, str) and node.end_lineno != node.lineno:
                self.structure.add_paragraphs(node.lineno, _last([node]))
        elif isinstance(node, ast.Match):
            self._branches(
                [(case.pattern.lineno, self._header_end(case), case.body) for case in node.cases]
            )
        elif isinstance(inner, list) and inner:
            end = self._header_end(node)
            self._header(node, end, inner, comment)
            self._branches([(node.lineno, end, inner), *self._other_branches(node, inner)])
        elif isinstance(node, ast.ImportFrom):
            self.structure.add_elements(_place(name) for name in node.names)

    def _header(self, node: ast.stmt, end: int, inner: list[ast.stmt], comment: int) -> None:
        if end >= _top(inner[0]):
            return
        decorators = getattr(node, "decorator_list", [])
        decorator_rows = [(each.lineno, each.end_lineno or each.lineno) for each in decorators]
        top = _top(node)
        parts = [(comment, top - 1)] if comment < top else []
        parts += [*decorator_rows, (node.lineno, end)]
        if decorator_rows:
            parts.append((_top(inner[0]), _last(inner)))
        self.structure.add_group(parts)

    def _header_end(self, node: ast.stmt | ast.excepthandler | ast.match_case) -> int:
        """Return the row of the colon that ends the header of a statement, handler or case."""
        places = [] if isinstance(node, ast.match_case) else [(node.lineno, node.col_offset)]
        header = [*ast.iter_child_nodes(node)]
        for part in header:
            if isinstance(part, ast.arguments | ast.withitem):  # these nodes have no position
                header += ast.iter_child_nodes(part)
            elif not isinstance(part, _Inner) and part not in getattr(node, "decorator_list", []):
                places.append((part.end_lineno, part.end_col_offset))  # type: ignore[attr-defined]
        return self._colon(*max(places))

    def _colon(self, row: int, offset: int) -> int:
        """Return the row of the first colon after a place behind which no expression follows."""
        rows = range(row, len(self.structure.lines) + 1)
        starts = (offset if candidate == row else 0 for candidate in rows)
        for candidate, start in zip(rows, starts, strict=True):
            if ":" in self.structure.split_line(candidate, start)[1].partition("#")[0]:
                return candidate
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
        """Return the row of the `else` or `finally` between two rows, or 0 (for an `elif`)."""
        keyword = re.compile(rf"\s*{word}\b")
        rows = range(before, after, -1)
        return next((row for row in rows if keyword.match(self.structure.lines[row - 1])), 0)

    def _branches(self, branches: list[tuple[int, int, list[ast.stmt]]]) -> None:
        if len(branches) < 2:
            return
        self.structure.add_group((row, _last(inner)) for row, _, inner in branches)
        for row, end, inner in branches:
            if end < _top(inner[0]):
                self.structure.add_group(
                    [(row, end), *((_top(statement), _last([statement])) for statement in inner)]
                )

    def _expression(self, node: ast.AST) -> None:
        for element in _walk_several_lines(node):
            if isinstance(element, ast.Call):
                inside: list[ast.AST] = [*element.args, *element.keywords]
                self.structure.add_elements(sorted(_place(part) for part in inside))
            elif isinstance(element, ast.Dict):
                self.structure.add_elements(self._entries(element))
            elif isinstance(element, ast.List | ast.Tuple | ast.Set):
                self.structure.add_elements(_place(part) for part in element.elts)
            elif isinstance(element, ast.arguments):
                self.structure.add_elements(sorted(self._parameters(element)))

    def _entries(self, node: ast.Dict) -> Iterator[Place]:
        for key, value in zip(node.keys, node.values, strict=True):
            yield (*_place(key or value)[:2], *_place(value)[2:])

    def _parameters(self, node: ast.arguments) -> Iterator[Place]:
        plain = [*node.posonlyargs, *node.args]
        missing = [None] * (len(plain) - len(node.defaults))
        pairs: list[tuple[ast.arg, ast.expr | None]] = []
        pairs += zip(plain, [*missing, *node.defaults], strict=True)
        pairs += zip(node.kwonlyargs, node.kw_defaults, strict=True)
        pairs += [(argument, None) for argument in (node.vararg, node.kwarg) if argument]
        for argument, default in pairs:
            yield (*_place(argument)[:2], *_place(default or argument)[2:])


def _place(node: ast.AST) -> Place:
    assert isinstance(node, ast.expr | ast.keyword | ast.arg | ast.alias)
    end_row, end_column = node.end_lineno or node.lineno, node.end_col_offset or 0
    return node.lineno, node.col_offset, end_row, end_column


def _walk_several_lines(node: ast.AST) -> Iterator[ast.AST]:
    """Yield a node and its descendants, as `ast.walk` does, but only those of several lines."""
    waiting = [node]
    for current in waiting:
        yield current
        waiting += filter(_has_several_lines, ast.iter_child_nodes(current))


def _has_several_lines(node: ast.AST) -> bool:
    """Tell whether an element of a node may have whole lines to itself.

    Elements of a node on one line don't, except the only element of a tuple without brackets.
    """
    row = getattr(node, "lineno", 0)
    return not row or node.end_lineno != row or isinstance(node, ast.Tuple)  # type: ignore[attr-defined]


def _top(node: ast.stmt) -> int:
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min([node.lineno, *(decorator.lineno for decorator in decorators)])


def _last(body: list[ast.stmt]) -> int:
    return body[-1].end_lineno or body[-1].lineno
