"""Pages that lack a language: the i18n plugin would show the default's, and nobody would notice.

It falls back for everything or for nothing, and pictures do want it.
"""

from mkdocs.structure.files import Files


def missing(files: Files, language: str) -> dict[str, str]:
    """Return each page that stands in for one in `language`, and the file that should be there.

    Args:
        files: as the i18n plugin chose them for `language`, which isn't the default one.
        language: such as "es".
    """
    suffix = f".{language}.md"
    return {
        file.src_uri: file.src_uri.removesuffix(".md") + suffix
        for file in files.documentation_pages()
        if not file.src_uri.endswith(suffix)
    }
