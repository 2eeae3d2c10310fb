"""Audits the citations of documents against the code of their own repository."""

import posixpath
import re
from codecs import BOM_UTF8
from pathlib import Path

import msgspec

from notelab.audit.alternatives import list_alternatives
from notelab.audit.dating import History, read_history
from notelab.audit.judge import State, Verdict, fits_at, judge
from notelab.audit.mentions import BESIDE, Mention, find_mentions
from notelab.audit.repository import Repository, open_repository
from notelab.cited.nearest_range import find_symbols
from notelab.errors import NotelabError, display_path
from notelab.files import read_regular
from notelab.page import reading
from notelab.page.candidates import Candidate, find_candidates, move_with_label, replace
from notelab.page.citation import Citation, Span
from notelab.page.citation_syntax import is_only_a_word
from notelab.repin.changes import Place
from notelab.sources.answers import has_kin

_MAX_BYTES = 4 * 1024 * 1024
_FEW, _MOST = 3, 0.6  # the other citations of a commit, and the share of them that must have fitted
_MAX_FILES = 12  # with the same end, that are compared with the names
_LEADS_TO = re.compile(r"[`*]*\]\(<?([^)>#\s]+)")


class AuditedCitation(msgspec.Struct):
    """A citation of a document: where it is, what it cites, and what became of that.

    The fields are those of the JSON output, in its order.
    """

    document: str
    line: int
    citation: str
    path: str
    start: int
    end: int
    state: State
    certain: bool
    proposals: list[Place]
    reason: str
    dated: str | None


class Document(msgspec.Struct):
    """An audited document; `edits` are its citations with what `--write` writes for them."""

    path: Path
    text: str
    candidates: list[Candidate]
    citations: list[AuditedCitation]
    unread: list[str] = []  # its parts that are too large to be read, each with its row


def audit_document(path: Path, ref: str) -> Document:
    """Audit a document: its working copy against HEAD, or both as they were at `ref`.

    Raises:
        NotelabError: the document can't be read, or is in no repository.
    """
    root, repository = open_repository(path, ref or "HEAD")
    name = path.resolve().relative_to(root.resolve()).as_posix()
    text = _read_text(path, repository, name, ref)
    history = read_history(repository, name, ref)
    note = reading.read(text)
    unread = [f"{name}:{part.span.row} {part.description}" for part in note.unread]
    document = Document(path, text, [], [], unread)
    auditor = Auditor(repository, name, text.split("\n"), history)
    contexts = [*filter(None, map(auditor.read, find_candidates(text, note)))]
    auditor.find_trusted(contexts)
    document.candidates = [context.candidate for context in contexts]
    document.citations = [*map(auditor.audit, contexts)]
    _keep_writable(document)
    return document


def _read_text(path: Path, repository: Repository, name: str, ref: str) -> str:
    if ref:
        data = repository.read(repository.commit, name)
        if data is None:
            raise NotelabError(f"{display_path(path)}: no such file at {ref}")
    else:
        try:
            data = read_regular(path, _MAX_BYTES + 1)
        except OSError as fault:
            raise NotelabError(f"{display_path(path)} can't be read: {fault.strerror}") from None
    if len(data) > _MAX_BYTES:
        raise NotelabError(
            f"{display_path(path)} is larger than {_MAX_BYTES // 1024} KiB; not read"
        )
    try:
        return data.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError:
        raise NotelabError(f"{display_path(path)} is not UTF-8") from None


class _Context(msgspec.Struct):
    """A citation, the commits at which it may have been read, its files, and the names around."""

    candidate: Candidate
    row: int
    dates: list[str]
    paths: list[str]
    mentions: list[Mention]


