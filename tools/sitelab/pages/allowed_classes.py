"""Lists the class names that a page may use in its own HTML, and drops all others.

A class of the theme can cover the page, and a class of the site can look like a proof. So a page
may use only the names that Markdown's extensions write and the names of the parts of a page:
`citation-card` and `md-overlay` are dropped, and so is the name of a recall card. The names that
mark a verdict or a measured row are only for the pages that the bench writes.
"""

import re

from pygments.token import STANDARD_TYPES

# Markdown's extensions: links to headings, formulas, code and diagrams.
_EXTENSIONS = {"headerlink", "arithmatex", "highlight", "mermaid", "filename"}
# Parts that docs/reference/site.md names, and the layout of the pages of docs/.
_PARTS = {
    *("answers", "door", "figure", "number", "question", "with-card"),
    *("hero", "hero-words", "hero-ways", "path", "path--labs", "md-button", "md-button--primary"),
    *("field-body", "first"),  # mkdocstrings
}
# A folded hint of pymdownx.details, in the kinds for which Material has a colour.
_HINTS = {
    *("abstract", "bug", "danger", "example", "failure", "info", "note", "quote", "success"),
    *("tip", "warning"),
}
# The bench's own pages of results and claims use these, and no page of another lab.
_JUDGED = {
    *("asked", "claims", "holds", "holds-only-if", "not-measurable-here", "refuted", "rows"),
    *("stale", "too-strong", "verdict"),
}
_NAMES = _EXTENSIONS | _PARTS | _HINTS | {*STANDARD_TYPES.values()} - {""}
# A fence's language, its tokens, and the API's parts as mkdocstrings names them.
_FORMS = re.compile(r"language-[\w+-]+|(?:l-Scalar|p-Indicator)[\w-]*|doc(?:-[a-z-]+)?")


_LAB = "experiments/35-allreduce-costs"
_BENCH_PAGE = re.compile(rf"{_LAB}/(?:results/local/)?(?:CLAIMS|RESULTS)(?:\.es)?\.md")


def is_bench_page(uri: str) -> bool:
    """Return whether the bench writes the page with this path in the site.

    >>> is_bench_page("experiments/35-allreduce-costs/CLAIMS.es.md")
    True
    >>> is_bench_page("experiments/99-a-draft/CLAIMS.md")
    False
    """
    return _BENCH_PAGE.fullmatch(uri) is not None


def filter_classes(value: str, *, judged: bool = False) -> str | None:
    """Return the names of a class attribute that a page may use, or None if there are none.

    Args:
        value: the attribute's value.
        judged: whether the bench writes the page.

    >>> filter_classes("question md-overlay"), filter_classes("verdict holds")
    ('question', None)
    >>> filter_classes("verdict holds md-overlay", judged=True)
    'verdict holds'
    """
    allowed = _NAMES | _JUDGED if judged else _NAMES
    names = [name for name in value.split() if name in allowed or _FORMS.fullmatch(name)]
    return " ".join(names) or None
