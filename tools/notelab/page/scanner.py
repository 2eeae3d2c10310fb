"""Scans running text for paths, lines and addresses, and decides which of them are citations.

The scanner gets a paragraph as one text, in which special characters mark code spans and links, and
emphasis is removed: `**a.py**:15` becomes `a.py:15`. The text is split into tokens once. A citation
is a path with lines after or before it, an address, or a code span that is a citation itself.
"""

import re
from collections.abc import Callable, Iterator
from itertools import pairwise

import msgspec

from notelab.page import citation_syntax
from notelab.page.citation import Citation, Span, path_problem
from notelab.page.citation_syntax import (
    DASH,
    FILE_ENDING,
    LINE_WORD,
    RANGE,
    WINDOWS_PATH,
    is_same_place,
    parse_range,
    parse_ranges,
    same_lines,
    same_path,
    split_source,
)
from notelab.page.note import FileLink, Mention

CODE, CODE_END, LINK, LINK_END = "\ue000", "\ue001", "\ue002", "\ue003"
MARKS = re.compile("[\ue000-\ue003]")
_TO = rf"(?:\s?(?:{DASH}|to|a)\s?L?\d+)?"
_AND = r"(?:,\s?(?:and\s|y\s)?|\s?&\s?|\s(?:and|y)\s)"
# Further lines: `, L9`, ` and 9-11`, `,9`, or a number that ends its clause or has more behind it.
_ENDS = rf"(?=\s*(?:[).;]|$)|{_AND}[:#L]?\d)"
_MORE = rf"(?:{_AND}(?:L\d+{_TO}|\d+\s?{DASH}\s?\d+|(?<=,)\d+|\d+{_ENDS}))*"
_TOKEN = re.compile(
    rf"(?P<address>https?://[^\s<>\"`{CODE}-{LINK_END}]+)"
    rf"|{CODE}(?P<code>[^{CODE_END}]*){CODE_END}"
    rf"|(?P<link>{LINK})|(?P<end>{LINK_END})"
    r"|(?<![\w./:#@\\-])(?P<path>(?=[\w:-]*[./\[])(?:[A-Za-z][\w-]{0,39}:(?=[\w./]))?"
    r"[\w./~](?:[\w./~\\-]|\[\w+\])*+)"
    rf"|(?P<attached>[:#]L?\d+(?:C\d+|:\d+(?!\w))?{_TO}{_MORE})"
    rf"|(?<![\w/.-])(?P<lines>(?:{LINE_WORD} |L){RANGE}{_TO}(?:{_AND}L?\d+{_TO})*)"
)
_MAY_HAVE_LINES = re.compile(r"[:#][Ll]?\d|[Ll](?:ines?|[ií]neas?|l?\.)? ?\d")
# Lines that belong to the path of the citation before them: `a.py:12`, `:40-45`.
_CONTINUES = re.compile(rf"[:#]{RANGE}")
_JOINS = re.compile(rf"\s?[,;/+]\s?|{_AND}")
_WORDS = r"(?:(?:see|at|on|in|from|around|about|near|véase|ver|en|la|las|el|desde|the|its?)\s)*"
_PATH_THEN_LINES = re.compile(rf"[\s,;({CODE_END}{LINK_END}\u2013\u2014-]*{_WORDS}", re.IGNORECASE)
_LINES_THEN_PATH = re.compile(
    r"\s(?:of|in|from|de|en|del)\s(?:(?:the|el)\s)?(?:(?:file|archivo|fichero)\s)?", re.IGNORECASE
)
_PATH = re.compile(r"[^\s:#,()]*[^\s:#,().]")
_MAX_DISTANCE = 120  # characters between a path and lines that may belong to it


class ScannedText(msgspec.Struct):
    """What a text cites: citations, links to whole files, and mentions of paths near lines.

    `paths` are the offsets of the code spans that are the path of lines outside of them.
    """

    citations: list[Citation] = []
    files: list[FileLink] = []
    mentions: list[Mention] = []
    paths: set[int] = set()


