"""N3xx: does each diagram draw, and does each expected one mark what it must?"""

from collections import Counter
from collections.abc import Iterator

from notelab.book.parsed_page import ParsedPage
from notelab.lab.lab_file import ExpectedDiagram
from notelab.mermaid.diagrams import Diagrams
from notelab.mermaid.parsed import Parsed
from notelab.page.citation import Span
from notelab.page.note import Diagram
from notelab.report.finding import TOP, Finding
from notelab.rules import gantt


def findings(view: ParsedPage, diagrams: Diagrams) -> Iterator[Finding]:
    """Judge a page's diagrams."""
    if view.note is None:
        return
    expected = {want.id: want for want in view.page.diagrams or []}
    seen: Counter[str] = Counter()
    for diagram in view.note.diagrams:
        seen[diagram.id] += 1
        yield from _one(view, diagram, expected.get(diagram.id), diagrams)
        if view.page.diagrams is not None:
            yield from _place(view, diagram, expected, seen)
    for want in expected.values():
        if not seen[want.id]:
            yield view.finding(
                "N301",
                TOP,
                f"the diagram `{want.id}` is missing",
                expected=f"a mermaid block whose first line is `%% id: {want.id}`",
                found=", ".join(f"`{name or 'no id'}`" for name in seen) or "no diagram",
            )


def _place(
    view: ParsedPage, diagram: Diagram, expected: dict[str, ExpectedDiagram], seen: Counter[str]
) -> Iterator[Finding]:
    if diagram.id in expected and seen[diagram.id] == 1:
        return
    said = f"`{diagram.id}`" if diagram.id else "without an id"
    again = " again" if diagram.id in expected else ""
    yield view.finding(
        "N306",
        _span(diagram, 1),
        f"a diagram {said} stands here{again}, which the lab doesn't ask for",
        expected="exactly " + ", ".join(f"`{name}`" for name in expected),
        help="a diagram's first line is `%% id: NAME`" if not diagram.id else "",
    )


def _one(
    view: ParsedPage, diagram: Diagram, want: ExpectedDiagram | None, diagrams: Diagrams
) -> Iterator[Finding]:
    called = f"the diagram `{diagram.id}`" if diagram.id else "the diagram"
    if want and want.max_lines and diagram.lines > want.max_lines:
        yield view.finding(
            "N305",
            _span(diagram, 1),
            f"{called} has {diagram.lines} lines",
            expected=f"at most {want.max_lines}, without blank lines and comments",
            found=f"{diagram.lines}",
        )
    parsed = diagrams.parse(diagram.text)
    if parsed is None:
        yield view.finding(
            "N307",
            _span(diagram, 1),
            f"{called} was not checked: {diagrams.missing}",
            expected="a script engine that runs mermaid",
        )
    elif not parsed.ok:
        yield view.finding(
            "N302",
            _span(diagram, parsed.line or 1),
            f"{called} doesn't draw: {parsed.error}",
            expected="a diagram that mermaid parses",
        )
        return
    if parsed is not None and parsed.type == "gantt":
        for task in gantt.misread(diagram.text):
            yield view.finding(
                "N308",
                _span(diagram, task.line),
                f"{called} draws “{task.task}” where its line doesn't say: {task.why}",
                expected=gantt.EXPECTED,
            )
    if parsed is not None and want:
        yield from _marks(view, diagram, want, parsed)


def _marks(
    view: ParsedPage, diagram: Diagram, want: ExpectedDiagram, parsed: Parsed
) -> Iterator[Finding]:
    if want.type and parsed.type != want.type:
        yield view.finding(
            "N303",
            _span(diagram, 1),
            f"the diagram `{want.id}` is a {parsed.type}",
            expected=f"a {want.type}",
            found=parsed.type,
        )
    labels = [label.casefold() for label in parsed.labels]
    for text, times in Counter(want.labels_in(view.page.language)).items():
        found = sum(label.count(text.casefold()) for label in labels)
        if found < times:
            yield view.finding(
                "N304",
                _span(diagram, 1),
                f"the diagram `{want.id}` marks “{text}” {_times(found)}",
                expected=f"{_times(times)}, in its labels",
                found=_times(found),
                help="its labels: " + ", ".join(f"“{label}”" for label in parsed.labels[:12]),
            )


def _times(count: int) -> str:
    return {0: "nowhere", 1: "once", 2: "twice"}.get(count, f"{count} times")


def _span(diagram: Diagram, line: int) -> Span:
    lines = diagram.text.split("\n")
    line = min(max(line, 1), max(len(lines) - 1, 1))
    text = lines[line - 1] if line <= len(lines) else ""
    column = len(text) - len(text.lstrip()) + 1
    row = diagram.row + line - 1
    return Span(row, column, row, len(text) + 1)
