"""N234, N6xx: checks quotations of the cited lines, and that nothing else is pasted or drawn."""

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import takewhile

import msgspec

from notelab.book.evidence import CitedFile, State
from notelab.book.resolve import Resolver
from notelab.cache import CacheFile, cache_key
from notelab.cited import tokens
from notelab.finding import Finding
from notelab.lab.pages import ParsedPage
from notelab.page import results_page
from notelab.page.citation import Citation, Span, format_citation
from notelab.page.note import Quotation

# `…`, a line of three dots, or a comment that begins with them and may say what is left out.
_OMISSION = re.compile(
    r"^\s*(?://+|\#+|/?\*+|--+|;+|%+|<!--)\s*(?:\.\.\.|…).*$|^\W*(?:\.\.\.|…)\W*$|…", re.MULTILINE
)
PageQuotation = tuple[Quotation, Citation, Finding | None]
_SPACE = re.compile(r"\s+")
_MOST, _LONGEST = 200, 2_000_000  # places of a quotation, characters of a file
_ENDINGS = {"python": "py", "rust": "rs", "typescript": "ts", "javascript": "js", "c++": "cpp"}
_ENOUGH = 0.5  # the share of its lines that a file must have if a fence is to quote it


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
            tokens.run_hashes([token for token, _ in tokens.tokenize_page(view.text)])
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


class _Text(msgspec.Struct):
    """The lines of a file without white space: their joined text, and where each line begins."""

    text: str
    starts: list[int]

    def find(self, pieces: list[str], first: int, last: int) -> tuple[int, int] | None:
        """Return the shortest range, within two lines, that holds all pieces in order."""
        limit, at = self.starts[last], self.starts[first - 1] - 1
        ranges: list[tuple[int, int]] = []
        while len(ranges) < _MOST and (at := self._find_line(pieces[0], at + 1, limit)) >= 0:
            end = at
            for piece in pieces:
                place = self.text.find(piece, end, limit)
                if place < 0:  # nor is it behind a later place of the first piece
                    return min(ranges, key=lambda rows: rows[1] - rows[0], default=None)
                end = place + len(piece)
            ranges.append((bisect_right(self.starts, at), bisect_right(self.starts, end - 1)))
        return min(ranges, key=lambda rows: rows[1] - rows[0], default=None)

    def has_text(self, row: int) -> bool:
        """Return whether a line has more than white space."""
        return self.starts[row] > self.starts[row - 1]

    def _find_line(self, piece: str, start: int, end: int) -> int:
        """Return where a piece begins with a line, or -1."""
        at = self.text.find(piece, start, end)
        while at >= 0 and self.starts[bisect_right(self.starts, at) - 1] != at:
            at = self.text.find(piece, at + 1, end)
        return at


def find_quotations(resolver: Resolver, view: ParsedPage) -> Iterator[PageQuotation]:
    """Yield each fence of a page that quotes a cited file, with its citation.

    There is a finding if it quotes other lines than the cited ones.

    A fence quotes a file if half of its lines are in the file, or if the paragraph before it ends
    with a citation and the fence has the language of its file.
    """
    if view.note is None or not view.note.quotations:
        return
    cited = {each.span: each for each in view.note.citations if not each.problem}
    texts_by_blob: dict[str, _Text] = {}
    for quotation in view.note.quotations:
        citations = [cited[span] for span in quotation.citations if span in cited]
        files = [resolver.resolve(citation).file for citation in citations]
        pairs = [
            (citation, file)
            for citation, file in zip(citations, files, strict=True)
            if file and file.state is State.PROVED and citation.last <= len(file.lines)
            if 0 < citation.first <= citation.last and sum(map(len, file.lines)) < _LONGEST
        ]
        if pairs:
            yield from _judge(view, quotation, pairs, texts_by_blob)


def split_quotation(text: str) -> list[str]:
    """Return the lines of a quotation, without blank ones and what stands for omitted ones."""
    return [line for part in _OMISSION.split(text) for line in part.split("\n") if line.strip()]


def _judge(
    view: ParsedPage,
    quotation: Quotation,
    pairs: list[tuple[Citation, CitedFile]],
    texts_by_blob: dict[str, _Text],
) -> Iterator[PageQuotation]:
    for _, file in pairs:
        if file.blob not in texts_by_blob:
            texts_by_blob[file.blob] = _strip_lines(file)
    texts = [texts_by_blob[file.blob] for _, file in pairs]
    names = [file.path.rpartition("/")[2] for _, file in pairs]
    first_line, _, rest = quotation.text.partition("\n")
    quoted = rest if any(name in first_line for name in names) else quotation.text
    pieces = [piece for piece in map(_strip, _OMISSION.split(quoted)) if piece]
    lines = split_quotation(quoted)
    if not pieces:
        return
    for (citation, _), text in zip(pairs, texts, strict=True):
        if text.find(pieces, citation.first, citation.last):
            yield quotation, citation, None
            return
    if len({file.blob for _, file in pairs}) == 1 < len(pairs):  # one fence for several ranges
        cited = {row for each, _ in pairs for row in range(each.first, each.last + 1)}
        place = texts[0].find(pieces, min(cited), max(cited))
        lines_between = range(place[0], place[1] + 1) if place else ()
        blank = {row for row in lines_between if not texts[0].has_text(row)}
        if place and cited.union(blank).issuperset(lines_between):
            yield quotation, pairs[0][0], None
            return
    citation, file = pairs[-1]
    for (citation, file), text in zip(pairs, texts, strict=True):
        if place := text.find(pieces, 1, len(file.lines)):
            held = format_citation(citation.path, *place)
            help = f"`{held}` holds all of it"
            yield quotation, citation, _report(view, quotation, citation, help)
            return
    file_lines = {_strip(line.decode("utf-8", "replace")) for line in file.lines}
    missing = [line for line in lines if _strip(line) not in file_lines]
    is_similar = len(missing) <= (1 - _ENOUGH) * len(lines)
    has_language = file.path.endswith(f".{_ENDINGS.get(quotation.language, quotation.language)}")
    if is_similar or (quotation.ends_with_citation and quotation.language and has_language):
        help = f"the file has no line “{missing[0].strip()[:80]}”" if missing else ""
        yield quotation, citation, _report(view, quotation, citation, help)


def _report(view: ParsedPage, quotation: Quotation, citation: Citation, help: str) -> Finding:
    return view.finding(
        "N234",
        quotation.span,
        f"the quotation after `{citation.text[:200]}` holds other lines than the cited ones",
        expected="the cited lines, with `…` for what is left out",
        help=help,
    )


def _strip(line: str) -> str:
    return _SPACE.sub("", line)


def _strip_lines(file: CitedFile) -> _Text:
    starts, pieces, at = [0], [], 0
    for line in file.lines:
        pieces.append(_strip(line.decode("utf-8", "replace")))
        at += len(pieces[-1])
        starts.append(at)
    return _Text("".join(pieces), starts)
