"""Reads the structure of C, C++, CUDA and Rust files from tree-sitter's syntax trees.

A tree-sitter grammar continues after text that it can't parse (a macro that is half a statement,
for example). A file therefore always has a structure, and only the text that was skipped has none.
"""

from collections.abc import Iterator
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

from notelab.cited.structure import CLASS, FUNCTION, Rows, Structure, Symbol

if TYPE_CHECKING:
    from tree_sitter import Language, Node

_MODULES = {
    **dict.fromkeys(("c",), "tree_sitter_c"),
    **dict.fromkeys(("h", "hh", "hpp", "hxx", "cc", "cpp", "cxx", "inl", "ipp"), "tree_sitter_cpp"),
    **dict.fromkeys(("cu", "cuh"), "tree_sitter_cuda"),
    **dict.fromkeys(("rs",), "tree_sitter_rust"),
}
_LARGEST = 2_000_000  # bytes; larger files are generated code, which takes seconds to parse
_COMMENTS = {"comment", "line_comment", "block_comment"}
# The children of these nodes are statements.
_BODIES = {
    "ERROR", "block", "case_statement", "compound_statement", "declaration_list",
    "field_declaration_list", "match_block", "preproc_elif", "preproc_else", "preproc_if",
    "preproc_ifdef", "source_file", "translation_unit",
}  # fmt: skip
# The children of these nodes are entries or arguments.
_LISTS = {
    "argument_list", "arguments", "array_expression", "enum_variant_list", "enumerator_list",
    "field_initializer_list", "initializer_list", "parameter_list",
    "parameters", "template_argument_list", "template_parameter_list", "use_list",
}  # fmt: skip
_SYMBOLS = {
    "function_definition": FUNCTION, "function_item": FUNCTION, "class_specifier": CLASS,
    "struct_specifier": CLASS, "union_specifier": CLASS, "struct_item": CLASS, "enum_item": CLASS,
    "impl_item": CLASS, "trait_item": CLASS, "union_item": CLASS,
}  # fmt: skip
# These nodes may contain a symbol: a template, a typedef of a struct, a variable of that type.
_WRAPPERS = {"declaration", "field_declaration", "template_declaration", "type_definition"}
_BRANCHES = {"catch_clause", "else_clause", "preproc_elif", "preproc_else"}


def knows(path: str) -> bool:
    """Tell whether the ending of a path belongs to a language that this module reads."""
    return path.rpartition(".")[2] in _MODULES


def structure(path: str, data: bytes, lines: list[str]) -> Structure | None:
    """Return the structure of a file, or None if its grammar isn't installed or fails on it."""
    language = _language(_MODULES[path.rpartition(".")[2]])
    if language is None or len(data) > _LARGEST:
        return None
    from tree_sitter import Parser

    root = Parser(language).parse(data).root_node
    reader = _Reader(lines, _comments(root, lines))
    try:
        reader.visit(root, "", -1)
    except RecursionError:
        return None
    return reader.structure


def _comments(root: "Node", lines: list[str]) -> set[int]:
    """Return the rows that hold a comment and nothing before it.

    The tree is walked by hand, because a tree-sitter query takes quadratic time over `((((…`.
    """
    rows: set[int] = set()
    waiting = [root]
    while waiting:
        node = waiting.pop()
        first, last = _rows(node)
        if node.type not in _COMMENTS:
            waiting += node.named_children
        elif not lines[first - 1][: node.start_point.column].strip():
            rows |= set(range(first, last + 1))
    return rows


@cache
def _language(module: str) -> "Language | None":
    try:
        from tree_sitter import Language

        return Language(import_module(module).language())
    except (ImportError, ValueError):  # not installed, or its ABI is no longer supported
        return None


