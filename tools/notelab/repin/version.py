"""A file at one commit, a citation in such a file, and the conditions that enclose its lines.

A statement that moved into an `else` means something else, although its text is the same. Therefore
each enclosing `if`, `for`, `with` and `try` and its branch counts, from the statement out to the
module.
"""

import ast
import io
import re
import textwrap
import tokenize
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cached_property
from math import log

import msgspec

from notelab.cited.outline import Outline, Symbol
from notelab.cited.python import parse_or_none

TOKEN = re.compile(r"[^\W_]+|[^\w\s]")
_Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
# What encloses a line, outermost first: statements and which part of them, or lines.
Chain = tuple[tuple[ast.AST, str] | str, ...]
_BLOCKS = {"body", "cases", "handlers", "orelse", "finalbody"}
_IGNORED_TOKENS = {tokenize.NL, tokenize.COMMENT, tokenize.NEWLINE, tokenize.ENDMARKER}


class WordWeights(dict[str, float]):
    """The weight of each word in a file: high for rare words, almost 0 for words on every line."""

    def __init__(self, lines: list[str]) -> None:
        """Count on how many lines each word is; weights are computed when they are needed."""
        super().__init__()
        self._on = Counter(word for line in lines for word in set(TOKEN.findall(line)))
        self._lines = len(lines)
        self._read: dict[str, tuple[float, list[str]]] = {}

    def __missing__(self, word: str) -> float:
        rarity = log((self._lines + 1) / (self._on[word] + 1)) + 0.05
        self[word] = weight = rarity if word[0].isalnum() else rarity / 4
        return weight

    def weigh_line(self, text: str) -> tuple[float, list[str]]:
        """Return the weight of a line, and its words."""
        if text not in self._read:
            words = TOKEN.findall(text)
            self._read[text] = sum(self[word] for word in words), words
        return self._read[text]


class Version:
    """A file at one commit."""

    def __init__(self, path: str, blob: str, lines: list[bytes], outline: Outline) -> None:
        """Store the content; what is derived from it is computed once, when it is needed."""
        self.path, self.blob, self.raw, self.outline = path, blob, lines, outline

    @cached_property
    def lines(self) -> list[str]:
        """Return the lines as text."""
        return [line.decode("utf-8", "replace") for line in self.raw]

    @cached_property
    def conditions(self) -> list[Chain]:
        """Return the chain of enclosing conditions of each line."""
        return enclosing_chains(self.path, self.lines)

    @cached_property
    def word_weights(self) -> WordWeights:
        """Return the weights of the words in this file."""
        return WordWeights(self.lines)

    @cached_property
    def rows_by_name(self) -> dict[str, list[int]]:
        """Return the lines that each name is on."""
        rows: dict[str, list[int]] = {}
        for row, names in enumerate(self.outline.names, start=1):
            for name in names.split():
                rows.setdefault(name, []).append(row)
        return rows

    def symbols_named(self, name: str) -> list[Symbol]:
        """Return the symbols with a full name; an overload and a setter share theirs."""
        return self._symbols[0].get(name, [])

    def symbols_by_base_name(self, base: str) -> list[Symbol]:
        """Return the symbols with a base name, whatever encloses them."""
        return self._symbols[1].get(base, [])

    @cached_property
    def _symbols(self) -> tuple[dict[str, list[Symbol]], dict[str, list[Symbol]]]:
        """Return the symbols by full name and by base name."""
        by_name: dict[str, list[Symbol]] = {}
        by_base: dict[str, list[Symbol]] = {}
        for symbol in self.outline.symbols:
            by_name.setdefault(symbol.name, []).append(symbol)
            by_base.setdefault(base_name(symbol.name), []).append(symbol)
        return by_name, by_base

    def innermost(self, first: int, last: int) -> Symbol | None:
        """Return the smallest symbol that contains all the lines, or None for the module."""
        if (first, last) not in self._innermost:
            self._innermost[first, last] = self.outline.innermost(first, last)
        return self._innermost[first, last]

    @cached_property
    def _innermost(self) -> dict[tuple[int, int], Symbol | None]:
        return {}


def base_name(name: str) -> str:
    """Return the last part of a dotted name."""
    return name.rpartition(".")[2]


