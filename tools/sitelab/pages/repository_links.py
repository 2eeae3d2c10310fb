"""Rewrites links between pages, which are written for a code host, so that they work in the site.

A page of docs/ links to a note as `../../experiments/LAB/note.md`, a note to a page of the
reference as `../../docs/reference/notes.md`: these are their places in the repository. In the site
docs/ is the root and the workbook's folders are below it, so such a link loses or gains a step. The
same holds for a link to a source file, such as `../../tools/shardlab/comm/axis.py`.
"""

import posixpath
from urllib.parse import urlsplit, urlunsplit
from xml.etree.ElementTree import Element

from markdown import Extension, Markdown
from markdown.treeprocessors import Treeprocessor

from sitelab.pages.workbook_pages import CHANGELOG, FOLDERS


def rewrite_link(link: str, page: str) -> str:
    """Return `link`, as written on the page with the site path `page`, as a link within the site.

    Links to other hosts, to anchors of the page, inside docs/ and inside the workbook's folders
    need no change. A link from the changelog to a file that isn't in the site, such as
    CONTRIBUTING.md, becomes empty.
    """
    parts = urlsplit(link)
    if parts.scheme or parts.netloc or not parts.path or parts.path.startswith("/"):
        return link
    in_repository_root = page.split("/", 1)[0] in (*FOLDERS, CHANGELOG)
    repository_path = page if in_repository_root else f"docs/{page}"
    target = posixpath.normpath(posixpath.join(posixpath.dirname(repository_path), parts.path))
    top, _, rest = target.partition("/")
    if top == "docs":
        site_path = rest
    elif target.startswith(tuple(f"{folder}/" for folder in FOLDERS)):
        site_path = target
    else:
        return "" if page == CHANGELOG else link
    path = posixpath.relpath(site_path, posixpath.dirname(page) or ".")
    return urlunsplit(("", "", path, parts.query, parts.fragment))


class RepositoryLinks(Extension):
    """Markdown extension: rewrites the links and pictures of the page that is being built.

    Attributes:
        page: the site path of that page, set before each is rendered.
    """

    def __init__(self) -> None:
        super().__init__()
        self.page = ""

    def extendMarkdown(self, md: Markdown) -> None:  # noqa: N802  (Markdown's name)
        """Run after inline parsing and before mkdocs resolves relative links (priority 0)."""
        md.treeprocessors.register(_Rewrite(md, self), "shardbook-links", 5)


class _Rewrite(Treeprocessor):
    def __init__(self, md: Markdown, owner: RepositoryLinks) -> None:
        super().__init__(md)
        self._owner = owner

    def run(self, root: Element) -> None:
        for element in root.iter():
            for name in ("href", "src"):
                link = element.get(name)
                if not link:
                    continue
                element.set(name, rewrite_link(link, self._owner.page))
                if not element.get(name):
                    element.tag = "span"
                    del element.attrib[name]
