"""N7xx: what may stay as it is, who said so, and is it still needed?"""

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from notelab.book.view import View
from notelab.errors import display_path
from notelab.lab.lab import LAB_FILE, Lab
from notelab.page.citation import Span
from notelab.report.finding import TOP, Finding


class Waivers:
    """The waivers of one lab: in lab.toml for all of it or for a note, and in the pages."""

    def __init__(self, lab: Lab, views: list[View]) -> None:
        """Nothing is waived yet."""
        self._lab, self._views = lab, views
        self._by_file = {view.filename: view for view in views}
        self._used: set[tuple[str, ...]] = set()
        self.waived: Counter[str] = Counter()  # by file

    def sift(self, findings: Iterable[Finding]) -> Iterator[Finding]:
        """Yield the findings that nobody waives."""
        for finding in findings:
            if self._waived(finding):
                self.waived[finding.filename] += 1
            else:
                yield finding

    def findings(self, *, whole: bool) -> Iterator[Finding]:
        """Judge the waivers, once all findings were sifted; `whole` where all pages were read."""
        for view in self._views:
            for waiver in view.note.waivers if view.note else []:
                if waiver.problem:
                    yield view.finding(
                        "N701",
                        waiver.span,
                        f"the waiver {waiver.problem}",
                        expected="`<!-- shardbook: allow N208 because … -->`",
                    )
                    continue
                for code in waiver.codes:
                    if (view.filename, str(waiver.span.row), code) not in self._used:
                        yield _idle(view.filename, waiver.span, code, "the lines it stands by")
        for name, page in {view.page.key: view.page for view in self._views}.items():
            for code in page.table.ignore:
                if ("note", name, code) not in self._used:
                    yield self._idle_in_the_lab(code, name, f"`{name}`")
        for code in self._lab.file.lab.ignore if whole else []:
            if ("lab", code) not in self._used:
                yield self._idle_in_the_lab(code, "[lab]", "the lab")

    def _waived(self, finding: Finding) -> bool:
        code, view = finding.code, self._by_file.get(finding.filename)
        # All who waive it are noted, so that none of them is called idle.
        by: list[tuple[str, ...]] = []
        for waiver in view.note.waivers if view and view.note else []:
            covers = waiver.first <= finding.span.row <= waiver.last
            if covers and not waiver.problem and code in waiver.codes:
                by.append((finding.filename, str(waiver.span.row), code))
        if view and code in view.page.table.ignore:
            by.append(("note", view.page.key, code))
        if code in self._lab.file.lab.ignore:
            by.append(("lab", code))
        self._used |= set(by)
        return bool(by)

    def _idle_in_the_lab(self, code: str, table: str, where: str) -> Finding:
        path = self._lab.folder / LAB_FILE
        return _idle(display_path(path), _line_of(path, table, code), code, where)


def _idle(filename: str, span: Span, code: str, where: str) -> Finding:
    return Finding(
        "N702",
        filename,
        span,
        f"`{code}` is waived and nothing in {where} breaks it",
        expected="a waiver that is needed",
        help="take it out",
    )


def _line_of(path: Path, table: str, code: str) -> Span:
    """Return the line of lab.toml that ignores a code: below its table's head, else the top."""
    below = False
    for row, line in enumerate(path.read_text("utf-8").split("\n"), start=1):
        if line.lstrip().startswith("["):
            below = table in line
        at = line.find(code)
        if below and at >= 0:
            return Span(row, at + 1, row, at + 1 + len(code))
    return TOP
