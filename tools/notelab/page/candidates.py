"""What a document cites before any source is asked: one candidate for each range of lines.

This is the scanner for every command. `check` resolves citations with the lab's sources; a command
that knows no lab takes the candidates of a document as they are written::

    for candidate in find_candidates(text):
        candidate.citation          # path, first, last, symbol, commit (or tag), form, problem
        candidate.label             # the label of its link, or ''
        candidate.block.names       # the identifiers that the text around it gives in code font
        candidate.written           # the document's own text, at `candidate.place`

`move` gives that text for another place, in the same form. `replace` writes it into the document.
"""

import posixpath
import re
from collections.abc import Iterable
from urllib.parse import quote

import msgspec

from notelab.page.citation import Citation, Span, on_row
from notelab.page.citation_syntax import LINE_WORD, RANGE_IN_TEXT, parse_range
from notelab.page.note import Note, ProseBlock
from notelab.sources.git.url import is_commit

_REFERENCE = re.compile(r" {0,3}\[[^]^][^]]*\]:\s")
_LINES_FOLLOW = re.compile(rf"(?:[:#]|\b{LINE_WORD}\s)\Z")
_LINK_OPENS = re.compile(r"(?<!\\)\[(?P<label>(?:[^][]|\[[^][]*\])*)\]\(<?\Z")


class Candidate(msgspec.Struct, frozen=True):
    """A citation as a document has it, and the block of prose around it.

    `place` is where `written` is, on one row. Its row is 0 if the text is broken over rows, holds
    other markup or is escaped; such a text can't be replaced.
    """

    citation: Citation
    block: ProseBlock
    written: str = ""
    place: Span = Span(0, 0, 0, 0)
    label: str = ""
    is_bracketed: bool = False  # `[label](<target>)`


def find_candidates(text: str, note: Note | None = None) -> list[Candidate]:
    r"""Return the candidates of a Markdown document in the order of its blocks.

    A code span that is a citation only if a source has its path has the form `maybe`.

    Args:
        text: the document, with `\n` line ends.
        note: the document if it was read before; its citations may be resolved ones.
    """
    if note is None:
        from notelab.page import reading

        note = reading.read(text)
    lines = text.split("\n")
    references = [row for row, line in enumerate(lines, start=1) if _REFERENCE.match(line)]
    return [
        _locate(citation, block, lines, references)
        for block in note.blocks
        for citation in block.citations
    ]


def _locate(
    citation: Citation, block: ProseBlock, lines: list[str], references: list[int]
) -> Candidate:
    """Return a citation with the place where its text is written; `references` define links."""
    span = citation.span
    if citation.form == "apart":
        line, start, end = lines[span.row - 1], span.column - 1, span.end_column - 1
        is_open = line.count("(", start, end) > line.count(")", start, end)
        written = line[start : end + (is_open and line[end : end + 1] == ")")]
        is_plain = not set(written) & set("*[]<>") and written.count("`") % 2 == 0
        has_name = citation.path.rpartition("/")[2] in written
        if span.row != span.end_row or not is_plain or not has_name:
            return Candidate(citation, block)
        return Candidate(citation, block, written, on_row(span.row, start, start + len(written)))
    rows = range(span.row, min(max(span.end_row, span.row), len(lines)) + 1)
    for row in (*rows, *references):
        line = lines[row - 1]
        start = line.find(citation.text, span.column - 1 if row == span.row else 0)
        if start >= 0:
            link = _LINK_OPENS.search(line, 0, start)
            place = on_row(row, start, start + len(citation.text))
            label, is_bracketed = (link["label"], link[0][-1] == "<") if link else ("", False)
            return Candidate(citation, block, citation.text, place, label, is_bracketed)
    return Candidate(citation, block)


def move(candidate: Candidate, path: str, first: int, last: int, commit: str = "") -> str:
    """Return the text of a candidate for another place, and commit, in the form that it has.

    A citation by symbol stays one while its path is the same: its lines are derived.
    """
    citation, text = candidate.citation, candidate.written
    ref = citation.tag or citation.commit
    if ref and commit:
        new_ref = commit[: len(ref)] if is_commit(ref) else commit
        text = text.replace(f"/{ref}/", f"/{new_ref}/", 1)
    if path != citation.path and citation.form != "range":  # whose path is before it
        text = replace_path(text, citation, path)
        if text == candidate.written:
            return text
    if citation.symbol:
        return text
    lines = citation.first, citation.last
    sign = ":" if "#lines-" in text else "-"  # between the lines of an address
    ranges = RANGE_IN_TEXT.finditer(text)
    matches = [m for m in ranges if parse_range(m[0].replace(sign, "-"))[:2] == lines]
    if not matches:
        return text
    match = matches[-1 if text.rstrip("`)")[-1:].isdigit() else 0]  # else the path is behind it
    lines_text = format_range(text, match[0], first, last)
    return text[: match.start()] + lines_text + text[match.end() :]


