"""N230, N232: checks links to whole files, and reports what only looks like a citation."""

from collections.abc import Iterator

from notelab.book.evidence import State
from notelab.book.settling import files_of
from notelab.book.workbook import Workbook
from notelab.finding import Finding
from notelab.lab.pages import ParsedPage
from notelab.page.note import FileLink
from notelab.sources.answers import WORKTREE
from notelab.sources.git.url import is_commit

STRICT = "N230"  # a finding under `--strict`, only counted otherwise


def findings(book: Workbook, view: ParsedPage) -> Iterator[Finding]:
    """Check a page's links to whole files, and report its mentions of paths with lines."""
    if view.note is None:
        return
    for link in view.note.files:
        for source, path in files_of([link], book.pins, book.resolver):
            file = book.evidence.file(source, path)
            if file and file.state is State.ABSENT:
                yield view.finding(
                    "N232",
                    link.span,
                    f"the link is to `{path}`, which `{source}` doesn't have at its pin",
                    expected="a file of the pinned commit",
                    help="closest: " + ", ".join(f"`{path}`" for path in file.suggestions)
                    if file.suggestions
                    else "",
                )
        if source := _find_own_without(book, link):
            yield view.finding(
                "N232",
                link.span,
                f"the link is to `{link.path}`, which its commit doesn't have",
                expected=f"a file of `{source}` at {link.commit[:12]}",
            )
    for mention in view.note.mentions:
        if book.settling.knows(mention.path):
            yield view.finding(
                STRICT,
                mention.span,
                f"“{mention.text[:80]}” looks like a citation but is not judged",
                expected="a citation such as `path:L4-L6`, or text without a line number",
            )


def _find_own_without(book: Workbook, link: FileLink) -> str:
    """Return the source whose repository is the lab's if its clone knows that a file is absent."""
    names = [name for name in book.resolver.of_repository(link) if book.lab.sources[name].path]
    if not names or book.pins[names[0]].commit != WORKTREE or not is_commit(link.commit):
        return ""
    git = book.evidence.library.clone(book.evidence.source(names[0]))
    if git is None or git.run("cat-file", "-e", f"{link.commit}^{{commit}}").status:
        return ""
    return names[0] if git.run("cat-file", "-e", f"{link.commit}:{link.path}").status else ""
