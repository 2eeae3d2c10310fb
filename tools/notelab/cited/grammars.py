"""The structure of C, C++, CUDA and Rust files, out of tree-sitter's syntax trees.

A tree-sitter grammar reads on after what it can't parse (a macro that is half a statement, say), so
a file always has a structure; only what stands in the unread stretch has none.
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
_LARGEST = 2_000_000  # bytes; generated code beyond it is cited by nobody, and takes seconds
_COMMENTS = {"comment", "line_comment", "block_comment"}
# Their children are statements.
_BODIES = {
    "ERROR", "block", "case_statement", "compound_statement", "declaration_list",
    "field_declaration_list", "match_block", "preproc_elif", "preproc_else", "preproc_if",
    "preproc_ifdef", "source_file", "translation_unit",
}  # fmt: skip
# Their children are entries and arguments.
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
# A symbol may stand inside of these: a template, a typedef of a struct, a variable of its type.
_WRAPPERS = {"declaration", "field_declaration", "template_declaration", "type_definition"}
_BRANCHES = {"catch_clause", "else_clause", "preproc_elif", "preproc_else"}


def knows(path: str) -> bool:
    """Tell whether a path's ending is that of a language read here."""
    return path.rpartition(".")[2] in _MODULES


def structure(path: str, data: bytes, lines: list[str]) -> Structure | None:
    """Return the structure of a file; None where its grammar isn't installed or can't cope."""
    language = _language(_MODULES[path.rpartition(".")[2]])
    if language is None or len(data) > _LARGEST:
        return None
    from tree_sitter import Parser

    root = Parser(language).parse(data).root_node
    reading = _Reading(lines, _comments(root, lines))
    try:
        reading.visit(root, "", -1)
    except RecursionError:
        return None
    return reading.made


def _comments(root: "Node", lines: list[str]) -> set[int]:
    """Return the rows that hold a comment and nothing before it.

    Not by a tree-sitter query: one takes quadratic time over `((((…`.
    """
    rows: set[int] = set()
    left = [root]
    while left:
        node = left.pop()
        first, last = _rows(node)
        if node.type not in _COMMENTS:
            left += node.named_children
        elif not lines[first - 1][: node.start_point.column].strip():
            rows |= set(range(first, last + 1))
    return rows


@cache
def _language(module: str) -> "Language | None":
    try:
        from tree_sitter import Language

        return Language(import_module(module).language())
    except (ImportError, ValueError):  # not installed, or of an ABI that this tree-sitter left
        return None


class _Reading:
    def __init__(self, lines: list[str], comments: set[int]) -> None:
        self.made = Structure(lines, comments)

    def visit(self, node: "Node", prefix: str, parent: int) -> None:
        """Take all that stands in a node."""
        if node.type in _LISTS:
            self.made.elements(_place(child) for child in _inside(node))
        if node.type not in _BODIES:
            if node.type not in _SYMBOLS:
                self._header(node, _rows(node)[0])
            for child in node.named_children:
                self.visit(child, prefix, parent)
                if child.type in _BRANCHES:
                    self._branch(child)
            return
        attributes = 0
        for child in _inside(node):
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
        comment = self.made.statement(top, first, last)
        symbol = _symbol(node)
        if symbol is None:
            self.visit(node, prefix, parent)
            return
        line = _rows(symbol)[0]
        self.made.starts.add(line)
        self._header(symbol, top)
        name = f"{prefix}{_name(symbol)}"
        self.made.symbols.append(
            Symbol(name, _SYMBOLS[symbol.type], comment, top, line, last, parent)
        )
        self.visit(node, f"{name}.", len(self.made.symbols) - 1)

    def _header(self, node: "Node", top: int) -> None:
        """Take what stands before the body, below its comment: a signature, or a condition."""
        body = node.child_by_field_name("body") or node.child_by_field_name("consequence")
        before = body.prev_named_sibling if body else None
        if body is None or before is None or body.type not in _BODIES:
            return
        line, end, opens = _rows(node)[0], _rows(before)[1], _rows(body)[0]
        comment = self.made.comment_above(top)
        parts = [(comment, top - 1)] if comment < top else []
        parts += [(top, line - 1)] if top < line else []
        parts += [(line, end), (opens, opens)] if opens > end else [(line, opens)]
        if _rows(body)[1] > opens:
            self.made.group(parts)

    def _branch(self, node: "Node") -> None:
        """Take an `else` or `catch`: its line, with the first of its statements or with all."""
        first, last = _rows(node)
        inner = node.named_children[-1] if node.named_children else node
        if inner.type == "if_statement":  # of a chain, the branch alone and all that follow
            consequence = inner.child_by_field_name("consequence")
            self.made.group([(first, _rows(consequence)[1])] if consequence else [])
            inner = consequence or inner
        self.made.group([(first, last)])
        body = inner if inner.type in _BODIES else node
        rows = [_rows(child) for child in _inside(body) if child.type not in _BRANCHES]
        self.made.group([(first, first), *(row for row in rows if row[0] > first)])


def _place(node: "Node") -> tuple[int, int, int, int]:
    (row, column), (end_row, end_column) = node.start_point, node.end_point
    return row + 1, column, end_row + 1, end_column


def _rows(node: "Node") -> Rows:
    """Return a node's lines; one that ends with its newline doesn't reach into the next line."""
    first, last = node.start_point.row + 1, node.end_point.row + 1
    return first, last - 1 if last > first and node.end_point.column == 0 else last


def _inside(node: "Node") -> "Iterator[Node]":
    """Yield what a body or list holds, without comments and what a directive asks."""
    asked = node.child_by_field_name("condition") or node.child_by_field_name("name")
    value = node.child_by_field_name("value") if node.type == "case_statement" else None
    for child in node.named_children:
        if child.type not in _COMMENTS and child not in (asked, value):
            yield child


def _symbol(node: "Node") -> "Node | None":
    """Return the function or class that a statement defines."""
    if node.type in _SYMBOLS:
        return node if node.child_by_field_name("body") else None
    if node.type in _WRAPPERS:
        for child in node.named_children:
            if child.type in _SYMBOLS or child.type == "template_declaration":
                return _symbol(child)
    return None


def _name(node: "Node") -> str:
    """Return a symbol's name, dotted where it is qualified: `Channel::send` is `Channel.send`."""
    named = node.child_by_field_name("name") or node.child_by_field_name("type")
    if node.type == "function_definition" or named is None:
        named = node.child_by_field_name("declarator")
        while named and (inner := named.child_by_field_name("declarator")):
            named = inner
    if named is None and node.parent is not None:  # typedef struct { … } Name;
        named = node.parent.child_by_field_name("declarator")
    text = (named.text or b"").decode("utf-8", "replace") if named else ""
    return "".join(text.partition("<")[0].split()).replace("::", ".") or "(unnamed)"