class CitedLines(msgspec.Struct, dict=True):
    """A citation in an old file: its lines, and the names that anchor it."""

    old: Version
    first: int
    last: int
    anchors: list[str]

    @cached_property
    def symbol(self) -> Symbol | None:
        """Return the innermost symbol around the lines, or None for the module."""
        return self.old.innermost(self.first, self.last)

    @property
    def symbol_name(self) -> str:
        """Return the name of that symbol, or '' for the module."""
        return self.symbol.name if self.symbol else ""

    def has_same_context(self, new: Version, first: int, last: int) -> bool:
        """Return whether new lines are in the same symbol and under the same conditions."""
        symbol = new.innermost(first, last)
        is_same_symbol = self.symbol_name == (symbol.name if symbol else "")
        rows = zip((self.first, self.last), (first, last), strict=True)
        chains = (
            (self.old.conditions[old_row - 1], new.conditions[new_row - 1])
            for old_row, new_row in rows
        )
        return is_same_symbol and all(
            describe_chain(old_chain) == describe_chain(new_chain)
            for old_chain, new_chain in chains
        )


def enclosing_chains(path: str, lines: list[str]) -> list[Chain]:
    """Return the chain of each line; from its indentation if the file is no Python that parses."""
    tree = parse_or_none("\n".join(lines)) if path.endswith((".py", ".pyi")) else None
    if tree is None:
        return list(_by_indentation(lines))
    chains: list[Chain] = [()] * len(lines)
    _fill(tree.body, (), chains)
    return chains


def _by_indentation(lines: list[str]) -> Iterator[Chain]:
    open_parents: list[tuple[int, str]] = []
    for line in lines:
        if text := " ".join(line.split()):
            expanded = line.expandtabs()
            indent = len(expanded) - len(expanded.lstrip())
            open_parents = [parent for parent in open_parents if parent[0] < indent]
        yield tuple(above for _, above in open_parents)
        if text:
            open_parents.append((indent, text))


def _fill(nodes: Sequence[ast.AST], chain: Chain, chains: list[Chain]) -> None:
    """Set the chains of the lines of statements, handlers or cases."""
    for node in nodes:
        if isinstance(node, _Definition):
            _fill(node.body, chain, chains)
            continue
        names = [name for name in node._fields if name in _BLOCKS and getattr(node, name)]
        last_row = _header_end(_header(node)) if names else 0
        for name in names:
            inner, inner_chain = getattr(node, name), (*chain, (node, name))
            last = getattr(inner[-1], "end_lineno", 0)
            if name not in ("cases", "handlers"):  # which have a line of their own
                first = min(last_row + 1, inner[0].lineno)
                chains[first - 1 : last] = [inner_chain] * (last - first + 1)
            _fill(inner, inner_chain, chains)
            last_row = last


def _header(node: ast.AST) -> ast.AST:
    """Return a statement without the statements in it."""
    return type(node)(
        **{name: [] if name in _BLOCKS else value for name, value in vars(node).items()}
    )


def _header_end(header: ast.AST) -> int:
    parts = (getattr(node, "context_expr", node) for node in ast.iter_child_nodes(header))
    ends = [getattr(node, "end_lineno", 0) for node in parts]
    return max(ends, default=getattr(header, "lineno", 0))


def describe_chain(chain: Chain) -> list[str]:
    """Return the conditions of a line as text, independent of their layout."""
    return [
        link if isinstance(link, str) else f"{link[1]} of {ast.unparse(_header(link[0]))}"
        for link in chain
    ]


def normalized_source(lines: list[str]) -> str:
    """Return a range of Python independent of its layout: its syntax tree and its comments' words.

    Two ranges with the same result differ in whitespace, line breaks, quotes and brackets only.
    """
    text = textwrap.dedent("\n".join(lines))
    comment_words, code_tokens = _tokenize(text)
    tree = parse_or_none(text)
    for node in ast.walk(tree) if tree else ():
        # Compare the words of a docstring, not its line breaks.
        docstring = node.value if isinstance(node, ast.Expr) else None
        if isinstance(docstring, ast.Constant) and isinstance(docstring.value, str):
            docstring.value = " ".join(docstring.value.split())
    return f"{ast.dump(tree) if tree else code_tokens} # {comment_words}"


def _tokenize(text: str) -> tuple[str, str]:
    comments: list[str] = []
    code_tokens: list[str] = []
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT:
                comments += token.string.strip("# ").split()
            elif token.type not in _IGNORED_TOKENS:
                code_tokens.append(" ".join(token.string.split()) or tokenize.tok_name[token.type])
    except (tokenize.TokenError, SyntaxError):
        code_tokens.append(" ".join(text.split()))  # half a statement: its words decide
    return " ".join(comments), " ".join(code_tokens)
