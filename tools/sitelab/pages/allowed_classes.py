"""Which class names a page may give its own HTML: a style or a script may hang on each.

A theme's class can cover the page, and one of the site's own can pass for what the site proved. So
a page has the names that Markdown's extensions write, those of the parts that a page is made of,
and no other: `citation-card` or `md-overlay` is dropped, and so is the name of a recall card. The
names that mark what the bench judged or measured are for the pages that the bench writes.
"""

import re

from pygments.token import STANDARD_TYPES

# Markdown's extensions: links to headings, formulas, code and diagrams.
_EXTENSIONS = {"headerlink", "arithmatex", "highlight", "mermaid", "filename"}
# Parts that docs/reference/site.md names, and what the pages of docs/ are laid out with.
_PARTS = {
    *("answers", "door", "figure", "number", "question", "with-card"),
    *("hero", "hero-words", "path", "path--labs", "md-button", "md-button--primary"),
    *("field-body", "first"),  # mkdocstrings
}
# A folded hint: pymdownx.details, in the kinds that Material has a colour for.
_HINTS = {
    *("abstract", "bug", "danger", "example", "failure", "info", "note", "quote", "success"),
    *("tip", "warning"),
}
# What the bench's own pages of results and claims use (`bench_pages`).
_JUDGED = {
    *("asked", "claims", "holds", "holds-only-if", "not-measurable-here", "refuted", "rows"),
    *("stale", "verdict"),
}
_NAMES = _EXTENSIONS | _PARTS | _HINTS | {*STANDARD_TYPES.values()} - {""}
# A fence's language, its tokens, and the API's parts as mkdocstrings names them.
_FORMS = re.compile(r"language-[\w+-]+|(?:l-Scalar|p-Indicator)[\w-]*|doc(?:-[a-z-]+)?")


def clean(value: str, *, judged: bool = False) -> str | None:
    """Return the names that a page may use of a class attribute, None where there is none.

    Args:
        value: the attribute's.
        judged: whether the bench writes the page.

    >>> clean("question md-overlay"), clean("citation-card"), clean("verdict holds")
    ('question', None, None)
    >>> clean("verdict holds md-overlay", judged=True)
    'verdict holds'
    """
    allowed = _NAMES | _JUDGED if judged else _NAMES
    names = [name for name in value.split() if name in allowed or _FORMS.fullmatch(name)]
    return " ".join(names) or None
