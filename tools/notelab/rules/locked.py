"""N210 to N212: do the pages and the lock agree?"""

from collections import Counter
from collections.abc import Iterator

from notelab.book.evidence import CitedFile, State
from notelab.book.workbook import Workbook
from notelab.errors import display_path
from notelab.lab.lock import LOCK_FILE, Lock, LockedCitation
from notelab.page.citation import Citation, Span
from notelab.report.finding import TOP, Finding
from notelab.rules.case import Case, listed
from notelab.rules.fit import not_anchored

# A citation as the lock counts it: source, written form, page.
Use = tuple[str, str, str]
_NEAR = 60  # lines within which a locked citation may be where another slipped from


class LockJudge:
    """Compares citations with the lock of their lab."""

    def __init__(self, book: Workbook) -> None:
        """Nothing is compared yet."""
        self._path = book.lab.folder / LOCK_FILE
        self._pins, self._evidence = book.pins, book.evidence
        self._has_lock, self._lock = book.lock is not None, book.lock or Lock()

    def slipped_from(self, file: CitedFile, citation: Citation, page: str) -> str:
        """Return the citation nearby that the lock knows on this page, for one it doesn't know."""
        if self._lock.citation(file.source, citation.key_in(file.source)):
            return ""
        near: list[tuple[int, str]] = []
        for key, known in self._lock.citations.get(file.source, {}).items():
            path, _, lines = key.removeprefix(f"{file.source}:").rpartition(":L")
            first = lines.split("-")[0]
            if path == citation.path and first.isdigit() and page in known.pages:
                near.append((abs(int(first) - citation.first), key))
        distance, nearest = min(near, key=lambda one: one[0], default=(_NEAR + 1, ""))
        return nearest if distance <= _NEAR else ""

    def findings(self, case: Case, file: CitedFile) -> Iterator[Finding]:
        """Compare one citation with what the lock knows of it."""
        pin = self._pins[file.source]
        known_source = self._lock.sources.get(file.source)
        if not self._has_lock or (known_source and known_source.commit != pin.commit):
            return  # said once, of the lock
        known = self._lock.citation(file.source, case.citation.key_in(file.source))
        locked_file = self._lock.file(file.source, file.path, pin.commit)
        before = known.pages.get(case.page, 0) if known else 0
        if known is None or locked_file is None:
            unread = file.state is not State.PROVED
            text = " and no source text was at hand to judge it" if unread else ""
            yield self._unknown(case, f"doesn't know `{case.citation.text}`{text}")
        elif case.times > before:
            said = f"{_times(before)} on this page, where it stands {_times(case.times)}"
            yield self._unknown(case, f"knows `{case.citation.text}` {said}")
        elif file.state is State.PROVED:
            yield from _against_content(case, file, known, locked_file.blob)
        elif set(known.anchors).isdisjoint(case.cell.names):
            do = f"the lock knows that {listed(known.anchors)} do" if known.anchors else ""
            yield not_anchored(case, do)

    def _unknown(self, case: Case, said: str) -> Finding:
        knows = f"the lock knows `{case.once}` on this page; else, if" if case.once else "if"
        return case.finding(
            "N210",
            f"the lock {said}",
            expected=f"the citation in {display_path(self._path)}",
            help=f"{knows} these are the lines you mean, run `shardbook lock`",
        )

    def lock_findings(
        self, used: Counter[Use], sound: set[str], every: set[str] | None
    ) -> Iterator[Finding]:
        """Judge the lock itself, by what the pages that were read cite.

        Args:
            used: how often each original page cites what.
            sound: the pages with no citation to mend; what the lock holds for another is judged
                once it is mended.
            every: all the pages of the lab, where all were read.
        """
        if not self._has_lock:
            if used:
                yield Finding(
                    "N210",
                    display_path(self._path),
                    TOP,
                    "the lab has citations and no lock",
                    expected="citations.lock",
                    found="no file",
                    help="run `shardbook lock`",
                )
            return
        yield from self._commits()
        yield from self._disputes()
        yield from self._unused(used, sound, every)

    def _commits(self) -> Iterator[Finding]:
        for name, source in self._lock.sources.items():
            pin = self._pins.get(name)
            if pin is None or (pin.commit and pin.commit != source.commit):
                yield self._about(
                    "N211",
                    f'"{source.commit}"',
                    f"the lock is of another commit of `{name}` than the pin",
                    expected=f"`{pin.commit[:12]}`" if pin else "a source of this lab",
                    found=f"`{source.commit[:12]}`",
                    help="run `shardbook lock` where git or a mirror can be reached",
                )

    def _disputes(self) -> Iterator[Finding]:
        for file in self._evidence.gathered():
            if file.disputed:
                yield self._about(
                    "N211",
                    f'"{file.path}"',
                    f"the lock has another file for `{file.path}` than the pinned commit",
                    expected="one blob id, whoever delivers the file",
                    found=file.disputed,
                    help="restore the lock from git, or lock again where git or a mirror is",
                )

    def _unused(
        self, used: Counter[Use], sound: set[str], every: set[str] | None
    ) -> Iterator[Finding]:
        for name, citations in self._lock.citations.items():
            locked, pin = self._lock.sources.get(name), self._pins.get(name)
            if locked and (pin is None or pin.commit != locked.commit):
                continue  # said above: the whole source is to be locked again
            for key, citation in citations.items():
                idle = [
                    page
                    for page, times in citation.pages.items()
                    if (page in sound or (every is not None and page not in every))
                    and used[name, key, page] < times
                ]
                if idle:
                    yield self._about(
                        "N212",
                        f'"{key}"',
                        f"the lock holds `{key}`, which {listed(idle)} cites no more",
                        help="if that is meant, run `shardbook lock`",
                    )

    def _about(self, code: str, needle: str, message: str, **said: str) -> Finding:
        """Return a finding at the line of the lock that holds `needle`."""
        lines = enumerate(self._path.read_text("utf-8").split("\n"), start=1)
        found = ((row, line.find(needle) + 1) for row, line in lines if needle in line)
        places = (Span(row, at, row, at + len(needle)) for row, at in found)
        return Finding(code, display_path(self._path), next(places, TOP), message, **said)


def _against_content(
    case: Case, file: CitedFile, known: LockedCitation, blob: str
) -> Iterator[Finding]:
    citation = case.citation
    digest = file.sha256_of(citation.first, citation.last)
    if file.blob != blob or digest != known.sha256:
        yield case.finding(
            "N211",
            f"the lock remembers other lines for `{citation.text}`",
            expected=f"SHA-256 {known.sha256[:12]}… of file {blob[:12]}",
            found=f"SHA-256 {digest[:12]}… of file {file.blob[:12]}",
            help="read the lines again (`shardbook show`), then run `shardbook lock`",
        )
    elif set(known.anchors).isdisjoint(case.cell.names):
        yield case.finding(
            "N211",
            f"the lock remembers other anchors for `{citation.text}`",
            expected=listed(known.anchors) or "no anchor",
            found=listed(sorted(case.anchors)),
            help="run `shardbook lock`",
        )


def _times(count: int) -> str:
    return {0: "not at all", 1: "once", 2: "twice"}.get(count, f"{count} times")