class _Token(msgspec.Struct):
    kind: str
    text: str
    start: int
    end: int
    targets: list[Citation | FileLink] = []


class _Label(msgspec.Struct):
    """A link: its label's first and last token, and what its target cites."""

    first: int
    last: int
    target: Citation | FileLink | None


def scan_text(
    text: str,
    to_span: Callable[[int, int], Span],
    codes: dict[int, list[Citation | FileLink]] | None = None,
    links: list[Citation | FileLink | None] | None = None,
) -> ScannedText:
    """Scan the text of a paragraph.

    Args:
        text: the text with marked code spans and links; a code span that cites is empty.
        to_span: returns the span in the page of a range of the text.
        codes: what each code span cites by itself, by the offset of its mark.
        links: what the target of each link cites, in the order of the closing marks.
    """
    if any(links or ()) or "://" in text or _MAY_HAVE_LINES.search(text):
        return _Scanner(text, to_span, codes or {}, links or []).run()
    targets = [target for code_targets in (codes or {}).values() for target in code_targets]
    return _divide(targets)


def _divide(targets: list[Citation | FileLink]) -> ScannedText:
    files = [target for target in targets if isinstance(target, FileLink)]
    return ScannedText([target for target in targets if isinstance(target, Citation)], files)


class _Scanner:
    def __init__(
        self,
        text: str,
        to_span: Callable[[int, int], Span],
        codes: dict[int, list[Citation | FileLink]],
        links: list[Citation | FileLink | None],
    ) -> None:
        self.text, self.to_span = text, to_span
        self.tokens = [
            _Token(str(match.lastgroup), match[0], match.start(), match.end())
            for match in _TOKEN.finditer(text)
        ]
        for token in self.tokens:
            token.targets = codes.get(token.start, []) if token.kind == "code" else []
            token.text = token.text.strip(CODE + CODE_END)
        self.targets: list[tuple[int, Citation | FileLink]] = []
        self.paths: set[int] = set()
        self.used: set[int] = set()  # tokens that are part of a citation
        self.labels = list(self._find_labels(links))

    def run(self) -> ScannedText:
        self._find_standalone()
        self._find_pairs()
        self._find_continuations()
        for label in self.labels:
            self._merge_label(label)
        targets = sorted(self.targets, key=lambda pair: pair[0])
        result = _divide([target for _, target in targets])
        result.mentions, result.paths = list(self._find_mentions()), self.paths
        return result

    def _find_labels(self, links: list[Citation | FileLink | None]) -> Iterator[_Label]:
        open_links: list[int] = []
        targets = iter(links)
        for index, token in enumerate(self.tokens):
            if token.kind == "link":
                open_links.append(index)
            elif token.kind == "end" and open_links:
                yield _Label(open_links.pop(), index, next(targets, None))

    def _find_standalone(self) -> None:
        """Add each address and each code span that is a citation by itself."""
        inside = {
            index
            for label in self.labels
            for index in range(label.first, label.last)
            if label.target
        }
        for index, token in enumerate(self.tokens):
            self.targets += [(token.start, target) for target in token.targets]
            if token.targets:
                self.used.add(index)
            elif token.kind == "code" and _holds_citation(token.text):
                text, code_span = token.text, self.to_span(token.start, token.end)
                problem = "must be `path:L<first>-L<last>` and nothing else"
                self.targets.append(
                    (token.start, Citation(text, "", text, 0, 0, problem, code_span))
                )
                self.used.add(index)
            elif token.kind == "address" and index not in inside:  # a link's target says the same
                for address, offset in citation_syntax.find_addresses(token.text):
                    start = token.start + offset
                    span = self.to_span(start, start + len(address))
                    self.targets.append((start, citation_syntax.read(address, span)))

    def _find_pairs(self) -> None:
        """Add each path with lines directly after or before it that are not in one code span."""
        candidates = [
            index for index, token in enumerate(self.tokens) if token.kind not in ("link", "end")
        ]
        for first_index, second_index in pairwise(candidates):
            if first_index in self.used or second_index in self.used:
                continue
            first, second = self.tokens[first_index], self.tokens[second_index]
            between = self.text[first.end : second.start]
            path, lines = (first, second) if _is_lines(second) else (second, first)
            if not _is_lines(lines) or _is_lines(path) or not _is_path(path, lines):
                continue
            separator = _PATH_THEN_LINES if path is first else _LINES_THEN_PATH
            gap_text = MARKS.sub("", between)
            if gap_text if lines.kind == "attached" else not separator.fullmatch(between):
                continue
            span = self.to_span(first.start, second.end)
            text = f"{path.text}{'' if lines.kind == 'attached' else ', '}{lines.text}"
            if path is second:
                text = f"{lines.text}{between}{path.text}"
            self._add_apart(MARKS.sub("", text), path.text, lines, span, first.start)
            self.paths |= {path.start} if path.kind == "code" else set()
            self.used |= {first_index, second_index}

    def _find_continuations(self) -> None:
        """Add lines without a path that follow a citation and a comma."""
        ends = {token.start: token.end for token in self.tokens}
        last = {  # by the end of their text
            ends[start]: target
            for start, target in self.targets
            if isinstance(target, Citation) and not (target.repository or target.symbol)
        }
        for index, (first, second) in enumerate(pairwise(self.tokens), start=1):
            before = last.get(first.end)
            if before is None and first.kind == "attached" and index > 1:
                before = last.get(self.tokens[index - 2].end)  # the path that it follows
            gap = MARKS.sub("", self.text[first.end : second.start])
            if (
                before is None
                or second.kind not in ("code", "attached")
                or index in self.used
                or not _CONTINUES.fullmatch(second.text)
                or not _JOINS.fullmatch(gap)
            ):
                continue
            lines, at = second.text[1:], self.text.find(second.text[1:], second.start)
            start, end, problem = parse_range(lines)
            span = self.to_span(at, at + len(lines))
            citation = Citation(
                lines, before.source, before.path, start, end, before.problem or problem,
                span, form="range",
            )  # fmt: skip
            self.targets.append((second.start, citation))
            self.used.add(index)
            last[second.end] = citation

    def _add_apart(
        self, text: str, written_path: str, lines: _Token, span: Span, start: int
    ) -> None:
        """Add a citation for each range of the lines next to a path."""
        source, path = split_source(written_path)
        at = lines.start
        ranges = list(parse_ranges(lines.text))
        for index, (written, first, last, problem) in enumerate(ranges):
            at = self.text.find(written, at)
            is_first = not index and (len(ranges) == 1 or start < lines.start)
            if is_first and len(ranges) > 1:
                text = text[: text.find(written) + len(written)]
                span = self.to_span(start, at + len(written))
            citation = Citation(
                text if is_first else written, source, path, first, last,
                path_problem(path) or problem,
                span if is_first else self.to_span(at, at + len(written)),
                form="apart" if is_first else "range",
            )  # fmt: skip
            self.targets.append((start, citation))

    def _merge_label(self, label: _Label) -> None:
        """Make one citation of a link's label and its target; record where they differ."""
        target = label.target
        if target is None:
            return
        start, end = self.tokens[label.first].start, self.tokens[label.last].end
        inside = [pair for pair in self.targets if start < pair[0] < end]
        label_citations = [
            citation
            for _, citation in inside
            if isinstance(citation, Citation)
            and (citation.form != "maybe" or same_path(citation.path, target))
        ]
        if isinstance(target, FileLink):
            self.targets.append((start, target))
            for index, (offset, citation) in enumerate(self.targets):
                if (
                    isinstance(citation, Citation)
                    and citation in label_citations
                    and not same_path(citation.path, target)
                ):
                    changed = msgspec.structs.replace(citation, label=target.text)
                    self.targets[index] = offset, changed
            return
        conflicts = [
            citation.text for citation in label_citations if not is_same_place(citation, target)
        ]
        conflicts = conflicts or self._find_conflicts(label, target)
        self.targets = [pair for pair in self.targets if pair not in inside]
        self.targets.append((start, msgspec.structs.replace(target, label=(conflicts or [""])[0])))
        self.used |= set(range(label.first, label.last))

    def _find_conflicts(self, label: _Label, target: Citation) -> list[str]:
        """Return the path or the lines in a label that differ from the target's."""
        inner = range(label.first + 1, label.last)
        tokens = [self.tokens[index] for index in inner if index not in self.used]
        if target.problem:
            return []
        conflicts = [
            token.text
            for token in tokens
            if _is_lines(token) and not same_lines(token.text, target)
        ]
        label_text = self.text[self.tokens[label.first].end : self.tokens[label.last].start]
        paths = [
            token for token in tokens if not _is_lines(token) and FILE_ENDING.search(token.text)
        ]
        if len(paths) == 1 and MARKS.sub("", label_text).strip() == paths[0].text:
            conflicts += [] if same_path(paths[0].text, target) else [paths[0].text]
        return conflicts

    def _find_mentions(self) -> Iterator[Mention]:
        """Yield each path with lines nearby that is part of no citation."""
        paths = [token for token in self.tokens if _may_be_path(token)]
        code_targets = {token.start: token.targets for token in self.tokens if token.targets}
        for index, token in enumerate(self.tokens):
            if index in self.used or not _is_lines(token):
                continue
            near_paths = [
                (_distance(path, token), path)
                for path in paths
                if _distance(path, token) <= _MAX_DISTANCE
            ]
            if token.kind == "attached":
                near_paths = [pair for pair in near_paths if pair[1].end == token.start]
            if not near_paths:
                continue
            path = min(near_paths, key=lambda pair: pair[0])[1]
            first, last, _ = parse_range(token.text)
            code_citations = [
                citation
                for targets in code_targets.values()
                for citation in targets
                if isinstance(citation, Citation)
            ]
            if any(
                citation.first <= first and last <= citation.last for citation in code_citations
            ):
                continue  # these lines are part of a citation
            text = self.text[min(path.start, token.start) : max(path.end, token.end)]
            if path.targets:
                text, name = f"{path.targets[0].text} … {token.text}", path.targets[0].path
            elif match := _PATH.match(path.text):
                name = match[0]
            else:
                continue
            yield Mention(MARKS.sub("", text), name, self.to_span(token.start, token.end))


def _holds_citation(code: str) -> bool:
    """Return whether a code span that is no citation holds a path with lines among its words."""
    if "://" in code or not _MAY_HAVE_LINES.search(code):
        return False
    return bool(scan_text(code, lambda start, end: Span(1, 1, 1, 1)).citations)


def _distance(first: _Token, second: _Token) -> int:
    return max(first.start - second.end, second.start - first.end, 0)


def _is_lines(token: _Token) -> bool:
    return token.kind in ("lines", "attached")


def _is_path(token: _Token, lines: _Token) -> bool:
    """Return whether a token can be the path of the lines next to it."""
    if token.kind not in ("code", "path") or re.search(r"\s", token.text):
        return False
    if WINDOWS_PATH.match(token.text):
        return False
    explicit = lines.kind == "attached" and lines.text.startswith(":L")
    return FILE_ENDING.search(token.text) is not None or (explicit and token.kind == "path")


def _may_be_path(token: _Token) -> bool:
    if token.kind not in ("code", "path"):
        return False
    return bool(token.targets) or bool(re.search(r"\w[./]\w|\A[A-Z][a-z]+file\b", token.text))
