"""Fixes two faults in the pages that Material writes."""

import re

SEARCH = {"en": "Search", "es": "Buscar"}
_ALTERNATE = re.compile(r"""<link\b[^>]*\brel=["']?alternate\b[^>]*>\s*""")
_DIALOG = 'data-md-component="search" role="dialog"'


def fix_page(output: str, language: str) -> str:
    """Return a whole page without its alternate links, and with a name for the search dialog.

    For each alternate link Material requests a sitemap.xml below the page, which doesn't exist. The
    language selector names the alternates too. A screen reader needs the dialog's name.
    """
    named = f'{_DIALOG} aria-label="{SEARCH[language]}"'
    head, end, body = output.partition("</head>")
    return _ALTERNATE.sub("", head) + end + body.replace(_DIALOG, named)
