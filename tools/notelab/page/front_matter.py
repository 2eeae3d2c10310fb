"""Front matter: a title, and the commit table that says which versions were read."""

from functools import partial
from typing import TYPE_CHECKING

import msgspec

from notelab.page.citation import Span
from notelab.page.note import Cell, CommitPrefix, FileLink, FrontMatter
from notelab.page.scanner import MARKS, scan

if TYPE_CHECKING:
    import yaml

_MAX_CHARACTERS = 20_000


def split(text: str) -> tuple[str, int]:
    """Return the front matter's YAML and the number of lines it takes, fences included.

    Without front matter the YAML is '' and the number 0.
    """
    lines = text.split("\n")
    if not lines or lines[0].rstrip() != "---":
        return "", 0
    for index, line in enumerate(lines[1:], start=1):
        if line.rstrip() in ("---", "..."):
            return "\n".join(lines[1:index]), index + 1
    return "", 0


def read(yaml_text: str, taken: int) -> FrontMatter:
    """Read front matter that took `taken` lines of the page; never raises."""
    whole = Span(1, 1, max(taken, 1), 4)
    if not taken:
        return FrontMatter("opens with no front matter between `---` lines", whole)
    if len(yaml_text) > _MAX_CHARACTERS:
        return FrontMatter(f"has front matter of over {_MAX_CHARACTERS:,} characters", whole)
    import yaml

    try:
        # Composed, never constructed: no tag can build an object, and every value keeps its place
        # and stays the text that was written (`0055ac7` is a commit prefix, not a number).
        root = yaml.compose(yaml_text, Loader=yaml.SafeLoader)
    except (yaml.YAMLError, RecursionError, ValueError) as fault:
        mark = getattr(fault, "problem_mark", None)
        row = mark.line + 2 if mark else 1
        problem = f"has front matter that is not YAML: {_why(fault)}"
        return FrontMatter(problem, Span(row, 1, row, 2))
    if not isinstance(root, yaml.MappingNode):
        return FrontMatter("has front matter that is not a table", whole)
    return _table(root, whole)


def cited(lines: list[str]) -> tuple[list[Cell], list[FileLink]]:
    """Return what the lines of front matter cite; nothing around it says what its lines show."""
    problem = "stands in the front matter, where nothing says what its lines show"
    cells: list[Cell] = []
    files: list[FileLink] = []
    for row, line in enumerate(lines, start=1):
        found = scan(MARKS.sub(" ", line), partial(_in_row, row))
        files += found.files
        wrong = [
            msgspec.structs.replace(one, problem=one.problem or problem) for one in found.citations
        ]
        if wrong:
            cells.append(Cell(Span(row, 1, row, len(line) + 1), "", 0, wrong, [], ""))
    return cells, files


def _in_row(row: int, start: int, end: int) -> Span:
    return Span(row, start + 1, row, end + 1)


def _why(fault: Exception) -> str:
    if isinstance(fault, RecursionError):
        return "it is nested too deeply"
    said = getattr(fault, "problem", "") or getattr(fault, "reason", "") or fault
    return " ".join(str(said).split())


def _table(root: "yaml.MappingNode", whole: Span) -> FrontMatter:
    title, commits, seen = "", list[CommitPrefix](), set[str]()
    for key, value in root.value:
        name = _scalar(key)
        span = Span(key.start_mark.line + 2, key.start_mark.column + 1, value.end_mark.line + 2, 1)
        if name in seen:
            problem = f"says `{name}` twice in its front matter"
            return FrontMatter(problem, span, title, commits)
        seen.add(name)
        if name == "title":
            title = _scalar(value).strip()
        elif name == "commit":
            if value.id != "mapping":
                problem = "must give `commit` as a table from each source to its commit"
                return FrontMatter(problem, span, title, commits)
            commits = [_prefix(source, prefix) for source, prefix in value.value]
    problem = "" if title else "has no `title` in its front matter"
    return FrontMatter(problem, whole, title, commits)


def _prefix(source: "yaml.Node", prefix: "yaml.Node") -> CommitPrefix:
    start, end = prefix.start_mark, prefix.end_mark
    span = Span(start.line + 2, start.column + 1, end.line + 2, end.column + 1)
    return CommitPrefix(_scalar(source), _scalar(prefix).strip(), span)


def _scalar(node: "yaml.Node") -> str:
    return node.value if isinstance(node.value, str) else ""
