"""The conditions that enclose lines, and whether two ranges differ only in layout.

A statement that moved into an `else` means something else, although its text is the same. Therefore
each enclosing `if`, `for`, `with` and `try` and its branch counts, from the statement out to the
module.
"""

import ast
import io
import textwrap
import tokenize
from collections.abc import Iterator, Sequence

from notelab.cited.python import parse_or_none

_Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
# What encloses a line, outermost first: statements and which part of them, or lines.
Chain = tuple[tuple[ast.AST, str] | str, ...]
_BLOCKS = {"body", "cases", "handlers", "orelse", "finalbody"}
_IGNORED_TOKENS = {tokenize.NL, tokenize.COMMENT, tokenize.NEWLINE, tokenize.ENDMARKER}


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
