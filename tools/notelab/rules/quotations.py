"""N234: checks that a quotation directly after a citation holds the cited lines."""

import re
from bisect import bisect_right
from collections.abc import Iterator

import msgspec

from notelab.book.evidence import CitedFile, State
from notelab.book.parsed_page import ParsedPage
from notelab.book.workbook import Workbook
from notelab.finding import Finding
from notelab.page.citation import Citation, format_citation
from notelab.page.note import Quotation

_OMISSION = re.compile(r"^\W*(?:\.\.\.|…)\W*$|…", re.MULTILINE)
_SPACE = re.compile(r"\s+")
_MOST, _LONGEST = 200, 2_000_000  # places of a quotation, characters of a file
_ENDINGS = {"python": "py", "rust": "rs", "typescript": "ts", "javascript": "js", "c++": "cpp"}
_ENOUGH = 0.5  # the share of its lines that a file must have if a fence is to quote it


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

    def _find_line(self, piece: str, start: int, end: int) -> int:
        """Return where a piece begins with a line, or -1."""
        at = self.text.find(piece, start, end)
        while at >= 0 and self.starts[bisect_right(self.starts, at) - 1] != at:
            at = self.text.find(piece, at + 1, end)
        return at


def find_quotations(book: Workbook, view: ParsedPage) -> Iterator[tuple[Quotation, Finding | None]]:
    """Yield each fence of a page that quotes a cited file, and a finding if it quotes other lines.

    A fence quotes a file if half of its lines are in the file, or if the paragraph before it ends
    with a citation and the fence has the language of its file.
    """
    if view.note is None:
        return
    cited = {each.span: each for each in view.note.citations if not each.problem}
    for quotation in view.note.quotations:
        citations = [cited[span] for span in quotation.citations if span in cited]
        files = [book.resolver.resolve(citation).file for citation in citations]
        pairs = [
            (citation, file)
            for citation, file in zip(citations, files, strict=True)
            if file and file.state is State.PROVED and citation.last <= len(file.lines)
            if 0 < citation.first <= citation.last and sum(map(len, file.lines)) < _LONGEST
        ]
        if pairs:
            yield from _judge(view, quotation, pairs)


def _judge(
    view: ParsedPage, quotation: Quotation, pairs: list[tuple[Citation, CitedFile]]
) -> Iterator[tuple[Quotation, Finding | None]]:
    texts = [_strip_lines(file) for _, file in pairs]
    names = [file.path.rpartition("/")[2] for _, file in pairs]
    first_line, _, rest = quotation.text.partition("\n")
    quoted = rest if any(name in first_line for name in names) else quotation.text
    pieces = [_SPACE.sub("", piece) for piece in _OMISSION.split(quoted)]
    pieces = [piece for piece in pieces if piece]
    lines = [line for line in map(_strip, quoted.split("\n")) if line]
    if not pieces:
        return
    for (citation, _), text in zip(pairs, texts, strict=True):
        if text.find(pieces, citation.first, citation.last):
            yield quotation, None
            return
    citation, file = pairs[-1]
    for (citation, file), text in zip(pairs, texts, strict=True):
        if place := text.find(pieces, 1, len(file.lines)):
            held = format_citation(citation.path, *place)
            yield quotation, _report(view, quotation, citation, f"`{held}` holds all of it")
            return
    file_lines = {_strip(line.decode("utf-8", "replace")) for line in file.lines}
    missing = [line for line in quoted.split("\n") if _strip(line) not in file_lines | {""}]
    is_similar = len(lines) - len(missing) >= _ENOUGH * len(lines)
    has_language = file.path.endswith(f".{_ENDINGS.get(quotation.language, quotation.language)}")
    if is_similar or (quotation.ends_with_citation and quotation.language and has_language):
        help = f"the file has no line “{missing[0].strip()[:80]}”" if missing else ""
        yield quotation, _report(view, quotation, citation, help)


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
