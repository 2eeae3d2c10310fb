"""What the text around a citation names, and how well some lines of a file fit these names."""

import re
from collections.abc import Iterable
from functools import cache

import msgspec

from notelab.lines import is_anchor
from notelab.page.candidates import Candidate
from notelab.page.citation_syntax import looks_like_citation
from notelab.repin.version import Version, base_name

_PATH = re.compile(
    r"[\w.@-]*(?:/[\w.@*-]*)+|[\w.-]+\.(?:rs|py|go|tsx?|jsx?|java|md|toml|json)(?![\w(])"
)
_CODE = re.compile(r"`+([^`]+)`+")
_NO_PROSE = re.compile(r"`+[^`]+`+|(?<=\]\()[^)\s]+")  # code, and where a link leads to
# Words in plain text that can only be identifiers: with an underscore, a call, or a capital inside.
_IDENTIFIER = re.compile(r"\b(?:\w+_\w+|[a-z]+[A-Z]\w*|[A-Z][a-z0-9]+[A-Z]\w*|\w{3,}(?=\(\)))")
_CHAIN = re.compile(r"[^\W\d]\w*(?:(?:\.|::|#|->)~?[^\W\d]\w*)*")
_HYPHENATED = re.compile(r"(?<![\w)\]-])-*[a-z][a-z\d]*(?:-[a-z\d]+)+(?![\w(.-])")  # no identifier
_END = re.compile(r"[.;!?][*_)\"]*(?:\s|\Z)|\n\s*(?:[-*+]|\d+[.)])\s|\|")
_NEAR, _SIDE, _SENTENCE, _BLOCK, _HEADING = 1.0, 0.8, 0.4, 0.2, 0.1
BESIDE = 0.5  # the weight from which a name belongs to the citation, not only to its sentence
_KEYWORDS = frozenset(  # that `is_anchor` takes for names
    """
    Err Ok Option Result Self Some String Vec abstract auto bool boolean byte case catch chan
    char const crate default defer delete do double dyn enum err error export extends false
    final float fn func function go impl implements int interface let long loop map match mod
    mut namespace new nil null num number ok operator package private protected pub public ref
    select short signed sizeof static str string struct super switch template this throw throws
    trait true type typedef typename undefined union unsafe unsigned use using usize var void
    volatile where
    """.split()  # noqa: SIM905 - a table of words
)
_DEFINES = (
    r"(?:\b(?:fn|def|class|struct|enum|union|trait|impl|type|const|static|let|var|func|function|"
    r"interface|mod|module|namespace|macro_rules!|record|val)\s+(?:mut\s+|\([^)]*\)\s*|<[^>]*>\s*)*"
    r"|#\s*define\s+|^\s*(?:pub(?:\([^)]*\))?\s+|export\s+|async\s+|static\s+|readonly\s+|private\s+"
    r"|public\s+|protected\s+)*)"
)


_TAG = re.compile(r"\s*(?:/|<.*[^=-])?>\s*\Z")  # what is below a line that ends a tag is text
_ASSIGNS = re.compile(r"\s*(?::(?!:)|=(?!=)|\{)")
_IMPL = re.compile(r"\s*(?:unsafe\s+)?impl\b")
COMMENT = re.compile(r"\s*(?://|#(?!\s*define)|\*|/\*|--|;;|\Z)")  # or a blank line


class Mention(msgspec.Struct, frozen=True):
    """A name in the text: its last part, the dotted whole, and how near the citation it is.

    `rival` is a name behind the citation, in a later column of a table's row or in the same round
    brackets, which the number may be about, too.
    """

    name: str
    chain: str
    weight: float
    rival: bool = False


def find_mentions(candidate: Candidate, lines: list[str]) -> list[Mention]:
    """Return the names around a citation, the nearest first.

    The names between the last citation and this one are nearest, then those up to the next one. The
    names of the heading above come last.
    """
    span, block = candidate.citation.span, candidate.block.span
    first, last = block.row, max(block.end_row, block.row)
    if last - first > 60:  # a long list: the rows around the citation
        first, last = max(first, span.row - 30), min(last, span.row + 30)
    rows = lines[first - 1 : last]
    text = "\n".join(rows)
    place = candidate.place if candidate.place.row else span
    start = sum(len(row) + 1 for row in rows[: place.row - first]) + place.column - 1
    end = start + max(len(candidate.written), 1)
    spans, cited = _read_names(text)
    label = start - len(candidate.label) - 2 if candidate.label else start
    cited = [each for each in cited if not label <= each[0] < start]  # it names the same lines
    before = max((stop for _, stop in cited if stop <= start), default=0)
    after = min((begin for begin, _ in cited if begin >= end), default=len(text))
    sentence = max((m.end() for m in _END.finditer(text, 0, start)), default=0)
    match = _END.search(text, end)
    sentence_end = match.start() if match else len(text)
    row_start = text.rfind("\n", 0, start) + 1
    is_table = text[row_start:].lstrip().startswith("|")
    in_brackets = text.rfind("(", 0, start) > text.rfind(")", 0, start)
    ranked: list[tuple[float, float, str, bool]] = []
    for begin, stop, code in spans:
        if begin >= start and stop <= end:
            continue
        distance = start - stop if stop <= start else begin - end
        if max(before, 0 if is_table else sentence) <= begin < start:
            weight = _NEAR
        elif end <= begin < min(after, len(text) if is_table else sentence_end):
            weight = _SIDE
        else:
            weight = _SENTENCE if sentence <= begin < sentence_end or is_table else _BLOCK
        is_inside = is_table or (in_brackets and ")" not in text[end:begin])
        ranked.append(
            (weight - min(distance, 1000) / 10_000, weight, code, is_inside and weight == _SIDE)
        )
    above = reversed(lines[max(first - 61, 0) : first - 1])
    is_heading = text.startswith("#")  # the one above it is another section's
    heading = "" if is_heading else next((line for line in above if line.startswith("#")), "")
    ranked += [(_HEADING, _HEADING, code, False) for _, _, code in _read_names(heading)[0]]
    mentions: dict[str, Mention] = {}
    for index, (_, weight, code, is_rival) in enumerate(sorted(ranked, key=lambda item: -item[0])):
        decayed = weight * max(1 - 0.15 * index, 0.4)
        for mention in _split_code(code, decayed, is_rival=is_rival):
            mentions.setdefault(mention.name, mention)
    return [*mentions.values()][:12]


