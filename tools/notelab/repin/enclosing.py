"""Under which conditions do lines stand, and do two ranges say the same in another layout?

An identical statement that has become an `else` means something else: so what encloses it counts,
each `if`, `for`, `with`, `try` and the branch of it, from the statement out to the module.
"""

import ast
import io
import re
import textwrap
import tokenize
import warnings
from collections.abc import Iterator

_INDENT = re.compile(r"[ \t]*")
_Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
_QUIET = {tokenize.NL, tokenize.COMMENT, tokenize.NEWLINE, tokenize.ENDMARKER}


class Conditions:
    """The conditions around each line of a file."""

    def __init__(self, path: str, lines: list[str]) -> None:
        """Read a file's lines; what is no Python, or can't be parsed, goes by its indentation."""
        self._lines = lines
        self._around: list[tuple[str, ...]] | None = None
        if path.endswith((".py", ".pyi")):
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    tree = ast.parse("\n".join(lines))
                around: list[tuple[str, ...]] = [()] * len(lines)
                _fill(tree.body, (), around)
                self._around = around
            except (SyntaxError, ValueError, RecursionError, MemoryError):
                pass

    def around(self, first: int, last: int) -> tuple[object, ...]:
        """Return what encloses a range, outermost first."""
        if self._around is not None:
            return self._around[first - 1], self._around[last - 1]
        return tuple(self._by_indentation(first))

    def _by_indentation(self, row: int) -> list[str]:
        above: list[str] = []
        indent = _indent(self._lines[row - 1])
        for line in reversed(self._lines[: row - 1]):
            if line.strip() and _indent(line) < indent:
                indent = _indent(line)
                above.append(" ".join(line.split()))
            if not indent:
                break
        return above[::-1]


def _indent(line: str) -> int:
    found = _INDENT.match(line)
    return len(found[0].expandtabs()) if found else 0


def _fill(body: list[ast.stmt], chain: tuple[str, ...], around: list[tuple[str, ...]]) -> None:
    for node in body:
        if isinstance(node, _Function):
            _fill(node.body, chain, around)
            continue
        for said, first, inner in _branches(node):
            under = (*chain, said)
            last = inner[-1].end_lineno or inner[-1].lineno
            around[first - 1 : last] = [under] * (last - first + 1)
            _fill(inner, under, around)


def _branches(node: ast.stmt) -> Iterator[tuple[str, int, list[ast.stmt]]]:
    """Yield each branch of a statement: its condition, the first line under it, its statements."""
    if isinstance(node, ast.Match):
        for case in node.cases:
            said = f"match {ast.unparse(node.subject)}: case {ast.unparse(case.pattern)}"
            said += f" if {ast.unparse(case.guard)}" if case.guard else ""
            yield said, case.body[0].lineno, case.body
        return
    body: list[ast.stmt] = getattr(node, "body", [])
    if not body:
        return
    said, header = _header(node)
    yield said, max(min(header + 1, body[0].lineno), 1), body
    before = body[-1].end_lineno or 0
    for handler in getattr(node, "handlers", []):
        caught = ast.unparse(handler.type) if handler.type else ""
        yield f"except {caught}", before + 1, handler.body
        before = handler.body[-1].end_lineno or 0
    for word, field in (("else", "orelse"), ("finally", "finalbody")):
        inner: list[ast.stmt] = getattr(node, field, [])
        if inner:
            yield f"{word} of {said}", before + 1, inner
            before = inner[-1].end_lineno or 0


def _header(node: ast.stmt) -> tuple[str, int]:
    if isinstance(node, ast.If | ast.While):
        word = "if" if isinstance(node, ast.If) else "while"
        return f"{word} {ast.unparse(node.test)}", node.test.end_lineno or 0
    if isinstance(node, ast.For | ast.AsyncFor):
        said = f"for {ast.unparse(node.target)} in {ast.unparse(node.iter)}"
        return said, node.iter.end_lineno or 0
    if isinstance(node, ast.With | ast.AsyncWith):
        said = ", ".join(ast.unparse(item) for item in node.items)
        return f"with {said}", node.items[-1].context_expr.end_lineno or 0
    return "try", node.lineno


def essence(lines: list[str]) -> str:
    """Return what a range of Python says whatever its layout: its tree, the words of its comments.

    Two ranges with the same essence differ in blanks, line breaks, quotes and brackets at most.
    """
    text = textwrap.dedent("\n".join(lines))
    words, said = _tokens(text)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return f"{said} # {words}"
    for node in ast.walk(tree):
        # The words of a docstring, not where its lines break.
        said_alone = node.value if isinstance(node, ast.Expr) else None
        if isinstance(said_alone, ast.Constant) and isinstance(said_alone.value, str):
            said_alone.value = " ".join(said_alone.value.split())
    return f"{ast.dump(tree)} # {words}"


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
