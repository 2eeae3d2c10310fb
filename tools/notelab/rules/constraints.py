"""N6xx: what a note must not hold: pasted source, drawn images."""

from collections.abc import Iterable, Iterator
from itertools import takewhile

from notelab.book.evidence import CitedFile
from notelab.book.view import View
from notelab.cache import CacheFile, cache_key
from notelab.page import results_page, tokens
from notelab.page.citation import Span
from notelab.report.finding import Finding


class Pinned:
    """The pinned files whose text is at hand, to compare pages with."""

    def __init__(self, files: Iterable[CitedFile], cache: CacheFile) -> None:
        """Compare nothing yet; the pages that share nothing with these files are remembered."""
        self._files, self._cache = list(files), cache
        self._blobs = cache_key(*(file.blob for file in self._files))

    def sharing(self, view: View) -> list[CitedFile]:
        """Return the files that have a run of tokens in common with a page."""
        key = f"{view.digest} {self._blobs}"
        if self._cache.get("own words", key) is not None:
            return []
        own = frozenset(tokens.run_hashes(token for token, _ in tokens.tokenize_page(view.text)))
        found = [file for file in self._files if not own.isdisjoint(file.runs())]
        if not found:
            self._cache.put("own words", key, b"")
        return found


def findings(view: View, pinned: Pinned) -> Iterator[Finding]:
    """Judge a page against every pinned file whose text is at hand."""
    if view.note is None:
        return
    for image in view.note.images:
        # A page that is generated, and no note, may show figures drawn from the same inputs.
        generated = not view.page.listed and results_page.is_generated(view.text)
        if image.description == "an image" and generated:
            continue
        yield view.finding(
            "N602",
            image.span,
            f"the page draws with {image.description}",
            expected="mermaid, and nothing else that draws",
        )
    for file in pinned.sharing(view):
        yield from _pasted(view, file)


def _pasted(view: View, file: CitedFile) -> Iterator[Finding]:
    """Find the pasted stretches by their tokens; a hash alone convicts nobody."""
    page = tokens.tokenize_page(view.text)
    words = [token for token, _ in page]
    source = tokens.tokenize_source(
        "\n".join(line.decode("utf-8", "replace") for line in file.lines)
    )
    where = {value: at for at, value in reversed(list(enumerate(tokens.run_hashes(source))))}
    at = 0
    hashes = tokens.run_hashes(words)
    while at < len(hashes):
        start = where.get(hashes[at])
        if start is None or source[start : start + tokens.RUN] != words[at : at + tokens.RUN]:
            at += 1
            continue
        pairs = zip(words[at:], source[start:], strict=False)
        length = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
        row, end = page[at][1], page[at + length - 1][1]
        yield view.finding(
            "N601",
            Span(row, 1, end, 1),
            f"{length} consecutive tokens here are those of `{file.path}`",
            expected=f"fewer than {tokens.RUN}; cite the lines, and say them in your own words",
            found="“" + " ".join(words[at : at + 8]) + " …”",
        )
        at += length
