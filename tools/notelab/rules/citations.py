"""N2xx: is each citation well formed, does its file exist, and what do the other rules say?"""

from collections import Counter

import msgspec

from notelab.book.evidence import CitedFile, State
from notelab.book.view import View
from notelab.book.workbook import Workbook
from notelab.cache import CacheFile, cache_key, get_decoded
from notelab.lab import pins
from notelab.lab.lock import Lock
from notelab.page.citation import format_citation
from notelab.page.note import Note
from notelab.page.permalink import normalize_repository
from notelab.report.finding import Finding
from notelab.rules import fit
from notelab.rules.case import Case
from notelab.rules.locked import LockJudge


class Verdict(msgspec.Struct, array_like=True):
    """What became of one citation: its findings, and how far it was proved."""

    findings: list[Finding]
    source: str = ""
    key: str = ""  # as the lock of that source writes it
    proof: str = ""  # "git" or "wheel", whoever said that the commit holds the file
    locked: bool = False
    unstructured: bool = False  # in a file whose statements nobody here can tell

    @property
    def proved(self) -> bool:
        """Tell whether the file's own text was at hand."""
        return bool(self.proof)


class Judge:
    """Judges the citations of one lab."""

    def __init__(self, book: Workbook, cache: CacheFile) -> None:
        """Judge nothing yet; what fits is remembered on `cache`."""
        self._lab, self._pins, self._cache = book.lab, book.pins, cache
        self._unknown_commit, self._resolver = book.evidence.unknown_commit, book.resolver
        self._lock = book.lock or Lock()
        # Sources of which a repin left something behind: of most labs none, so nobody asks.
        known = self._lock.citations.items()
        self._late = [name for name, all_ in known if any(one.commit for one in all_.values())]
        self.lock = LockJudge(book)
        # All that a page's verdicts hang on, apart from its own text: a blob id is a file's lines.
        files = [(f.source, f.path, f.state, f.blob, f.proof) for f in book.evidence.gathered()]
        commits = {name: pin.commit for name, pin in book.pins.items()}
        said = (book.lab.file, book.lab.sources, commits, book.lock, files)
        self._all = cache_key(msgspec.msgpack.encode(said))

    def verdicts(self, view: View) -> list[Verdict]:
        """Judge every citation of a page, in the page's order.

        A page whose citations are all sound is remembered by all that they hang on.
        """
        if view.note is None:
            return []
        key = f"{view.digest} {view.page.key} {self._all}"
        kept = get_decoded(self._cache, "verdicts", key, list[Verdict])
        if kept is not None:
            return kept
        found = self._judged(view, view.note)
        if all(verdict.key and not verdict.findings for verdict in found):
            self._cache.put("verdicts", key, msgspec.msgpack.encode(found))
        return found

    def _judged(self, view: View, note: Note) -> list[Verdict]:
        most = view.page.table.max_lines or self._lab.file.lab.max_lines
        times = Counter(citation.key for citation in note.citations)
        return [
            self._verdict(Case(view, cell, citation, most, times[citation.key]))
            for cell in note.blocks
            for citation in cell.citations
        ]

    def _verdict(self, case: Case) -> Verdict:
        citation = case.citation
        if malformed := _malformed(case):
            return Verdict([malformed])
        if behind := self._behind(case):
            return behind
        file = self._resolve(case)
        if file is None:
            return Verdict([])
        if isinstance(file, Finding):
            return Verdict([file])
        findings = []
        listed = case.view.page.table.sources
        if listed and file.source not in listed:
            findings.append(
                case.finding(
                    "N214",
                    f"`{citation.path}` is a file of `{file.source}`, which this note doesn't read",
                    expected="a file of " + " or ".join(f"`{name}`" for name in listed),
                    help=f'add "{file.source}" to the note\'s `sources` in lab.toml',
                )
            )
        proved = file.state is State.PROVED
        case.once = self.lock.slipped_from(file, citation, case.page)
        misfits, structured = fit.judged(case, file, self._cache) if proved else ([], True)
        findings += misfits
        # A range that doesn't fit must be mended, not locked: saying both would mislead.
        findings = findings or list(self.lock.findings(case, file))
        return Verdict(
            findings,
            file.source,
            citation.key_in(file.source),
            proof=file.proof if proved else "",
            locked=not proved,
            unstructured=not structured,
        )

    def _behind(self, case: Case) -> Verdict | None:
        """Say that a repin left a citation at an older commit: no other rule judges it there."""
        found = self._lock.behind(
            {name: case.citation.key_in(name) for name in self._pins if name in self._late}
        )
        if found is None or self._pins[found[0]].commit == found[1].commit:
            return None
        source, known = found
        pin = self._pins[source]
        typed = pins.command_for(pin, pin.commit[:12], "repin")
        finding = case.finding(
            "N217",
            f"`{case.citation.text}` still stands at an older commit than the pin",
            expected=f"lines of `{source}` at {pin.commit[:12]}",
            found=f"lines at {known.commit[:12]}",
            help=f"`{typed}` proposes new ones; with `--accept OLD=NEW` it takes those you name",
        )
        return Verdict([finding], source, case.citation.key_in(source))

    def _resolve(self, case: Case) -> CitedFile | Finding | None:
        """Find the one file cited; None where an unusable pin, a finding itself, is in the way."""
        citation = case.citation
        if foreign := self._foreign(case):
            return foreign
        resolved = self._resolver.resolve(citation)
        if resolved.file:
            return resolved.file
        if resolved.rivals:
            return case.finding(
                "N204",
                f"`{citation.path}` is a file of more than one source",
                expected="one source",
                found=", ".join(f"`{file.source}`" for file in resolved.rivals),
                help=f"write `{resolved.rivals[0].source}:{citation.text}`",
            )
        if resolved.sole:
            return _perhaps_another(case, resolved.sole, resolved.unasked)
        if any(self._pins[name].code or self._unknown_commit(name) for name in resolved.names):
            return None
        return _nowhere(case, resolved.asked)

    def _foreign(self, case: Case) -> Finding | None:
        """Say why no source of the lab is the one that a citation names."""
        citation, sources = case.citation, self._lab.sources
        if citation.source and citation.source not in sources:
            return case.finding(
                "N203",
                f"`{citation.text}` names a source, `{citation.source}`, that is none of this lab",
                expected=" or ".join(f"`{name}`" for name in sources),
            )
        if not citation.repository:
            return None
        names = self._resolver.of_repository(citation)
        commits = [self._pins[name].commit for name in names if self._pins[name].commit]
        if any(commit.startswith(citation.commit) for commit in commits):
            return None
        if not names:
            known = (f"`{normalize_repository(one.url)}`" for one in sources.values() if one.url)
            return case.finding(
                "N216",
                f"the link is to `{citation.repository}`, which is no source of this lab",
                expected=" or ".join(known),
                help="a page can be linked to without its lines; lines are cited from a source",
            )
        return case.finding(
            "N216",
            f"the link is to another commit of `{names[0]}` than the pin",
            expected=" or ".join(f"`{commit[:12]}`" for commit in commits) or "a usable pin",
            found=f"`{citation.commit[:12]}`",
            help=f"read the lines at the pin, then write `{names[0]}:"
            f"{format_citation(citation.path, citation.first, citation.last)}`",
        )


