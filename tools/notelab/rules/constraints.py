"""N6xx: checks that a page holds no pasted source and no drawn images."""

from collections.abc import Iterable, Iterator
from itertools import takewhile

from notelab.book.evidence import CitedFile
from notelab.book.parsed_page import ParsedPage
from notelab.cache import CacheFile, cache_key
from notelab.cited import tokens
from notelab.finding import Finding
from notelab.page import results_page
from notelab.page.citation import Span


class Pinned:
    """The pinned files whose text is available, for comparison with pages."""

    def __init__(self, files: Iterable[CitedFile], cache: CacheFile) -> None:
        """Prepare; `cache` stores which pages share nothing with these files."""
        self._files, self._cache = list(files), cache
        self._blobs = cache_key(*(file.blob for file in self._files))

    def sharing(self, view: ParsedPage) -> list[CitedFile]:
        """Return the files that share a run of tokens with a page."""
        key = f"{view.digest} {self._blobs}"
        if self._cache.get("own words", key) is not None:
            return []
        page_hashes = frozenset(
            tokens.run_hashes(token for token, _ in tokens.tokenize_page(view.text))
        )
        sharing_files = [file for file in self._files if not page_hashes.isdisjoint(file.runs())]
        if not sharing_files:
            self._cache.put("own words", key, b"")
        return sharing_files


def findings(view: ParsedPage, pinned: Pinned, allowed: list[Span]) -> Iterator[Finding]:
    """Check a page against every pinned file whose text is available, except in `allowed` rows."""
    if view.note is None:
        return
    for image in view.note.images:
        # A generated page that is no note may show figures drawn from the same inputs.
        generated = not view.page.listed and results_page.is_generated(view.text)
        if image.description == "an image" and generated:
            continue
        yield view.finding(
            "N602",
            image.span,
            f"the page draws with {image.description}",
            expected="mermaid only",
        )
    for file in pinned.sharing(view):
        for finding in _find_pasted(view, file):
            first, last = finding.span.row, finding.span.end_row
            if not any(each.row <= first and last <= each.end_row for each in allowed):
                yield finding


def _find_pasted(view: ParsedPage, file: CitedFile) -> Iterator[Finding]:
    """Yield a finding for each pasted passage; equal hashes are confirmed by comparing tokens."""
    page = tokens.tokenize_page(view.text)
    words = [token for token, _ in page]
    source = tokens.tokenize_source(
        "\n".join(line.decode("utf-8", "replace") for line in file.lines)
    )
    positions = {
        value: index for index, value in reversed(list(enumerate(tokens.run_hashes(source))))
    }
    index = 0
    hashes = tokens.run_hashes(words)
    while index < len(hashes):
        start = positions.get(hashes[index])
        if start is None or source[start : start + tokens.RUN] != words[index : index + tokens.RUN]:
            index += 1
            continue
        pairs = zip(words[index:], source[start:], strict=False)
        length = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
        row, end = page[index][1], page[index + length - 1][1]
        yield view.finding(
            "N601",
            Span(row, 1, end, 1),
            f"{length} consecutive tokens here are the same as in `{file.path}`",
            expected=f"fewer than {tokens.RUN}; cite the lines and say in your own words what "
            "they do",
            found="“" + " ".join(words[index : index + 8]) + " …”",
        )
        index += length
