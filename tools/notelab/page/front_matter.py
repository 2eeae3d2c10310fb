"""Front matter: a title, and the commit table that says which versions were read."""

from notelab.page.citation import Span
from notelab.page.note import CommitPrefix, FrontMatter

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
        return FrontMatter("", [], "opens with no front matter between `---` lines", whole)
    if len(yaml_text) > _MAX_CHARACTERS:
        return FrontMatter(
            "", [], f"has front matter of over {_MAX_CHARACTERS:,} characters", whole
        )
    import yaml

    try:
        # Composed, never constructed: no tag can build an object, and every value keeps its place
        # and stays the text that was written (`0055ac7` is a commit prefix, not a number).
        root = yaml.compose(yaml_text, Loader=yaml.SafeLoader)
    except (yaml.YAMLError, RecursionError, ValueError) as fault:
        mark = getattr(fault, "problem_mark", None)
        row = mark.line + 2 if mark else 1
        reason = _why(fault)
        return FrontMatter(
            "", [], f"has front matter that is not YAML: {reason}", Span(row, 1, row, 2)
        )
    if not isinstance(root, yaml.MappingNode):
        return FrontMatter("", [], "has front matter that is not a table", whole)
    return _table(root, whole)


def _why(fault: Exception) -> str:
    if isinstance(fault, RecursionError):
        return "it is nested too deeply"
    said = getattr(fault, "problem", "") or getattr(fault, "reason", "") or fault
    return " ".join(str(said).split())


def _table(root: object, whole: Span) -> FrontMatter:
    import yaml

    assert isinstance(root, yaml.MappingNode)
    title = ""
    commits: list[CommitPrefix] = []
    seen: set[str] = set()
    for key, value in root.value:
        name = key.value if isinstance(key, yaml.ScalarNode) else ""
        span = Span(key.start_mark.line + 2, key.start_mark.column + 1, value.end_mark.line + 2, 1)
        if name in seen:
            return FrontMatter(title, commits, f"says `{name}` twice in its front matter", span)
        seen.add(name)
        if name == "title" and isinstance(value, yaml.ScalarNode):
            title = value.value.strip()
        elif name == "commit":
            if not isinstance(value, yaml.MappingNode):
                problem = "must give `commit` as a table from each source to its commit"
                return FrontMatter(title, commits, problem, span)
            commits = [_prefix(source, prefix) for source, prefix in value.value]
    problem = "" if title else "has no `title` in its front matter"
    return FrontMatter(title, commits, problem, whole)


def _prefix(source: object, prefix: object) -> CommitPrefix:
    import yaml

    assert isinstance(source, yaml.Node) and isinstance(prefix, yaml.Node)
    name = source.value if isinstance(source, yaml.ScalarNode) else ""
    text = prefix.value if isinstance(prefix, yaml.ScalarNode) else ""
    start, end = prefix.start_mark, prefix.end_mark
    span = Span(start.line + 2, start.column + 1, end.line + 2, end.column + 1)
    return CommitPrefix(str(name), str(text).strip(), span)