def _malformed(case: Case) -> Finding | None:
    """Say what is wrong with a citation as it is written, whatever its file holds."""
    citation = case.citation
    if citation.problem:
        return case.finding("N201", f"`{citation.text[:80]}` {citation.problem}")
    if citation.label:
        return _two_places(case)
    if citation.last < citation.first:
        turned = format_citation(citation.path, citation.last, citation.first)
        message = f"the range of `{citation.text}` runs backwards"
        return case.finding("N202", message, help=f"`{turned}`?")
    return None


def _two_places(case: Case) -> Finding:
    citation = case.citation
    return case.finding(
        "N231",
        "the link's label says another place than its target",
        expected="one place: the target's in the label, or the label's in the target",
        found=f"`{citation.label[:120]}` and `{citation.text[:200]}`",
    )


def _perhaps_another(case: Case, sole: CitedFile, unasked: list[CitedFile]) -> Finding:
    return case.finding(
        "N213",
        f"`{case.citation.text}` may be a file of another source than `{sole.source}`",
        expected="an answer from every source of the lab, or the source's name in the citation",
        found="; ".join(f"`{file.source}`: {'; '.join(file.reasons)}" for file in unasked),
        help=f"write `{sole.source}:{case.citation.text}`, or run where git or a mirror is",
    )


def _nowhere(case: Case, asked: list[CitedFile]) -> Finding:
    citation = case.citation
    near = [path for file in asked for path in file.near][:3]
    closest = "closest: " + ", ".join(f"`{path}`" for path in near) if near else ""
    if asked and all(file.state is State.ABSENT for file in asked):
        return case.finding(
            "N203",
            f"no source has `{citation.path}` at its pin",
            expected="a path from the root of " + " or ".join(f"`{file.source}`" for file in asked),
            help=closest,
        )
    reasons = list(dict.fromkeys(reason for file in asked for reason in file.reasons))
    return case.finding(
        "N213",
        f"`{citation.text}` could not be proved, and the lock doesn't know its file",
        expected="a file that the lock knows, or a provider that has it at the pin",
        found="; ".join(reasons) or "no usable pin",
        help=closest or "check the path; or run where git is reachable, or with --mirror NAME=DIR",
    )
