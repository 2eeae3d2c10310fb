"""What Material writes into every page and has to be mended there."""

import re

SEARCH = {"en": "Search", "es": "Buscar"}
_ALTERNATE = re.compile(r"""<link\b[^>]*\brel=["']?alternate\b[^>]*>\s*""")
_DIALOG = 'data-md-component="search" role="dialog"'


def mended(output: str, language: str) -> str:
    """Return a whole page without what asks in vain, and with a name for what a reader hears.

    For each alternate Material asks for a sitemap.xml below the page, which isn't there; the site's
    own names the alternates, and so does the language selector. Its search is a nameless dialog.
    """
    named = f'{_DIALOG} aria-label="{SEARCH[language]}"'
    head, end, body = output.partition("</head>")
    return _ALTERNATE.sub("", head) + end + body.replace(_DIALOG, named)
