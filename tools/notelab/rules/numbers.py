"""N4xx: checks that every quoted number equals its row and every generated page is up to date."""

from collections.abc import Iterator
from pathlib import Path

from notelab.errors import display_path
from notelab.finding import TOP, Finding
from notelab.lab.lab import Lab
from notelab.lab.pages import ParsedPage
from notelab.page import results_page
from notelab.page.citation import Span
from notelab.page.note import NumberLink
from notelab.page.results_page import Results

_REGENERATE = "generate it again: `tools/bench report --adopt results/reference.json`"


class Numbers:
    """Checks the measured numbers of a lab's pages; each results page is read once."""

    def __init__(self, lab: Lab) -> None:
        """Prepare for a lab."""
        self._lab = lab
        self._read: dict[Path, Results] = {}

    def findings(self, view: ParsedPage) -> Iterator[Finding]:
        """Check one page's number links; remember the page if it is generated."""
        if results_page.is_generated(view.text):
            path = view.page.path.resolve()
            if path not in self._read:
                self._read[path] = results_page.parse(view.text, path.parent)
        for link in view.note.numbers if view.note else []:
            yield from self._check_link(view, link)

    def stale_findings(self) -> Iterator[Finding]:
        """Check each generated page of the lab, and each results page that the lab quotes, once."""
        for path, results in self._read.items():
            for name, row in results.stale:
                yield Finding(
                    "N404",
                    display_path(path),
                    Span(row, 1, row, 1),
                    f"the page was generated from another version of `{name}`",
                    expected="the SHA-256 of its inputs as they are now",
                    help=_REGENERATE,
                )
            if results.edited:
                yield Finding(
                    "N404",
                    display_path(path),
                    TOP,
                    "the page was changed after it was generated",
                    expected="one comment with the SHA-256 of the page without that comment",
                    help=_REGENERATE,
                )
            if not (results.generated or results.problem):
                yield Finding(
                    "N405",
                    display_path(path),
                    TOP,
                    "a quoted results page doesn't say what it was generated from",
                    expected="`<!-- generated from FILE sha256:… -->` at its top",
                    help="let a program write the page from its data: here,"
                    " `tools/bench report --adopt FILE`",
                )

    def _check_link(self, view: ParsedPage, link: NumberLink) -> Iterator[Finding]:
        path = (view.page.path.parent / link.path).resolve()
        language = view.page.language
        translated_name = f"RESULTS.{language}.md"
        expected_name = "RESULTS.md" if language == self._lab.languages[0] else translated_name
        # A lab in one language may quote the results of a lab with another first language.
        if path.name not in (expected_name, translated_name):
            yield view.finding(
                "N403",
                link.span,
                f"a page in `{language}` quotes `{path.name}`",
                expected=expected_name,
                found=path.name,
            )
            return
        results = Results(problem="is outside of the repository")
        if path.is_relative_to(self._lab.root):
            if path not in self._read:
                self._read[path] = results_page.read(path)
            results = self._read[path]
        values = results.values.get(link.anchor, [])
        if len(values) != 1:
            yield self._report_missing_row(view, link, results, len(values))
        elif values[0].strip() != link.text:
            yield view.finding(
                "N402",
                link.span,
                f"the text quotes {link.text}, but the row `{link.anchor}` has {values[0]}",
                expected=values[0],
                found=link.text,
            )

    def _report_missing_row(
        self, view: ParsedPage, link: NumberLink, results: Results, count: int
    ) -> Finding:
        if results.problem:
            actual = f"{link.path} {results.problem}"
        elif link.anchor in results.values:
            actual = f"{count} values in that row"
        elif file := results.elsewhere.get(link.anchor):
            actual = f"a line in {file}, but no place on the page"
        else:
            actual = "no such row"
        return view.finding(
            "N401",
            link.span,
            f"“{link.text}” links to `{link.anchor}`, which is not a row with one value",
            expected=f'a row with `<a id="{link.anchor}">` and one bold value',
            found=actual,
        )
