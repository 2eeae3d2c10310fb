"""The house in numbers: files and folders of each room, and lines of code.

    python -m pages.house             of this checkout, as a Markdown table
    python -m pages.house CLONE …     of other clones too: a column each

Lines of code are those without blank lines, comments and docstrings. How much code a learner's
first import loads, and how deep a collective is called, is on the page of the evening.
"""

import ast
import io
import sys
import tokenize
from collections import Counter
from pathlib import Path

from pages.blocks import ROOT

ROOMS = ("notelab", "sitelab", "shardlab", "costlab", "pages")


def count_code_lines(path: Path) -> int:
    """Return the number of lines of a file that hold code."""
    text = path.read_text("utf-8")
    docs: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            docs |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    without_code = (
        tokenize.COMMENT,
        tokenize.NL,
        tokenize.NEWLINE,
        tokenize.INDENT,
        tokenize.DEDENT,
    )
    code: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in without_code:
            code |= set(range(token.start[0], token.end[0] + (token.type != tokenize.ENDMARKER)))
    return len(code - docs)


def measure_clone(clone: Path) -> dict[str, str]:
    """Return the rows of a clone's column."""
    tools = clone / "tools"
    table = {}
    for room in ROOMS:
        files = sorted((tools / room).rglob("*.py"))
        flat = Counter(path.parent for path in files if path.name != "__init__.py")
        [(largest_folder, count)] = flat.most_common(1)
        lines = sum(len(path.read_text("utf-8").splitlines()) for path in files)
        table[f"{room}: files, folders"] = f"{len(files)}, {len(flat)}"
        table[f"{room}: most files in a folder"] = f"{count} ({largest_folder.relative_to(tools)})"
        table[f"{room}: lines, of code"] = f"{lines:,}, {sum(map(count_code_lines, files)):,}"
    all_files = [path for path in tools.rglob("*.py") if "__pycache__" not in path.parts]
    total = sum(len(path.read_text("utf-8").splitlines()) for path in all_files)
    table["tools in all: lines, of code"] = f"{total:,}, {sum(map(count_code_lines, all_files)):,}"
    return table


def main() -> None:
    """Print the table."""
    clones = [ROOT, *map(Path.resolve, map(Path, sys.argv[1:]))]
    columns = [measure_clone(clone) for clone in clones]
    print("| | " + " | ".join(clone.name for clone in clones) + " |")
    print("|---|" + "--:|" * len(clones))
    for row in columns[0]:
        print("| " + " | ".join([row, *(column.get(row, "–") for column in columns)]) + " |")


if __name__ == "__main__":
    main()
