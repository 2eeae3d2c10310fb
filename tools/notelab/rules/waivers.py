"""N7xx: applies the waivers of a lab, and checks that each is valid and still needed."""

from collections import Counter
from collections.abc import Iterable, Iterator

from notelab.errors import display_path
from notelab.finding import Finding, find_text
from notelab.lab.lab import LAB_FILE, Lab
from notelab.lab.pages import ParsedPage
from notelab.page.citation import Span


class Waivers:
    """The waivers of one lab: in lab.toml for the whole lab or for a note, and in the pages."""

    def __init__(self, lab: Lab, views: list[ParsedPage]) -> None:
        """Prepare; nothing is waived yet."""
        self._lab, self._views = lab, views
        self._by_file = {view.filename: view for view in views}
        self._used: set[tuple[str, ...]] = set()
        self.waived: Counter[str] = Counter()  # by file

    def sift(self, findings: Iterable[Finding]) -> Iterator[Finding]:
        """Yield the findings that no waiver covers."""
        for finding in findings:
            if self._is_waived(finding):
                self.waived[finding.filename] += 1
            else:
                yield finding

    def findings(self) -> Iterator[Finding]:
        """Check the waivers of pages after `sift`."""
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
                        yield _report_idle(
                            view.filename, waiver.span, code, "the lines that the waiver covers"
                        )
        for name, page in {view.page.key: view.page for view in self._views}.items():
            for code in page.table.ignore:
                if ("note", name, code) not in self._used:
                    yield self._report_idle_in_lab(code, name, f"`{name}`")

    def warnings(self, *, all_pages: bool) -> Iterator[Finding]:
        """Yield the lab's own waivers that no page needs; `all_pages` says if all were read."""
        for code in self._lab.file.lab.ignore if all_pages else []:
            if ("lab", code) not in self._used:
                yield self._report_idle_in_lab(code, "[lab]", "the lab")

    def _is_waived(self, finding: Finding) -> bool:
        code, view = finding.code, self._by_file.get(finding.filename)
        # Every waiver that covers the finding counts as used.
        waivers: list[tuple[str, ...]] = []
        for waiver in view.note.waivers if view and view.note else []:
            covers = waiver.first <= finding.span.row <= waiver.last
            if covers and not waiver.problem and code in waiver.codes:
                waivers.append((finding.filename, str(waiver.span.row), code))
        if view and code in view.page.table.ignore:
            waivers.append(("note", view.page.key, code))
        if code in self._lab.file.lab.ignore:
            waivers.append(("lab", code))
        self._used |= set(waivers)
        return bool(waivers)

    def _report_idle_in_lab(self, code: str, table: str, where: str) -> Finding:
        path = self._lab.folder / LAB_FILE
        return _report_idle(display_path(path), find_text(path, code, table), code, where)


def _report_idle(filename: str, span: Span, code: str, where: str) -> Finding:
    return Finding(
        "N702",
        filename,
        span,
        f"`{code}` is waived, but nothing in {where} breaks it",
        expected="a waiver that is needed",
        help="delete it",
    )
