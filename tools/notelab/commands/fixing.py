"""`shardbook check --fix`: writes the changes to citations that are certain.

A reversed range is turned round, the end of a path becomes the whole path, a label follows its
target, lines that the lock finds at one other place are cited there, and a lab with
`style = "canonical"` gets that form.
"""

import re
from collections import Counter
from collections.abc import Mapping
from difflib import unified_diff
from pathlib import Path

from msgspec.structs import replace as change

from notelab.book.relock import lock_path
from notelab.book.slipped_citation import find_moved_lines, find_moved_symbol
from notelab.book.workbook import CheckSession, Workbook, open_labs
from notelab.errors import display_path, sanitize
from notelab.files import finish_journal, write_with_journal
from notelab.lab import lock as lock_file
from notelab.lab.lock import Lock
from notelab.lab.pages import ParsedPage
from notelab.page.candidates import (
    Candidate,
    find_candidates,
    format_range,
    relocate,
    replace,
    replace_path,
)
from notelab.page.citation import Citation, Span, group_ranges, on_row
from notelab.page.citation_syntax import FILE_ENDING, RANGE_IN_TEXT
from notelab.sources.answers import WORKTREE
from notelab.sources.git.url import is_commit

# A link with its target, or with the name of its definition.
_LINK = re.compile(r"\[(?P<label>(?:[^][]|\[[^][]*\])*)\](?:\([^()]*(?:\([^()]*\))*\)|\[[^][]*\])?")
_DEFINES = re.compile(r"\]:\s*<?\Z")
Move = tuple[str, str, str]  # source, and a citation's old and new key in the lock
Edits = list[tuple[Span, str]]


def fix(labs: Mapping[Path, set[Path] | None], session: CheckSession, *, write: bool) -> str:
    """Return what would be changed, as a diff; with `write`, all files are written.

    Raises:
        NotelabError: a lab.toml or a lock can't be read, or a file can't be written.
    """
    for root in {session.lab(folder).root for folder in labs} if write else ():
        finish_journal(root)  # what an interrupted run has left
    contents: dict[Path, dict[Path, bytes]] = {}  # by repository
    for book in open_labs(labs, session):
        contents.setdefault(book.lab.root, {}).update(_fix_lab(book))
    diff = [_format_diff(*file) for files in contents.values() for file in sorted(files.items())]
    for root, files in contents.items() if write else ():
        if files:
            write_with_journal(root, files)
    return "".join(diff)


def _format_diff(path: Path, data: bytes) -> str:
    name = display_path(path)
    old, new = (text.decode("utf-8", "replace").split("\n") for text in (path.read_bytes(), data))
    lines = unified_diff(old, new, name, name, lineterm="")
    return "".join(f"{sanitize(line)}\n" for line in lines)


def _fix_lab(book: Workbook) -> dict[Path, bytes]:
    """Return the new content of the pages that change, and of the lock if lines moved."""
    files: dict[Path, bytes] = {}
    moved: dict[Move, Counter[str]] = {}
    for view in book.views:
        if view.note is not None:
            data = view.page.path.read_bytes()
            text = data.decode("utf-8")
            if text.removeprefix("\ufeff").replace("\r\n", "\n") == view.text:  # as it was read
                new = _PageFixer(book, view, text, moved).run().encode()
                files |= {view.page.path: new} if new != data else {}
    if moved and book.lock:
        files[lock_path(book)] = _move_in_lock(book.lock, moved).encode()
    return files


def _move_in_lock(lock: Lock, moved: Mapping[Move, Counter[str]]) -> str:
    """Return the lock with the entries of moved citations under their new keys."""
    citations = {source: dict(entries) for source, entries in lock.citations.items()}
    for (source, old, _), pages in moved.items():
        entry = citations[source].pop(old)
        if rest := Counter(entry.pages) - pages:
            citations[source][old] = change(entry, pages=dict(rest))
    sources = dict(lock.sources)
    for (source, old, new), pages in moved.items():
        files = sources[source].files
        paths = [re.split(r":L\d|#", key.removeprefix(f"{source}:"))[0] for key in (old, new)]
        sources[source] = change(sources[source], files={**files, paths[1]: files[paths[0]]})
        target = citations[source].get(new)
        counts = Counter(target.pages if target else {}) + pages
        citations[source][new] = change(lock.citations[source][old], pages=dict(counts))
    return lock_file.dump(change(lock, sources=sources, citations=citations))


