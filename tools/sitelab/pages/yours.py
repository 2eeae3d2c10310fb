"""What is the reader's own has a section of the menu while the site is served.

That is labs of which mkdocs.yml knows nothing, and what the bench measured on this machine.
"""

from collections.abc import Iterable

from mkdocs.structure.files import Files
from mkdocs.structure.nav import Section

_TITLE = {"en": "Yours", "es": "Lo tuyo"}


def section(files: Files, own: Iterable[str], language: str) -> Section | None:
    """Return the section with the pages below the folders `own`, or None where there are none."""
    folders = tuple(f"{folder}/" for folder in own)
    found = {
        file.src_uri: file.page
        for file in files.documentation_pages()
        if file.page and file.src_uri.startswith(folders)
    }
    if not found:
        return None
    # Not a section a lab: the menu shows those of other pages folded.
    yours = Section(_TITLE[language], [found[uri] for uri in sorted(found)])
    for page in yours.children:
        page.parent = yours
    return yours
