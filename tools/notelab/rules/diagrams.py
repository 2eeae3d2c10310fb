"""N3xx: checks that each diagram draws, and that each expected diagram has its labels."""

import re
from collections import Counter
from collections.abc import Iterator

from notelab.finding import TOP, Finding
from notelab.lab.lab_file import ExpectedDiagram
from notelab.lab.pages import ParsedPage
from notelab.mermaid.parsed_diagrams import Diagrams, Parsed
from notelab.page.citation import Span
from notelab.page.note import Diagram

EXPECTED = "`dateFormat x` and whole numbers; `axisFormat %Q` shows them on the axis as they are"
_FORMAT = re.compile(r"^[ \t]*dateFormat[ \t]+(\S+)", re.MULTILINE)
_NO_TASK = ("%%", "title ", "section ", "click ", "accTitle", "accDescr")
_TAGS = {"active", "done", "crit", "milestone", "vert"}
_WHOLE = re.compile(r"[0-9]+\Z")
_FRACTION = re.compile(r"-?[0-9]*\.[0-9]+\Z")


def findings(view: ParsedPage, diagrams: Diagrams) -> Iterator[Finding]:
    """Check a page's diagrams."""
    if view.note is None:
        return
    expected_by_id = {wanted.id: wanted for wanted in view.page.diagrams or []}
    counts: Counter[str] = Counter()
    for diagram in view.note.diagrams:
        counts[diagram.id] += 1
        yield from _check_diagram(view, diagram, expected_by_id.get(diagram.id), diagrams)
        if view.page.diagrams is not None:
            yield from _check_expected(view, diagram, expected_by_id, counts)
    for wanted in expected_by_id.values():
        if not counts[wanted.id]:
            yield view.finding(
                "N301",
                TOP,
                f"the diagram `{wanted.id}` is missing",
                expected=f"a mermaid block whose first line is `%% id: {wanted.id}`",
                found=", ".join(f"`{name or 'no id'}`" for name in counts) or "no diagram",
            )


def _check_expected(
    view: ParsedPage,
    diagram: Diagram,
    expected_by_id: dict[str, ExpectedDiagram],
    counts: Counter[str],
) -> Iterator[Finding]:
    if diagram.id in expected_by_id and counts[diagram.id] == 1:
        return
    if not diagram.id:
        message = "the lab doesn't ask for this diagram, which has no id"
    elif diagram.id in expected_by_id:
        message = f"the page has the diagram `{diagram.id}` more than once"
    else:
        message = f"the lab doesn't ask for the diagram `{diagram.id}`"
    yield view.finding(
        "N306",
        _span(diagram, 1),
        message,
        expected="exactly " + ", ".join(f"`{name}`" for name in expected_by_id),
        help="write `%% id: NAME` in the diagram's first line" if not diagram.id else "",
    )


def _check_diagram(
    view: ParsedPage, diagram: Diagram, expected: ExpectedDiagram | None, diagrams: Diagrams
) -> Iterator[Finding]:
    subject = f"the diagram `{diagram.id}`" if diagram.id else "the diagram"
    if expected and expected.max_lines and diagram.lines > expected.max_lines:
        yield view.finding(
            "N305",
            _span(diagram, 1),
            f"{subject} has {diagram.lines} lines",
            expected=f"at most {expected.max_lines}, without blank lines and comments",
            found=f"{diagram.lines}",
        )
    parsed = diagrams.parse(diagram.text)
    if parsed is None:
        yield view.finding(
            "N307",
            _span(diagram, 1),
            f"{subject} was not checked: {diagrams.unavailable_reason}",
            expected="a script engine that runs mermaid",
        )
    elif not parsed.ok:
        yield view.finding(
            "N302",
            _span(diagram, parsed.line or 1),
            f"{subject} doesn't draw: {parsed.error}",
            expected="a diagram that mermaid parses",
        )
        return
    if parsed is not None and parsed.type == "gantt":
        for line, task, why in _find_misread(diagram.text):
            yield view.finding(
                "N308",
                _span(diagram, line),
                f"{subject} draws “{task}” at other times than its line gives: {why}",
                expected=EXPECTED,
            )
    if parsed is not None and expected:
        yield from _check_labels(view, diagram, expected, parsed)


def _find_misread(text: str) -> Iterator[tuple[int, str, str]]:
    """Yield the tasks of a gantt diagram that mermaid draws at other times than written.

    Each has its line, counted from 1, its name, and why mermaid misreads it.
    """
    date_format = _FORMAT.search(text)
    if date_format is None or date_format[1] not in ("x", "X"):
        return
    for number, line in enumerate(text.split("\n"), 1):
        name, _, data = line.strip().partition(":")
        if name.startswith(_NO_TASK):
            continue
        times = [part.strip() for part in data.split(",")]
        times = [part for part in times if part not in _TAGS][-2:]
        fractions = [part for part in times if _FRACTION.match(part)]
        if fractions:
            yield number, name.rstrip(), f"mermaid reads whole numbers only, not {fractions[0]}"
        elif date_format[1] == "X" and len(times) == 2 and _WHOLE.match(times[0]) and int(times[0]):
            why = f"mermaid reads its start, {times[0]}, as milliseconds, though X means seconds"
            yield number, name.rstrip(), why


def _check_labels(
    view: ParsedPage, diagram: Diagram, expected: ExpectedDiagram, parsed: Parsed
) -> Iterator[Finding]:
    if expected.type and parsed.type != expected.type:
        yield view.finding(
            "N303",
            _span(diagram, 1),
            f"the diagram `{expected.id}` is a {parsed.type}",
            expected=f"a {expected.type}",
            found=parsed.type,
        )
    labels = [label.casefold() for label in parsed.labels]
    for text, wanted_count in Counter(expected.labels_in(view.page.language)).items():
        count = sum(label.count(text.casefold()) for label in labels)
        if count < wanted_count:
            yield view.finding(
                "N304",
                _span(diagram, 1),
                f"the diagram `{expected.id}` shows “{text}” {_format_count(count)}",
                expected=f"{_format_count(wanted_count)}, in its labels",
                found=_format_count(count),
                help="its labels: " + ", ".join(f"“{label}”" for label in parsed.labels[:12]),
            )


def _format_count(count: int) -> str:
    return {0: "nowhere", 1: "once", 2: "twice"}.get(count, f"{count} times")


def _span(diagram: Diagram, line: int) -> Span:
    lines = diagram.text.split("\n")
    line = min(max(line, 1), max(len(lines) - 1, 1))
    text = lines[line - 1] if line <= len(lines) else ""
    column = len(text) - len(text.lstrip()) + 1
    row = diagram.row + line - 1
    return Span(row, column, row, len(text) + 1)
