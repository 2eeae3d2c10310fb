"""The one scanner of running text: paths, lines and addresses, and which of them are a citation.

A paragraph comes as one text in which code spans and links stand between marks of their own, and
emphasis is gone: `**a.py**:15` reads as `a.py:15`. It is cut into tokens once; a citation is a path
with lines after or before it, an address, or a code span that is one by itself.
"""

import re
from collections.abc import Callable, Iterator
from itertools import pairwise

import msgspec

from notelab.page import permalink
from notelab.page.citation import Citation, Span
from notelab.page.link_label import NOT_IN_CODE, is_same, same_lines, same_path
from notelab.page.note import FileLink, Mention
from notelab.page.spelling import DASH, FILE_ENDING, LINE_WORD, RANGE, lines_of, possible_path

CODE, CODE_END, LINK, LINK_END = "\ue000", "\ue001", "\ue002", "\ue003"
MARKS = re.compile("[\ue000-\ue003]")
_TO = rf"(?:\s?(?:{DASH}|to|a|and|y)\s?L?\d+)?"
_TOKEN = re.compile(
    rf"(?P<address>https?://[^\s<>\"`{CODE}-{LINK_END}]+)"
    rf"|{CODE}(?P<code>[^{CODE_END}]*){CODE_END}"
    rf"|(?P<link>{LINK})|(?P<end>{LINK_END})"
    r"|(?<![\w./:#@-])(?P<path>(?=[\w:-]*[./\[])(?:[A-Za-z][\w-]{0,39}:(?=[\w./]))?"
    r"[\w./~](?:[\w./~\\-]|\[\w+\])*+)"
    rf"|(?P<attached>[:#]L?\d+{_TO})"
    rf"|(?<![\w/.-])(?P<lines>(?:{LINE_WORD} |L){RANGE}{_TO})"
)
_MAY_HAVE_LINES = re.compile(r"[:#][Ll]?\d|[Ll](?:ines?|[ií]neas?|l?\.)? ?\d")
_WORDS = r"(?:(?:see|at|on|in|from|around|about|near|véase|ver|en|la|las|el|desde|the|its?)\s)*"
_AFTER = re.compile(rf"[\s,;({CODE_END}{LINK_END}\u2013\u2014-]*{_WORDS}", re.IGNORECASE)
_BEFORE = re.compile(
    r"\s(?:of|in|from|de|en|del)\s(?:(?:the|el)\s)?(?:(?:file|archivo|fichero)\s)?", re.IGNORECASE
)
_PATH = re.compile(r"[^\s:#,()]*[^\s:#,().]")
_FAR = 120  # characters between a path and lines that may belong to it


class Scanned(msgspec.Struct):
    """What a text cites, the whole files that it links to, and what only looks like a citation."""

    citations: list[Citation] = []
    files: list[FileLink] = []
    mentions: list[Mention] = []


class _Token(msgspec.Struct):
    kind: str
    text: str
    start: int
    end: int
    cited: list[Citation | FileLink] = []


class _Label(msgspec.Struct):
    """A link: the tokens of its label, and what its target cites."""

    first: int
    last: int
    target: Citation | FileLink | None


def scan(
    text: str,
    place: Callable[[int, int], Span],
    codes: dict[int, list[Citation | FileLink]] | None = None,
    links: list[Citation | FileLink | None] | None = None,
) -> Scanned:
    """Scan a paragraph's text.

    Args:
        text: with code spans and links between marks; a code span that cites is empty.
        place: the place in the page of a stretch of the text.
        codes: what each code span cites by itself, by where its mark stands in the text.
        links: what the target of each link cites, in the order of their closing marks.
    """
    if any(links or ()) or "://" in text or _MAY_HAVE_LINES.search(text):
        return _Scan(text, place, codes or {}, links or []).run()
    alone = [one for cited in (codes or {}).values() for one in cited]
    files = [one for one in alone if isinstance(one, FileLink)]
    return Scanned([one for one in alone if isinstance(one, Citation)], files)


