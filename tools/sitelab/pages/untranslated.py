"""Finds pages that lack a language: the i18n plugin would show the default language instead.

The plugin falls back for all files or for none, and pictures need the fallback.
"""

from mkdocs.structure.files import Files


def find_untranslated(files: Files, language: str) -> dict[str, str]:
    """Return each page that replaces a missing page in `language`, with the missing file's path.

    Args:
        files: the files that the i18n plugin chose for `language`, which isn't the default one.
        language: such as "es".
    """
    suffix = f".{language}.md"
    return {
        file.src_uri: file.src_uri.removesuffix(".md") + suffix
        for file in files.documentation_pages()
        if not file.src_uri.endswith(suffix)
    }