class _Reader:
    def __init__(self, lines: list[str], comments: set[int]) -> None:
        self.structure = Structure(lines, comments)

    def visit(self, node: "Node", prefix: str, parent: int) -> None:
        """Add everything that a node contains to the structure."""
        if node.type in _LISTS:
            self.structure.add_elements(_place(child) for child in _children(node))
        if node.type not in _BODIES:
            if node.type not in _SYMBOLS:
                self._header(node, _rows(node)[0])
            for child in node.named_children:
                self.visit(child, prefix, parent)
                if child.type in _BRANCHES:
                    self._branch(child)
            return
        attributes = 0
        for child in _children(node):
            if child.type == "attribute_item":
                attributes = attributes or _rows(child)[0]
            elif child.type in _BRANCHES:
                self._branch(child)
                self.visit(child, prefix, parent)
            else:
                self._statement(child, attributes or _rows(child)[0], prefix, parent)
                attributes = 0

    def _statement(self, node: "Node", top: int, prefix: str, parent: int) -> None:
        first, last = _rows(node)
        comment = self.structure.add_statement(top, first, last)
        symbol = _symbol(node)
        if symbol is None:
            self.visit(node, prefix, parent)
            return
        line = _rows(symbol)[0]
        self.structure.starts.add(line)
        self._header(symbol, top)
        name = f"{prefix}{_name(symbol)}"
        self.structure.symbols.append(
            Symbol(name, _SYMBOLS[symbol.type], comment, top, line, last, parent)
        )
        self.visit(node, f"{name}.", len(self.structure.symbols) - 1)

    def _header(self, node: "Node", top: int) -> None:
        """Add what stands between a comment and a body: a signature or a condition."""
        body = node.child_by_field_name("body") or node.child_by_field_name("consequence")
        before = body.prev_named_sibling if body else None
        if body is None or before is None or body.type not in _BODIES:
            return
        line, end, opens = _rows(node)[0], _rows(before)[1], _rows(body)[0]
        comment = self.structure.comment_above(top)
        parts = [(comment, top - 1)] if comment < top else []
        parts += [(top, line - 1)] if top < line else []
        parts += [(line, end), (opens, opens)] if opens > end else [(line, opens)]
        if _rows(body)[1] > opens:
            self.structure.add_group(parts)

    def _branch(self, node: "Node") -> None:
        """Add an `else` or `catch`: its first line, alone, with some or with all its statements."""
        first, last = _rows(node)
        inner = node.named_children[-1] if node.named_children else node
        if inner.type == "if_statement":  # in a chain, this branch alone or with all later ones
            consequence = inner.child_by_field_name("consequence")
            self.structure.add_group([(first, _rows(consequence)[1])] if consequence else [])
            inner = consequence or inner
        self.structure.add_group([(first, last)])
        body = inner if inner.type in _BODIES else node
        rows = [_rows(child) for child in _children(body) if child.type not in _BRANCHES]
        self.structure.add_group([(first, first), *(row for row in rows if row[0] > first)])


def _place(node: "Node") -> tuple[int, int, int, int]:
    (row, column), (end_row, end_column) = node.start_point, node.end_point
    return row + 1, column, end_row + 1, end_column


def _rows(node: "Node") -> Rows:
    """Return a node's lines; a node that ends with a newline doesn't reach into the next line."""
    first, last = node.start_point.row + 1, node.end_point.row + 1
    return first, last - 1 if last > first and node.end_point.column == 0 else last


def _children(node: "Node") -> "Iterator[Node]":
    """Yield the children of a body or list, except comments and the condition of a directive."""
    condition = node.child_by_field_name("condition") or node.child_by_field_name("name")
    value = node.child_by_field_name("value") if node.type == "case_statement" else None
    for child in node.named_children:
        if child.type not in _COMMENTS and child not in (condition, value):
            yield child


def _symbol(node: "Node") -> "Node | None":
    """Return the node of the function or class that a statement defines."""
    if node.type in _SYMBOLS:
        return node if node.child_by_field_name("body") else None
    if node.type in _WRAPPERS:
        for child in node.named_children:
            if child.type in _SYMBOLS or child.type == "template_declaration":
                return _symbol(child)
    return None


def _name(node: "Node") -> str:
    """Return a symbol's name; qualified names are dotted (`Channel::send` is `Channel.send`)."""
    named = node.child_by_field_name("name") or node.child_by_field_name("type")
    if node.type == "function_definition" or named is None:
        named = node.child_by_field_name("declarator")
        while named and (inner := named.child_by_field_name("declarator")):
            named = inner
    if named is None and node.parent is not None:  # typedef struct { … } Name;
        named = node.parent.child_by_field_name("declarator")
    text = (named.text or b"").decode("utf-8", "replace") if named else ""
    return "".join(text.partition("<")[0].split()).replace("::", ".") or "(unnamed)"
