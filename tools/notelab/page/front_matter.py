"""Front matter: the title, and the table of the commits that the note was written for."""

from functools import partial
from typing import TYPE_CHECKING

import msgspec

from notelab.page.citation import Span, on_row
from notelab.page.note import CommitPrefix, FileLink, FrontMatter, ProseBlock
from notelab.page.scanner import MARKS, scan_text

if TYPE_CHECKING:
    import yaml

_MAX_CHARACTERS = 20_000


def split(text: str) -> tuple[str, int]:
    """Return the YAML of the front matter and how many lines it takes, fences included.

    If there is no front matter, return '' and 0.
    """
    lines = text.split("\n")
    if not lines or lines[0].rstrip() != "---":
        return "", 0
    for index, line in enumerate(lines[1:], start=1):
        if line.rstrip() in ("---", "..."):
            return "\n".join(lines[1:index]), index + 1
    return "", 0


def read(yaml_text: str, line_count: int) -> FrontMatter:
    """Read front matter of `line_count` lines; never raises an error."""
    span = Span(1, 1, max(line_count, 1), 4)
    if not line_count:
        return FrontMatter("opens with no front matter between `---` lines", span)
    if len(yaml_text) > _MAX_CHARACTERS:
        return FrontMatter(f"has front matter of over {_MAX_CHARACTERS:,} characters", span)
    import yaml

    try:
        # `compose` builds no objects from tags, keeps the position of each value, and keeps each
        # value as text (`0055ac7` is a commit prefix, not a number).
        root = yaml.compose(yaml_text, Loader=yaml.SafeLoader)
    except (yaml.YAMLError, RecursionError, ValueError) as fault:
        mark = getattr(fault, "problem_mark", None)
        row = mark.line + 2 if mark else 1
        problem = f"has front matter that is not YAML: {_explain(fault)}"
        return FrontMatter(problem, Span(row, 1, row, 2))
    if not isinstance(root, yaml.MappingNode):
        return FrontMatter("has front matter that is not a table", span)
    return _read_table(root, span)


def find_citations(lines: list[str]) -> tuple[list[ProseBlock], list[FileLink]]:
    """Return the citations and file links in the lines of front matter, each with a problem.

    Front matter has no text that says what the cited lines show.
    """
    problem = "is in the front matter, where no sentence says what its lines show"
    blocks: list[ProseBlock] = []
    files: list[FileLink] = []
    for row, line in enumerate(lines, start=1):
        scanned = scan_text(MARKS.sub(" ", line), partial(on_row, row))
        files += scanned.files
        citations = [
            msgspec.structs.replace(citation, problem=citation.problem or problem)
            for citation in scanned.citations
        ]
        if citations:
            blocks.append(ProseBlock(Span(row, 1, row, len(line) + 1), "", 0, citations, [], ""))
    return blocks, files


def _explain(fault: Exception) -> str:
    if isinstance(fault, RecursionError):
        return "it is nested too deeply"
    reason = getattr(fault, "problem", "") or getattr(fault, "reason", "") or fault
    return " ".join(str(reason).split())


def _read_table(root: "yaml.MappingNode", page_span: Span) -> FrontMatter:
    title, commits, names = "", list[CommitPrefix](), set[str]()
    for key, value in root.value:
        name = _scalar_text(key)
        span = Span(key.start_mark.line + 2, key.start_mark.column + 1, value.end_mark.line + 2, 1)
        if name in names:
            problem = f"has `{name}` twice in its front matter"
            return FrontMatter(problem, span, title, commits)
        names.add(name)
        if name == "title":
            title = _scalar_text(value).strip()
        elif name == "commit":
            if value.id != "mapping":
                problem = "must give `commit` as a table from each source to its commit"
                return FrontMatter(problem, span, title, commits)
            commits = [_read_commit(source, prefix) for source, prefix in value.value]
    problem = "" if title else "has no `title` in its front matter"
    return FrontMatter(problem, page_span, title, commits)


def _read_commit(source: "yaml.Node", prefix: "yaml.Node") -> CommitPrefix:
    start, end = prefix.start_mark, prefix.end_mark
    span = Span(start.line + 2, start.column + 1, end.line + 2, end.column + 1)
    return CommitPrefix(_scalar_text(source), _scalar_text(prefix).strip(), span)


def _scalar_text(node: "yaml.Node") -> str:
    return node.value if isinstance(node.value, str) else ""
