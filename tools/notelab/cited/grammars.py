"""Reads the structure of C, C++, CUDA, Go, Java, JavaScript, Rust and TypeScript files.

The syntax trees are tree-sitter's. A grammar continues after text that it can't parse (a macro that
is half a statement, for example). A file therefore always has a structure, and only the text that
was skipped has none.
"""

import re
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
    **dict.fromkeys(("go",), "tree_sitter_go"),
    **dict.fromkeys(("java",), "tree_sitter_java"),
    **dict.fromkeys(("js", "jsx", "mjs", "cjs"), "tree_sitter_javascript"),
    **dict.fromkeys(("ts", "mts", "cts"), "tree_sitter_typescript:language_typescript"),
    **dict.fromkeys(("tsx",), "tree_sitter_typescript:language_tsx"),
}
_LARGEST = 2_000_000  # bytes; larger files are generated code, which takes seconds to parse
_COMMENTS = {"comment", "line_comment", "block_comment"}
# The children of these nodes are statements.
_BODIES = {
    "ERROR", "annotation_type_body", "block", "case_statement", "class_body", "communication_case",
    "compound_statement", "constructor_body", "declaration_list", "default_case", "enum_body",
    "enum_body_declarations", "expression_case", "expression_switch_statement",
    "field_declaration_list", "interface_body", "interface_type", "match_block", "preproc_elif",
    "preproc_else", "preproc_if", "preproc_ifdef", "program", "select_statement", "source_file",
    "statement_block", "switch_block", "switch_block_statement_group", "switch_body", "switch_case",
    "switch_default", "translation_unit", "type_case", "type_switch_statement",
}  # fmt: skip
# The children of these nodes are entries or arguments.
_LISTS = {
    "argument_list", "arguments", "array", "array_expression", "array_initializer",
    "array_pattern", "const_declaration", "enum_variant_list", "enumerator_list", "export_clause",
    "field_initializer_list", "formal_parameters", "import_spec_list", "initializer_list",
    "literal_value", "named_imports", "object", "object_pattern", "object_type", "parameter_list",
    "parameters", "template_argument_list", "template_parameter_list", "type_arguments",
    "use_list", "var_spec_list",
}  # fmt: skip
_SYMBOLS = {
    **dict.fromkeys((
        "arrow_function", "constructor_declaration", "function_declaration",
        "function_definition", "function_expression", "function_item",
        "generator_function_declaration", "method_declaration", "method_definition",
    ), FUNCTION),
    **dict.fromkeys((
        "abstract_class_declaration", "annotation_type_declaration", "class_declaration",
        "class_specifier", "enum_declaration", "enum_item", "impl_item", "interface_declaration",
        "internal_module", "record_declaration", "struct_item", "struct_specifier", "trait_item",
        "type_spec", "union_item", "union_specifier",
    ), CLASS),
}  # fmt: skip
# These nodes may contain a symbol: a template, a typedef of a struct, a variable of that type.
_WRAPPERS = {
    "ambient_declaration", "declaration", "export_statement", "expression_statement",
    "field_declaration", "field_definition", "lexical_declaration", "public_field_definition",
    "template_declaration", "type_declaration", "type_definition", "variable_declaration",
    "variable_declarator",
}  # fmt: skip
_BRANCHES = {"catch_clause", "else_clause", "finally_clause", "preproc_elif", "preproc_else"}
# Trees of Go end these nodes at the next token.
_OPEN_ENDED = {
    "communication_case", "default_case", "expression_case", "statement_list", "type_case",
}  # fmt: skip
# Fields before the statements of a case or switch; the first two of any body.
_CONDITIONS = ("condition", "name", "value", "type", "communication", "initializer", "alias")
_ATTRIBUTES = {"attribute_item", "decorator"}
_IDENTIFIER = re.compile(r"[^\W\d]\w*")


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
            waiting += node.named_children if last > first else ()
        elif not lines[first - 1][: node.start_point.column].strip():
            rows |= set(range(first, last + 1))
    return rows