class Auditor:
    """Audits the citations of one document: all are read, in their order, before one is judged."""

    def __init__(
        self, repository: Repository, document: str, lines: list[str], history: History
    ) -> None:
        self._repository, self._document = repository, document
        self._lines, self._history = lines, history
        repository.oldest = history.log[-1][0] if history.log else ""
        self._cited: list[str] = []  # the paths that were resolved so far
        self._fits: dict[str, list[bool]] = {}

    def read(self, candidate: Candidate) -> _Context | None:
        """Return a citation with what is around it, or None if it is none of this repository's."""
        citation = candidate.citation
        if citation.commit or citation.repository or "://" in citation.text:
            return None  # it names its commit
        row = candidate.place.row or citation.span.row
        dates = self._history.dates(row, candidate.written)
        if citation.path.startswith(("./", "../")):  # in code font, from the page as in a link
            citation = msgspec.structs.replace(citation, relative=True, problem="")
            candidate = msgspec.structs.replace(candidate, citation=citation)
        linked = self._find_linked(candidate)
        paths = [linked] if linked else self._resolve(citation.path, citation.relative, dates)
        if not paths and (citation.form == "maybe" or self._is_only_a_word(citation)):
            return None
        mentions = find_mentions(candidate, self._lines)
        if len(paths) > 1:
            paths = sorted(paths[:_MAX_FILES], key=lambda path: -self._count_names(path, mentions))
        if paths and not citation.problem:
            self._cited.append(paths[0])
        return _Context(candidate, row, dates, paths, mentions)

    def _count_names(self, path: str, mentions: list[Mention]) -> float:
        """Return the weight of the names beside a citation that a file has."""
        version = self._repository.version(path)
        rows = version.rows_by_name if version else {}
        return sum(each.weight for each in mentions if each.weight >= BESIDE and each.name in rows)

    def find_trusted(self, contexts: list[_Context]) -> None:
        """Compare each citation with the text around it, at the commit that wrote its line."""
        for context in contexts:
            citation = context.candidate.citation
            if context.mentions and context.dates and context.paths and not citation.symbol:
                place = Place(context.paths[0], citation.first, citation.last)
                fits = fits_at(self._repository, place, context.dates[0], context.mentions)
                self._fits.setdefault(context.dates[0], []).append(fits)

    def _is_trusted(self, dates: list[str]) -> bool:
        """Return whether most citations of a commit were right when it wrote them."""
        fits = self._fits.get(dates[0], []) if dates else []
        return len(fits) > _FEW and sum(fits) >= _MOST * (len(fits) - 1)

    def audit(self, context: _Context) -> AuditedCitation:
        """Return what became of a citation."""
        candidate, paths, dates = context.candidate, context.paths, context.dates
        citation = candidate.citation
        path = paths[0] if paths else citation.path
        if citation.problem:
            verdict = Verdict("unknown", reason=f"the citation {citation.problem}")
        elif not paths:
            verdict = Verdict("unknown", reason="no file of the repository has this path")
        else:
            verdict = self._judge(candidate, paths, dates, context.mentions)
        lines = citation.first, citation.last
        if citation.symbol and verdict.proposals:
            lines = verdict.proposals[0].start, verdict.proposals[0].end
        return AuditedCitation(
            self._document, context.row, candidate.written or citation.text, path, *lines,
            verdict.state, verdict.certain, verdict.proposals, verdict.reason, verdict.dated,
        )  # fmt: skip

    def _judge(
        self, candidate: Candidate, paths: list[str], dates: list[str], mentions: list[Mention]
    ) -> Verdict:
        citation, path = candidate.citation, paths[0]
        if citation.symbol:
            return self._judge_symbol(citation.symbol.replace("::", "."), path)
        if not 0 < citation.first <= citation.last:
            return Verdict("unknown", reason="the lines are not in ascending order")
        place = Place(path, citation.first, citation.last)
        read_at = dates or [self._repository.commit]
        trusted = self._is_trusted(dates)
        verdict = judge(self._repository, place, path, read_at, mentions, trusted=trusted)
        verdict.dated = verdict.dated if dates else None
        if verdict.proposals and not verdict.certain:
            places = verdict.proposals
            if new := self._repository.version(places[0].path):
                places += list_alternatives(new, places[0], mentions)
            verdict.proposals = list(dict.fromkeys(places))[:3]
        if verdict.certain and citation.first == citation.last:
            others = [each for each in candidate.block.citations if each.path == citation.path]
            # the line may stand for a range, as the others do
            verdict.certain = all(each.first == each.last for each in others)
        if len(paths) > 1:
            verdict.certain = False
            verdict.reason += f"; {len(paths)} files end in this path"
        return verdict

    def _judge_symbol(self, name: str, path: str) -> Verdict:
        version = self._repository.version(path)
        symbols = find_symbols(version.outline, name) if version else []
        if len(symbols) == 1:
            place = Place(path, symbols[0].top, symbols[0].last)
            return Verdict("right", [place], False, "the file has this symbol")
        return Verdict("gone", reason=f"the file has {len(symbols) or 'no'} such symbols")

    def _find_linked(self, candidate: Candidate) -> str:
        """Return the file that a citation in the label of a link leads to, or ''."""
        place, folder = candidate.place, posixpath.dirname(self._document)
        row = self._lines[place.row - 1][place.end_column - 1 :] if place.row else ""
        match = _LEADS_TO.match(row)
        path = posixpath.normpath(posixpath.join(folder, match[1])).lstrip("/") if match else ""
        is_file = path in self._repository.blobs(self._repository.commit)
        return path if is_file and f"/{path}".endswith(f"/{candidate.citation.path}") else ""

    def _resolve(self, written: str, relative: bool, dates: list[str]) -> list[str]:
        """Return the files that a path may mean, the likeliest first.

        A path from the root wins, then a file beside the document; for a bare name it is the other
        way round. Then comes the only file with that end in the nearest folder around the document,
        then the file that the document cited last.
        """
        folder = posixpath.dirname(self._document)
        blobs = self._repository.blobs(self._repository.commit)
        # A link may lead from the root: `/a.py#L4`.
        beside_path = posixpath.normpath(posixpath.join(folder, written)).lstrip("/")
        both = (written, beside_path) if "/" in written else (beside_path, written)
        for path in (beside_path,) if relative else both:
            if path in blobs:
                return [path]
        if relative:
            return [beside_path] if self._existed(beside_path, dates) else []
        name = written.rpartition("/")[2]
        ends = [p for p in self._repository.by_name.get(name, []) if p.endswith(f"/{written}")]
        parent = folder
        while parent and len(ends) > 1:
            inside = [path for path in ends if path.startswith(f"{parent}/")]
            ends = inside or ends
            parent = posixpath.dirname(parent)
        if len(ends) > 1:
            last = [path for path in reversed(self._cited) if path in ends]
            ends = list(dict.fromkeys([*last, *ends]))
        if not ends:
            whole = dict.fromkeys((written, beside_path))
            ends = [path for path in whole if self._existed(path, dates)]
        return ends

    def _is_only_a_word(self, citation: Citation) -> bool:
        paths = self._repository.blobs(self._repository.commit)
        return is_only_a_word(citation, has_kin=has_kin(citation.path, paths))

    def _existed(self, path: str, dates: list[str]) -> bool:
        return any(self._repository.version(path, date) is not None for date in dates)