def move_with_label(
    candidate: Candidate, path: str, first: int, last: int, commit: str = ""
) -> tuple[Span, str]:
    """Return the span of a candidate and `move`'s text for it, with the label of its link.

    The text is '' if nothing can be written, because the label names the file or the lines in a
    way that can't be rewritten.
    """
    citation, place, label = candidate.citation, candidate.place, candidate.label
    text = move(candidate, path, first, last, commit)
    new_label = _move_in_label(label, citation.path, path)
    names_file = path != citation.path and citation.path.rpartition("/")[2] in label
    if text == candidate.written or (names_file and not new_label):
        return place, ""
    parts, at, label = list[str](), 0, new_label or label
    for match in RANGE_IN_TEXT.finditer(label):
        lines = parse_range(match[0])[:2]
        if lines in ((citation.first, citation.last), (citation.first, citation.first)):
            if not _LINES_FOLLOW.search(label, 0, match.start()) and match[0][0] not in "Ll":
                return place, ""  # a number that may count something else
            new_last = last if lines[1] == citation.last else first
            parts += label[at : match.start()], format_range(label, match[0], first, new_last)
            at = match.end()
    label = "".join(parts) + label[at:]
    if label == candidate.label:
        return place, text
    opening = f"{candidate.label}]({'<' if candidate.is_bracketed else ''}"
    start = place.column - 1 - len(opening)
    whole = on_row(place.row, start, place.end_column - 1)
    return whole, label + opening[len(candidate.label) :] + text


def relocate(
    candidate: Candidate, path: str, first: int, last: int, commit: str = ""
) -> tuple[Span, str]:
    """Return `move_with_label`'s edit; if the label can't follow, that of the citation alone."""
    place, text = move_with_label(candidate, path, first, last, commit)
    return place, text or move(candidate, path, first, last, commit)


def replace_path(text: str, citation: Citation, path: str) -> str:
    """Replace the path in a citation's text, which may be the end of `citation.path`, or a link.

    A path that leads from the page, or from the root, still does so.
    """
    if citation.form == "link" or text.startswith(("./", "../")):
        written = re.split("[#?]" if citation.form == "link" else r"[#:,\s]", text)[0]
        way = posixpath.relpath(path, posixpath.dirname(citation.path) or ".")
        new = posixpath.normpath(posixpath.join(posixpath.dirname(written), way))
        return (quote(new) if "%" in written else new) + text[len(written) :]
    return _replace_end(text, citation.path, path) or text


def _replace_end(text: str, old: str, new: str) -> str:
    """Return a text with the first path in it that is `old`, or ends it, replaced by `new`; or ''.

    >>> _replace_end("see b.py:4", "a/b.py", "c/d.py"), _replace_end("it", "a/b.py", "c/d.py")
    ('see c/d.py:4', '')
    """
    for at in range(old.count("/") + 1):
        end = re.escape(old.split("/", at)[at])
        if match := re.search(rf"(?<![\w./-]){end}(?!\w)" if at else end, text):
            return text[: match.start()] + new + text[match.end() :]
    return ""


def _move_in_label(label: str, old: str, new: str) -> str:
    """Return a label that names a file for another file, with as many folders; or ''."""
    for at in range(old.count("/") + 1):
        end = old.split("/", at)[at]
        replaced = _replace_end(label, end, "/".join(new.split("/")[-end.count("/") - 1 :]))
        if end in label and replaced:
            return replaced
    return ""


def format_range(text: str, old: str, first: int, last: int) -> str:
    """Return a range in the notation of the old one, of which `text` is the citation."""
    mark = old[0] if old[0] in "Ll" else ""
    if first == last:
        return f"{mark}{first}"
    dash = next((sign for sign in "\u2013\u2014" if sign in old), "-")
    if "#lines-" in text:
        dash = ":"  # Bitbucket
    elif "/-/" in text or re.search(r"\d\W+\d", old):
        return f"{mark}{first}{dash}{last}"  # GitLab has no second mark
    return f"{mark}{first}{dash}{mark}{last}"


def replace(text: str, edits: Iterable[tuple[Span, str]]) -> str:
    """Return a document with new text at some places of one row each, and nothing else changed."""
    lines = text.split("\n")
    for place, new in sorted(edits, key=lambda edit: -edit[0].column):
        if place.row:
            line = lines[place.row - 1]
            lines[place.row - 1] = line[: place.column - 1] + new + line[place.end_column - 1 :]
    return "\n".join(lines)
