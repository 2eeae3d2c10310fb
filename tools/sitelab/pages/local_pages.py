"""Makes the menu's section of local pages, which only a served site has.

Local pages are the notes of labs that mkdocs.yml doesn't list, and results that the bench measured
on this machine.
"""

from collections.abc import Iterable

from mkdocs.structure.files import Files
from mkdocs.structure.nav import Section

_TITLE = {"en": "Yours", "es": "Lo tuyo"}


def make_section(files: Files, local_folders: Iterable[str], language: str) -> Section | None:
    """Return the section with the pages below `local_folders`, or None if there are no pages."""
    folders = tuple(f"{folder}/" for folder in local_folders)
    pages = {
        file.src_uri: file.page
        for file in files.documentation_pages()
        if file.page and file.src_uri.startswith(folders)
    }
    if not pages:
        return None
    # The section isn't divided by lab, because the menu would show the inner sections folded.
    section = Section(_TITLE[language], [pages[uri] for uri in sorted(pages)])
    for page in section.children:
        page.parent = section
    return section