def _find_edit(candidate: Candidate, audited: AuditedCitation) -> tuple[Span, str] | None:
    """Return what is written for a certain citation, or None if it can't be written."""
    if not audited.certain or not candidate.place.row:
        return None
    new = audited.proposals[0]
    citation = msgspec.structs.replace(candidate.citation, path=audited.path)
    candidate = msgspec.structs.replace(candidate, citation=citation)
    place, text = move_with_label(candidate, new.path, new.start, new.end)
    return (place, text) if text else None


def _keep_writable(document: Document) -> None:
    """Leave only those citations certain that can be written.

    If one of several ranges of a path is in another file now, the path can't serve them all.
    """
    forms = [candidate.citation.form for candidate in document.candidates]
    for index, audited in enumerate(document.citations):
        if audited.certain and audited.state == "moved":
            leaves = audited.proposals[0].path != audited.path
            is_shared = "range" in (forms[index], *forms[index + 1 : index + 2])
            if (leaves and is_shared) or not _find_edit(document.candidates[index], audited):
                audited.certain = False


def rewrite(document: Document) -> tuple[bytes, int]:
    """Return a document's bytes with each certain citation rewritten, and how many these are.

    Raises:
        NotelabError: the document was changed since it was read.
    """
    pairs = zip(document.candidates, document.citations, strict=True)
    edits = [edit for pair in pairs if pair[1].state == "moved" and (edit := _find_edit(*pair))]
    data = read_regular(document.path, _MAX_BYTES + 1)
    text = data.decode("utf-8-sig", "replace")
    if text.replace("\r\n", "\n") != document.text:
        raise NotelabError(
            f"{display_path(document.path)} was changed while it was audited; it is left as it is",
            hint="run the same command again",
        )
    bom = BOM_UTF8 if data.startswith(BOM_UTF8) else b""
    return bom + replace(text, edits).encode(), len(edits)