class _Scan:
    def __init__(
        self,
        text: str,
        place: Callable[[int, int], Span],
        codes: dict[int, list[Citation | FileLink]],
        links: list[Citation | FileLink | None],
    ) -> None:
        self.text, self.place = text, place
        self.tokens = [
            _Token(str(found.lastgroup), found[0], found.start(), found.end())
            for found in _TOKEN.finditer(text)
        ]
        for token in self.tokens:
            token.cited = codes.get(token.start, []) if token.kind == "code" else []
            token.text = token.text.strip(CODE + CODE_END)
        self.found: list[tuple[int, Citation | FileLink]] = []
        self.possible: list[Mention] = []  # code spans that cite if the tree has their path
        self.taken: set[int] = set()  # tokens that are part of a citation
        self.labels = list(self._labels(links))

    def run(self) -> Scanned:
        self._alone()
        self._pairs()
        for label in self.labels:
            self._agree(label)
        cited = [one for _, one in sorted(self.found, key=lambda pair: pair[0])]
        scanned = Scanned([one for one in cited if isinstance(one, Citation)])
        scanned.files = [one for one in cited if isinstance(one, FileLink)]
        scanned.mentions = self.possible + list(self._mentions(scanned.citations))
        return scanned

    def _labels(self, links: list[Citation | FileLink | None]) -> Iterator[_Label]:
        opened: list[int] = []
        targets = iter(links)
        for at, token in enumerate(self.tokens):
            if token.kind == "link":
                opened.append(at)
            elif token.kind == "end" and opened:
                yield _Label(opened.pop(), at, next(targets, None))

    def _alone(self) -> None:
        """Take what is a citation by itself: an address, or a code span."""
        inside = {at for one in self.labels for at in range(one.first, one.last) if one.target}
        for at, token in enumerate(self.tokens):
            self.found += [(token.start, one) for one in token.cited]
            if token.cited:
                self.taken.add(at)
            elif token.kind == "code" and _cites_within(token.text):
                said, place = token.text, self.place(token.start, token.end)
                problem = "is not `path:L<first>-L<last>` alone"
                self.found.append((token.start, Citation(said, "", said, 0, 0, problem, place)))
                self.taken.add(at)
            elif token.kind == "code" and (path := possible_path(token.text)):
                place = self.place(token.start, token.end)
                self.possible.append(Mention(token.text, path, place))
            elif token.kind == "address" and at not in inside:  # a link's target says the same
                for address, offset in permalink.found_in(token.text):
                    start = token.start + offset
                    span = self.place(start, start + len(address))
                    self.found.append((start, permalink.read(address, span)))

    def _pairs(self) -> None:
        """Take each path with lines right after it, or before it, that stand outside one code."""
        seen = [at for at, token in enumerate(self.tokens) if token.kind not in ("link", "end")]
        for one, two in pairwise(seen):
            if one in self.taken or two in self.taken:
                continue
            first, second = self.tokens[one], self.tokens[two]
            between = self.text[first.end : second.start]
            path, lines = (first, second) if _is_lines(second) else (second, first)
            if not _is_lines(lines) or _is_lines(path) or not _is_path(path, lines):
                continue
            glue = _AFTER if path is first else _BEFORE
            bare = MARKS.sub("", between)
            if bare if lines.kind == "attached" else not glue.fullmatch(between):
                continue
            span = self.place(first.start, second.end)
            said = f"{path.text}{'' if lines.kind == 'attached' else ', '}{lines.text}"
            if path is second:
                said = f"{lines.text}{between}{path.text}"
            said = MARKS.sub("", said)
            self.found.append((first.start, Citation(said, "", said, 0, 0, NOT_IN_CODE, span)))
            self.taken |= {one, two}

    def _agree(self, label: _Label) -> None:
        """Make one citation of a link's label and its target; keep where they differ."""
        target = label.target
        if target is None:
            return
        start, end = self.tokens[label.first].start, self.tokens[label.last].end
        inside = [pair for pair in self.found if start < pair[0] < end]
        said = [one for _, one in inside if isinstance(one, Citation)]
        if isinstance(target, FileLink):
            self.found.append((start, target))
            for at, (place, one) in enumerate(self.found):
                if isinstance(one, Citation) and one in said and not same_path(one.path, target):
                    changed = msgspec.structs.replace(one, label=target.text)
                    self.found[at] = place, changed
            return
        other = [one.text for one in said if not is_same(one, target)]
        other = other or self._differs(label, target)
        self.found = [pair for pair in self.found if pair not in inside]
        self.found.append((start, msgspec.structs.replace(target, label=(other or [""])[0])))
        self.taken |= set(range(label.first, label.last))

    def _differs(self, label: _Label, target: Citation) -> list[str]:
        """Return the path or the lines alone that a label says and that aren't the target's."""
        inner = range(label.first + 1, label.last)
        tokens = [self.tokens[at] for at in inner if at not in self.taken]
        if target.problem:
            return []
        wrong = [one.text for one in tokens if _is_lines(one) and not same_lines(one.text, target)]
        whole = self.text[self.tokens[label.first].end : self.tokens[label.last].start]
        paths = [one for one in tokens if not _is_lines(one) and FILE_ENDING.search(one.text)]
        if len(paths) == 1 and MARKS.sub("", whole).strip() == paths[0].text:
            wrong += [] if same_path(paths[0].text, target) else [paths[0].text]
        return wrong

    def _mentions(self, citations: list[Citation]) -> Iterator[Mention]:
        """Yield each path with lines near by that no citation has taken."""
        paths = [token for token in self.tokens if _may_be_path(token)]
        cited = {token.start: token.cited for token in self.tokens if token.cited}
        for at, token in enumerate(self.tokens):
            if at in self.taken or not _is_lines(token):
                continue
            near = [(_gap(path, token), path) for path in paths if _gap(path, token) <= _FAR]
            if token.kind == "attached":
                near = [pair for pair in near if pair[1].end == token.start]
            if not near:
                continue
            path = min(near, key=lambda pair: pair[0])[1]
            first, last, _ = lines_of(token.text)
            meant = [one for held in cited.values() for one in held if isinstance(one, Citation)]
            if any(one.first <= first and last <= one.last for one in meant):
                continue  # of lines that are cited
            said = self.text[min(path.start, token.start) : max(path.end, token.end)]
            if path.cited:
                said, name = f"{path.cited[0].text} … {token.text}", path.cited[0].path
            elif found := _PATH.match(path.text):
                name = found[0]
            else:
                continue
            yield Mention(MARKS.sub("", said), name, self.place(token.start, token.end))


def _cites_within(code: str) -> bool:
    """Tell whether a code span that is no citation holds a path with its lines among words."""
    if "://" in code or not _MAY_HAVE_LINES.search(code):
        return False
    return bool(scan(code, lambda start, end: Span(1, 1, 1, 1)).citations)


def _gap(one: _Token, other: _Token) -> int:
    return max(one.start - other.end, other.start - one.end, 0)


def _is_lines(token: _Token) -> bool:
    return token.kind in ("lines", "attached")


def _is_path(token: _Token, lines: _Token) -> bool:
    """Tell whether a token reads as a path for lines that stand right by it."""
    if token.kind not in ("code", "path") or re.search(r"\s", token.text):
        return False
    explicit = lines.kind == "attached" and lines.text.startswith(":L")
    return FILE_ENDING.search(token.text) is not None or (explicit and token.kind == "path")


def _may_be_path(token: _Token) -> bool:
    if token.kind not in ("code", "path"):
        return False
    return bool(token.cited) or bool(re.search(r"\w[./]\w|\A[A-Z][a-z]+file\b", token.text))