@cache
def _language(module: str) -> "Language | None":
    try:
        from tree_sitter import Language

        name, _, function = module.partition(":")
        return Language(getattr(import_module(name), function or "language")())
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
                if child.start_point.row < child.end_point.row:  # else it adds no line of its own
                    self.visit(child, prefix, parent)
                if child.type in _BRANCHES:
                    self._branch(child, _rows(child)[0])
            self._plain_else(node)
            return
        attributes = 0
        for child in _children(node):
            if child.type in _ATTRIBUTES:
                attributes = attributes or _rows(child)[0]
            elif child.type in _BRANCHES:
                self._branch(child, _rows(child)[0])
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
        line = _rows(_after_annotations(symbol))[0]
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
        line, end, opens = _rows(_after_annotations(node))[0], _rows(before)[1], _rows(body)[0]
        comment = self.structure.comment_above(top)
        parts = [(comment, top - 1)] if comment < top else []
        parts += [(top, line - 1)] if top < line else []
        parts += [(line, end), (opens, opens)] if opens > end else [(line, opens)]
        if _rows(body)[1] > opens:
            self.structure.add_group(parts)

    def _plain_else(self, node: "Node") -> None:
        """Add the `else` of a language whose trees have no node for it: Go, Java."""
        branch = node.child_by_field_name("alternative") if node.type == "if_statement" else None
        if branch and branch.type not in _BRANCHES and branch.prev_sibling:
            self._branch(branch, _rows(branch.prev_sibling)[0])

    def _branch(self, node: "Node", first: int) -> None:
        """Add an `else` or `catch`: its first line, alone, with some or with all its statements."""
        last, inner = _rows(node)[1], node
        if node.type in _BRANCHES and node.named_children:
            inner = node.named_children[-1]
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
    if node.type in _OPEN_ENDED:
        return first, _rows(node.named_children[-1])[1] if node.named_children else first
    return first, last - 1 if last > first and node.end_point.column == 0 else last


def _children(node: "Node") -> "Iterator[Node]":
    """Yield the children of a body or list, except comments and the condition of a directive."""
    is_case = node.type.endswith(("_case", "_statement"))
    heads = [node.child_by_field_name(name) for name in _CONDITIONS[: None if is_case else 2]]
    for child in node.named_children:
        if child.type == "statement_list":
            yield from _children(child)
        elif child.type not in _COMMENTS and child.type != "switch_label" and child not in heads:
            yield child


def _after_annotations(node: "Node") -> "Node":
    """Return the part of a definition that follows Java's annotations, or the node itself."""
    modifiers = node.named_children[0] if node.named_children else None
    annotated = modifiers is not None and modifiers.type == "modifiers"
    return (node.child_by_field_name("name") or node) if annotated else node


def _symbol(node: "Node") -> "Node | None":
    """Return the node of the function or class that a statement defines."""
    if node.type in _SYMBOLS:
        kind = node.child_by_field_name("type") if node.type == "type_spec" else None
        has_members = kind is not None and kind.type in ("struct_type", "interface_type")
        return node if has_members or node.child_by_field_name("body") else None
    if node.type in _WRAPPERS:
        for child in node.named_children:
            if child.type in _SYMBOLS or child.type in _WRAPPERS:
                return _symbol(child)
    return None


def _name(node: "Node") -> str:
    """Return a symbol's name; qualified names are dotted (`Channel::send` is `Channel.send`)."""
    named = node.child_by_field_name("name") or node.child_by_field_name("type")
    if node.type == "function_definition" or named is None:
        named = node.child_by_field_name("declarator")
        while named and (inner := named.child_by_field_name("declarator")):
            named = inner
    if named is None and node.parent is not None:  # typedef struct { … } Name; const name = () =>
        fields = ("declarator", "name", "property")
        named = next(filter(None, map(node.parent.child_by_field_name, fields)), None)
    text = (named.text or b"").decode("utf-8", "replace") if named else ""
    if receiver := node.child_by_field_name("receiver"):  # func (ring *Ring[T]) Send
        written = (receiver.text or b"").decode("utf-8", "replace")
        words = _IDENTIFIER.findall(written.partition("[")[0])
        text = f"{words[-1]}.{text}" if words else text
    return "".join(text.partition("<")[0].split()).replace("::", ".") or "(unnamed)"