def _read_names(text: str) -> tuple[list[tuple[int, int, str]], list[tuple[int, int]]]:
    """Return the code spans and identifiers of a text that cite nothing, and what cites."""
    named, cited = [], []
    for match in _CODE.finditer(text):
        cites = looks_like_citation(match[1]) or re.fullmatch(r":L?\d.*", match[1])
        if cites:
            cited.append(match.span())
        elif not _PATH.fullmatch(match[1]):
            named.append((*match.span(), match[1]))
    plain = _NO_PROSE.sub(lambda match: " " * len(match[0]), text)
    for match in re.finditer(r"[\w./-]+\.\w+:L?\d[\d-]*", plain):
        cited.append(match.span())
        plain = plain[: match.start()] + " " * len(match[0]) + plain[match.end() :]
    named += [(*match.span(), match[0]) for match in _IDENTIFIER.finditer(plain)]
    return named, cited


def _split_code(code: str, weight: float, *, is_rival: bool) -> Iterable[Mention]:
    """Yield the names of a code span; the first chain of it is what the span is about."""
    code = _HYPHENATED.sub(" ", _PATH.sub(" ", code))
    for index, match in enumerate(_CHAIN.finditer(code)):
        chain = re.sub(r"::|#|->", ".", match[0])
        name = base_name(chain)
        if index > 5 or len(name) < 2 or name in _KEYWORDS or not is_anchor(name):
            continue
        yield Mention(name, chain, weight * (1.0 if index == 0 else 0.7), is_rival)


class Fit(msgspec.Struct, frozen=True):
    """How well lines fit the names: `share` from 0 to 1, of the best mention, and why."""

    share: float = 0
    mention: Mention | None = None
    defines: bool = False
    total: float = 0  # over all mentions, to rank places


@cache
def _definition(name: str) -> re.Pattern[str]:
    return re.compile(rf"{_DEFINES}{re.escape(name)}\b(?!\s*\.)(?:\s*[:=(<{{\[]|\s+\w|\s*$)")


@cache
def find_definitions(version: Version, name: str) -> dict[int, bool]:
    """Return the rows that define a name as far as their text tells; true are heads of symbols."""
    rows = version.rows_by_name.get(name, [])
    heads = {symbol.line for symbol in version.symbols_by_base_name(name)}
    code = (row for row in rows if not COMMENT.match(version.lines[row - 1]))
    return {row: row in heads for row in code if row in heads or _defines(version, row, name)}


def _defines(version: Version, row: int, name: str) -> bool:
    line = version.lines[row - 1]
    match = _definition(name).search(line)
    if match is None:
        return False
    is_bare = not match[0][: match[0].find(name)].strip()  # a field, a key or an assignment
    rest = line[line.find(name) + len(name) :]
    is_text = row > 1 and _TAG.match(version.lines[row - 2])
    return not is_bare or (_ASSIGNS.match(rest) is not None and not is_text)


def is_impl(version: Version, row: int) -> bool:
    """Return whether a line of Rust only extends what another line defines."""
    return _IMPL.match(version.lines[row - 1]) is not None


def measure_fit(version: Version, first: int, last: int, mentions: list[Mention]) -> Fit:
    """Return how well lines fit the mentions."""
    names = version.outline.names_between(first, last)
    best, total = Fit(), 0.0
    for mention in mentions:
        value, defines = 0.0, False
        if mention.name in names:
            rows = range(first, min(last, first + 60) + 1)
            defines = not find_definitions(version, mention.name).keys().isdisjoint(rows)
            value = 1.0 if defines else 0.9 / (1 + len(version.rows_by_name[mention.name]) / 60)
        elif names_enclosing(version, first, last, mention):
            value = 0.45
        elif fold_name(mention.name) in map(fold_name, names):
            value = 0.4
        total += value * mention.weight
        if value * mention.weight > best.share:
            best = Fit(value * mention.weight, mention, defines)
    return msgspec.structs.replace(best, total=total)


@cache
def fold_name(name: str) -> str:
    """Return a name without its convention: `ValueDate` and `value_date` are the same."""
    return name.replace("_", "").lower()


def names_enclosing(version: Version, first: int, last: int, mention: Mention) -> bool:
    """Return whether a symbol around some lines has the name of a mention."""
    symbol = version.innermost(first, last)
    while symbol is not None:
        if base_name(symbol.name) == mention.name:
            return True
        symbol = version.outline.symbols[symbol.parent] if symbol.parent >= 0 else None
    return False
