"""Which class names a page may give its own HTML: a style or a script may hang on each.

A theme's class can cover the page, and one of the site's own can pass for what the site proved. So
a page has the names that Markdown's extensions write, those of the parts that a page is made of,
and no other: `citation-card` or `md-overlay` is dropped, and so is the name of a recall card.
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
# What the generated pages of results and claims use.
_RESULTS = {
    *("asked", "claims", "holds", "holds-only-if", "not-measurable-here", "refuted", "rows"),
    *("stale", "verdict"),
}
_NAMES = _EXTENSIONS | _PARTS | _HINTS | _RESULTS | {*STANDARD_TYPES.values()} - {""}
# A fence's language, its tokens, and the API's parts as mkdocstrings names them.
_FORMS = re.compile(r"language-[\w+-]+|(?:l-Scalar|p-Indicator)[\w-]*|doc(?:-[a-z-]+)?")


def clean(value: str) -> str | None:
    """Return the names that a page may use of a class attribute, None where there is none.

    >>> clean("question md-overlay"), clean("citation-card")
    ('question', None)
    """
    names = [name for name in value.split() if name in _NAMES or _FORMS.fullmatch(name)]
    return " ".join(names) or None
