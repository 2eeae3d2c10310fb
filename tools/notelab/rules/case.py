"""One citation on trial."""

import msgspec

from notelab.book.view import View
from notelab.cited.outline import is_anchor
from notelab.page.citation import Citation
from notelab.page.note import ProseBlock
from notelab.report.finding import Finding


class Case(msgspec.Struct):
    """One citation on trial, with where it stands."""

    view: View
    cell: ProseBlock
    citation: Citation
    max_lines: int
    times: int
    mend: str | None = None
    once: str = ""  # what the lock knows nearby on this page: where the citation slipped from

    @property
    def page(self) -> str:
        """Return how the lock names the page."""
        return self.view.page.key

    @property
    def anchors(self) -> set[str]:
        """Return the identifiers that the text around the citation names."""
        return {name for name in self.cell.names if is_anchor(name)}

    def finding(self, code: str, message: str, **said: str) -> Finding:
        """Return a finding at the citation's place; `said` as `View.finding` takes it."""
        return self.view.finding(code, self.citation.span, message, **said)


def listed(names: list[str]) -> str:
    """Write names one after another, the first six of them."""
    shown = ", ".join(f"`{name}`" for name in names[:6])
    return shown + (f" and {len(names) - 6} more" if len(names) > 6 else "")
