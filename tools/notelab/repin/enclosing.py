"""Under which conditions do lines stand, and do two ranges say the same in another layout?

An identical statement that has become an `else` means something else: so what encloses it counts,
each `if`, `for`, `with`, `try` and the branch of it, from the statement out to the module.
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
_QUIET = {tokenize.NL, tokenize.COMMENT, tokenize.NEWLINE, tokenize.ENDMARKER}


def around(path: str, lines: list[str]) -> list[Chain]:
    """Return what encloses each line; where it is no Python that parses, by its indentation."""
    tree = parse_or_none("\n".join(lines)) if path.endswith((".py", ".pyi")) else None
    if tree is None:
        return list(_by_indentation(lines))
    found: list[Chain] = [()] * len(lines)
    _fill(tree.body, (), found)
    return found


def _by_indentation(lines: list[str]) -> Iterator[Chain]:
    opened: list[tuple[int, str]] = []
    for line in lines:
        if said := " ".join(line.split()):
            expanded = line.expandtabs()
            indent = len(expanded) - len(expanded.lstrip())
            opened = [one for one in opened if one[0] < indent]
        yield tuple(above for _, above in opened)
        if said:
            opened.append((indent, said))


def _fill(nodes: Sequence[ast.AST], chain: Chain, found: list[Chain]) -> None:
    """Write down what encloses the lines of statements, of handlers or of cases."""
    for node in nodes:
        if isinstance(node, _Definition):
            _fill(node.body, chain, found)
            continue
        names = [name for name in node._fields if name in _BLOCKS and getattr(node, name)]
        before = _last_of(_header(node)) if names else 0
        for name in names:
            inner, under = getattr(node, name), (*chain, (node, name))
            last = getattr(inner[-1], "end_lineno", 0)
            if name not in ("cases", "handlers"):  # which have a line of their own
                first = min(before + 1, inner[0].lineno)
                found[first - 1 : last] = [under] * (last - first + 1)
            _fill(inner, under, found)
            before = last


def _header(node: ast.AST) -> ast.AST:
    """Return a statement without what stands in it."""
    return type(node)(**{name: [] if name in _BLOCKS else one for name, one in vars(node).items()})


def _last_of(header: ast.AST) -> int:
    parts = (getattr(one, "context_expr", one) for one in ast.iter_child_nodes(header))
    ends = [getattr(one, "end_lineno", 0) for one in parts]
    return max(ends, default=getattr(header, "lineno", 0))


def said(chain: Chain) -> list[str]:
    """Return the conditions of a line in words, whatever their layout."""
    return [
        one if isinstance(one, str) else f"{one[1]} of {ast.unparse(_header(one[0]))}"
        for one in chain
    ]


def essence(lines: list[str]) -> str:
    """Return what a range of Python says whatever its layout: its tree, the words of its comments.

    Two ranges with the same essence differ in blanks, line breaks, quotes and brackets at most.
    """
    text = textwrap.dedent("\n".join(lines))
    words, said = _tokens(text)
    tree = parse_or_none(text)
    for node in ast.walk(tree) if tree else ():
        # The words of a docstring, not where its lines break.
        said_alone = node.value if isinstance(node, ast.Expr) else None
        if isinstance(said_alone, ast.Constant) and isinstance(said_alone.value, str):
            said_alone.value = " ".join(said_alone.value.split())
    return f"{ast.dump(tree) if tree else said} # {words}"


def _tokens(text: str) -> tuple[str, str]:
    comments: list[str] = []
    said: list[str] = []
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT:
                comments += token.string.strip("# ").split()
            elif token.type not in _QUIET:
                said.append(" ".join(token.string.split()) or tokenize.tok_name[token.type])
    except (tokenize.TokenError, SyntaxError):
        said.append(" ".join(text.split()))  # half a statement: its words decide
    return " ".join(comments), " ".join(said)