class _PageFixer:
    """Collects the changes of one page."""

    def __init__(
        self, book: Workbook, view: ParsedPage, text: str, moved: dict[Move, Counter[str]]
    ) -> None:
        self._book, self._view, self._text, self._moved = book, view, text, moved
        self._lines = text.split("\n")
        self._group_moves: list[tuple[Move, list[str]]] = []  # written if the group's edits are
        self._definitions: set[int] = set()  # rows of links that were replaced
        self._max_lines = view.page.table.max_lines or book.lab.file.lab.max_lines

    def run(self) -> str:
        candidates = find_candidates(self._text, self._view.note)
        edits: Edits = []
        for group in group_ranges(candidates, lambda each: each.citation.form):
            if all(each.place.row and not each.citation.problem for each in group):
                self._group_moves = []
                group_edits = self._fix_group(group)
                edits += group_edits
                for each, pages in self._group_moves if group_edits else ():
                    self._moved.setdefault(each, Counter()).update(pages)
        return self._drop_definitions(replace(self._text, edits))

    def _drop_definitions(self, text: str) -> str:
        """Return a text without the definitions of links that were replaced by citations."""
        lines = text.split("\n")
        for row in sorted(self._definitions, reverse=True):
            name = lines[row - 1].partition("]:")[0].strip().casefold()
            if text.casefold().count(f"{name}]") == 1:
                del lines[row - 1]
        return "\n".join(lines)

    def _fix_group(self, group: list[Candidate]) -> Edits:
        """Fix the ranges of one path."""
        if group[0].citation.label:
            return self._fix_label(group[0])
        pairs = [(candidate, self._find_target(candidate)) for candidate in group]
        keys = [target.key_in(source) for _, (source, target) in pairs if source]
        is_canonical = [each.written for each in group] == keys and len(keys) == 1
        if self._book.lab.file.lab.style and not is_canonical:
            return self._to_canonical(group, keys) if len(keys) == len(group) else []
        paths = {target.path for _, (_, target) in pairs}
        if len(paths) > 1:
            return []  # lines of several files can't follow one path
        edits = []
        for candidate, (_, target) in pairs:
            written, citation = candidate.written, candidate.citation
            if citation.form in ("code", "symbol", "apart"):
                written = replace_path(written, citation, citation.path)
            whole = change(candidate, written=written)
            place, text = relocate(whole, target.path, target.first, target.last)
            edits += [(place, text)] if text != candidate.written else []
        return edits

    def _find_target(self, candidate: Candidate) -> tuple[str, Citation]:
        """Return the source and the citation of the lines that are meant; '' if that isn't sure."""
        citation = candidate.citation
        first, last = sorted((citation.first, citation.last))
        target = change(citation, first=first, last=last)
        self._book.resolver.gather([target])
        resolved = self._book.resolver.resolve(target)
        file = resolved.file or next(iter(resolved.candidates), None)
        was_reversed = citation.last < citation.first
        if file is None or (was_reversed and last - first >= self._max_lines):
            return "", citation
        key = target.key_in(file.source)
        page = self._view.page.key if self._view.page.original is None else ""
        locked = self._book.lock.citation(file.source, key) if self._book.lock else None
        if locked and citation.by_symbol and not citation.first:
            moved = find_moved_symbol(self._book.evidence, file, locked)
            if [is_same for _, is_same in moved] == [True]:
                target = change(target, path=moved[0][0].path)
                keys = file.source, key, target.key_in(file.source)
                self._group_moves.append((keys, [page] if page else []))
                return file.source, target
        elif locked and not locked.commit and file.sha256_of(first, last) != locked.sha256:
            places = find_moved_lines(self._book.evidence, file, locked, first, last - first + 1)
            path, row = places[0] if len(places) == 1 else ("", 0)
            names_commit = citation.form == "address" and (
                citation.commit != WORKTREE or is_commit(citation.tag)
            )
            if not row or citation.by_symbol or names_commit:
                return "", citation
            target = change(target, path=path, first=row, last=row + last - first)
            move_key = file.source, key, target.key_in(file.source)
            self._group_moves.append((move_key, [page] if page else []))
            return file.source, target
        is_inside = target.first > 0 and target.last <= len(file.lines)
        return (file.source, target) if is_inside else ("", citation)

    def _fix_label(self, candidate: Candidate) -> Edits:
        """Let the label of a link name what its target names."""
        citation, label = candidate.citation, candidate.label
        target_source, _ = self._find_target(candidate)
        self._group_moves = []  # the target's lines are written by the next run
        line = self._lines[candidate.place.row - 1]
        end = line.rfind("](", 0, candidate.place.column)
        at = label.find(citation.label)
        if not target_source or at < 0 or line[end - len(label) : end] != label:
            return []
        path = re.match(r"[^\s:#,()]+", citation.label)
        new = citation.label
        if path and FILE_ENDING.search(path[0]):
            parts = citation.path.split("/")[-path[0].count("/") - 1 :]
            new = "/".join(parts) + new[path.end() :]
        lines = RANGE_IN_TEXT.search(new, len(path[0]) if path and "." in path[0] else 0)
        if lines:
            written = format_range(new, lines[0], citation.first, citation.last)
            new = new[: lines.start()] + written + new[lines.end() :]
        start = end - len(label) + at + 1
        row = candidate.place.row
        return [(Span(row, start, row, start + len(citation.label)), new)]

    def _to_canonical(self, group: list[Candidate], keys: list[str]) -> Edits:
        """Write code spans in the workbook's form in place of a citation with all its ranges."""
        candidate, place = group[0], group[0].place
        if any(each.place.row != place.row for each in group):
            return []
        line, code = self._lines[place.row - 1], "`" + "`, `".join(keys) + "`"
        start, end = place.column - 1, group[-1].place.end_column - 1
        before, after = line[:start], line[end:]
        if candidate.citation.form in ("code", "symbol"):
            return [(on_row(place.row, start, end), code.strip("`"))]
        if before.endswith("`") and after.startswith("`"):
            code = code.strip("`")
        elif before.endswith("<") and after.startswith(">") and "]:" not in before:
            start, end = start - 1, end + 1
        elif before.endswith(("](", "](<")) or _DEFINES.search(before):
            link = _LINK.match(line, before.rfind("](") - len(candidate.label) - 1)
            if _DEFINES.search(before):  # the link is where the definition is used
                self._definitions.add(place.row)
                use = candidate.citation.span
                place, line = use, self._lines[use.row - 1]
                link = _LINK.match(line, use.column - 1)
            if not link:
                return []
            (start, end), label = link.span(), link["label"]
            plain = label.strip("`*")
            places = [each.written.strip("`") for each in find_candidates(label)]
            names_place = places == [plain] or candidate.citation.path.endswith(plain)
            code = code if names_place else f"{label} ({code})"
        elif before.endswith(('"', "'", "=")):
            return []
        return [(on_row(place.row, start, end), code)]
