"""N210 to N212, N217: checks that the pages and the lock agree."""

from collections import Counter
from collections.abc import Iterator

from notelab.book.evidence import CitedFile, State
from notelab.book.slipped_citation import find_moved_lines, find_moved_symbol
from notelab.book.workbook import Workbook
from notelab.errors import display_path
from notelab.finding import TOP, Finding, find_text
from notelab.lab import pins
from notelab.lab.lock import LOCK_FILE, Lock, LockedCitation
from notelab.page.citation import Citation, format_citation
from notelab.rules.ranges import CitationContext, format_names, not_anchored
from notelab.sources.answers import WORKTREE

# A citation as the lock counts it: source, written form, page.
Use = tuple[str, str, str]
_MAX_DISTANCE = 60  # lines between a citation and the locked one from which it may have moved


class LockJudge:
    """Compares citations with the lock of their lab."""

    def __init__(self, book: Workbook) -> None:
        """Prepare for a workbook."""
        self._path = book.lab.folder / LOCK_FILE
        self._pins, self._evidence = book.pins, book.evidence
        self._has_lock, self._lock = book.lock is not None, book.lock or Lock()

    def find_moved_from(self, file: CitedFile, citation: Citation, page: str) -> str:
        """Return the nearby citation of this page that the lock knows, or ''.

        It is looked for only if the lock does not know `citation` itself.
        """
        if self._lock.citation(file.source, citation.key_in(file.source)):
            return ""
        nearby: list[tuple[int, str]] = []
        for key, locked in self._lock.citations.get(file.source, {}).items():
            path, _, lines = key.removeprefix(f"{file.source}:").rpartition(":L")
            first = lines.split("-")[0]
            if path == citation.path and first.isdigit() and page in locked.pages:
                nearby.append((abs(int(first) - citation.first), key))
        distance, nearest = min(nearby, key=lambda pair: pair[0], default=(_MAX_DISTANCE + 1, ""))
        return nearest if distance <= _MAX_DISTANCE else ""

    def find_outdated(self, context: CitationContext) -> tuple[str, Finding] | None:
        """Return source and finding if a repin left a citation at an older commit, else None."""
        keys = {name: context.citation.key_in(name) for name in self._pins}
        outdated = self._lock.find_outdated(keys)
        if outdated is None or self._pins[outdated[0]].commit == outdated[1].commit:
            return None
        source, locked = outdated
        pin = self._pins[source]
        command = pins.format_command(pin, pin.commit[:12], "repin")
        return source, context.finding(
            "N217",
            f"`{context.citation.text}` is still at an older commit than the pin",
            expected=f"lines of `{source}` at {pin.commit[:12]}",
            found=f"lines at {locked.commit[:12]}",
            help=f"`{command}` proposes new lines; add `--accept OLD=NEW` to accept lines",
        )

    def find_drift(self, context: CitationContext, file: CitedFile) -> Finding | None:
        """Return a finding if a working tree has other lines at a citation than the lock."""
        citation, pin = context.citation, self._pins[file.source]
        locked = self._lock.citation(file.source, citation.key_in(file.source))
        if pin.commit != WORKTREE or locked is None:
            return None
        if citation.by_symbol and not citation.first:
            return self._report_lost_symbol(context, file, locked)
        if file.sha256_of(citation.first, citation.last) == locked.sha256:
            return None
        if places := self._find_places(file, citation):
            more = citation.last - citation.first
            moved = [f"`{format_citation(path, row, row + more)}`" for path, row in places]
            fix = "`shardbook check --fix --write` cites them there"
            ranges = [self._find_places(file, each) for each in context.ranges]
            if len({path for each in ranges for path, _ in each or [("", 0)]}) > 1:
                fix = "one path can't serve lines of two files; write a citation for each file"
            return context.finding(
                "N218",
                f"the lines of `{citation.text}` have moved",
                expected=" or ".join(moved[:3]),
                help=fix if len(moved) == 1 else "cite the lines that you mean",
            )
        symbols = file.outline.symbols if file.outline else []
        named = [symbol for symbol in symbols if symbol.name == locked.symbol]
        now = [format_citation(file.path, symbol.top, symbol.last) for symbol in named]
        return _report_changed(context, locked, now)

    def _report_lost_symbol(
        self, context: CitationContext, file: CitedFile, locked: LockedCitation
    ) -> Finding:
        """Return a finding for a symbol that its file has no longer."""
        places = find_moved_symbol(self._evidence, file, locked)
        now = [f"{place.path}#{context.citation.symbol}" for place, _ in places]
        if [is_same for _, is_same in places] != [True]:
            return _report_changed(context, locked, now)
        return context.finding(
            "N218",
            f"the lines of `{context.citation.text}` have moved",
            expected=f"`{now[0]}`",
            help="`shardbook check --fix --write` cites them there",
        )

    def _find_places(self, file: CitedFile, citation: Citation) -> list[tuple[str, int]]:
        """Return where the locked lines of a citation begin in the working tree now."""
        locked = self._lock.citation(file.source, citation.key_in(file.source))
        if locked is None or citation.by_symbol:
            return []
        count = citation.last - citation.first + 1
        return find_moved_lines(self._evidence, file, locked, citation.first, count)

    def findings(self, context: CitationContext, file: CitedFile) -> Iterator[Finding]:
        """Compare one citation with its entry in the lock."""
        pin = self._pins[file.source]
        locked_source = self._lock.sources.get(file.source)
        if not self._has_lock or (locked_source and locked_source.commit != pin.commit):
            return  # reported once, for the lock
        locked = self._lock.citation(file.source, context.citation.key_in(file.source))
        locked_file = self._lock.file(file.source, file.path, pin.commit)
        locked_count = locked.pages.get(context.page, 0) if locked else 0
        if locked is None or locked_file is None:
            unread = file.state is not State.PROVED
            without_text = " and no source text was available to check it" if unread else ""
            yield self._report_unlocked(
                context, f"doesn't know `{context.citation.text}`{without_text}"
            )
        elif context.occurrences > locked_count:
            counts = _format_count(locked_count), _format_count(context.occurrences)
            message = f"{counts[0]} on this page, but the page has it {counts[1]}"
            yield self._report_unlocked(context, f"knows `{context.citation.text}` {message}")
        elif file.state is State.PROVED:
            yield from _compare_content(context, file, locked, locked_file.blob)
        elif not context.quoted and set(locked.anchors).isdisjoint(context.block.names):
            anchors_hint = (
                f"name one that the lock has: {format_names(locked.anchors)}"
                if locked.anchors
                else ""
            )
            yield not_anchored(context, anchors_hint)

    def _report_unlocked(self, context: CitationContext, message: str) -> Finding:
        opening = (
            f"the lock knows `{context.moved_from}` on this page; if"
            if context.moved_from
            else "if"
        )
        return context.finding(
            "N210",
            f"the lock {message}",
            expected=f"the citation in {display_path(self._path)}",
            help=f"{opening} these are the lines you mean, run `shardbook lock`",
        )

    def lock_findings(
        self, used: Counter[Use], sound: set[str], all_pages: set[str] | None
    ) -> Iterator[Finding]:
        """Check the lock itself against what the pages cite.

        Args:
            used: how often each original page has each citation.
            sound: the pages without a finding about a citation. Entries of other pages are checked
                once these are fixed.
            all_pages: all pages of the lab if all were read, else None.
        """
        if not self._has_lock:
            if used:
                yield Finding(
                    "N210",
                    display_path(self._path),
                    TOP,
                    "the lab has citations but no lock",
                    expected="citations.lock",
                    found="no file",
                    help="run `shardbook lock`",
                )
            return
        yield from self._check_commits()
        yield from self._check_disputes()
        yield from self._check_unused(used, sound, all_pages)

    def _check_commits(self) -> Iterator[Finding]:
        for name, source in self._lock.sources.items():
            pin = self._pins.get(name)
            if pin is None or (pin.commit and pin.commit != source.commit):
                yield self._finding_at(
                    "N211",
                    f'"{source.commit}"',
                    f"the lock is for another commit of `{name}` than the pin",
                    expected=f"`{pin.commit[:12]}`" if pin else "a source of this lab",
                    found=f"`{source.commit[:12]}`",
                    help="run `shardbook lock` where git or a mirror can be reached",
                )

    def _check_disputes(self) -> Iterator[Finding]:
        for file in self._evidence.list_files():
            if file.disputed:
                yield self._finding_at(
                    "N211",
                    f'"{file.path}"',
                    f"the lock has another blob id for `{file.path}` than the pinned commit",
                    expected="the same blob id from every provider",
                    found=file.disputed,
                    help="restore the lock from git, or run `shardbook lock` where git "
                    "or a mirror can be reached",
                )

    def _check_unused(
        self, used: Counter[Use], sound: set[str], all_pages: set[str] | None
    ) -> Iterator[Finding]:
        for name, citations in self._lock.citations.items():
            locked, pin = self._lock.sources.get(name), self._pins.get(name)
            if locked and (pin is None or pin.commit != locked.commit):
                continue  # reported above: the whole source must be locked again
            for key, citation in citations.items():
                idle_pages = [
                    page
                    for page, times in citation.pages.items()
                    if (page in sound or (all_pages is not None and page not in all_pages))
                    and used[name, key, page] < times
                ]
                if idle_pages:
                    yield self._finding_at(
                        "N212",
                        f'"{key}"',
                        f"the lock holds `{key}`, which {format_names(idle_pages)} no longer cites",
                        help="if you removed the citation on purpose, run `shardbook lock`",
                    )

    def _finding_at(self, code: str, needle: str, message: str, **details: str) -> Finding:
        """Return a finding at the line of the lock that holds `needle`."""
        span = find_text(self._path, needle)
        return Finding(code, display_path(self._path), span, message, **details)


def _compare_content(
    context: CitationContext, file: CitedFile, locked: LockedCitation, blob: str
) -> Iterator[Finding]:
    citation = context.citation
    digest = file.sha256_of(citation.first, citation.last)
    if blob not in (file.blob, WORKTREE) or digest != locked.sha256:
        yield context.finding(
            "N211",
            f"the lock records other lines for `{citation.text}`",
            expected=f"SHA-256 {locked.sha256[:12]}… of file {blob[:12]}",
            found=f"SHA-256 {digest[:12]}… of file {file.blob[:12]}",
            help="read the lines again (`shardbook show`), then run `shardbook lock`",
        )
    elif not context.quoted and set(locked.anchors).isdisjoint(context.block.names):
        yield context.finding(
            "N211",
            f"the lock records other anchors for `{citation.text}`",
            expected=format_names(locked.anchors) or "no anchor",
            found=format_names(sorted(context.anchors)),
            help="run `shardbook lock`",
        )


def _report_changed(context: CitationContext, locked: LockedCitation, now: list[str]) -> Finding:
    """Return the finding that the cited lines have other text; `now` is where their symbol is."""
    citation, listed = context.citation, " or ".join(f"`{place}`" for place in now[:3])
    is_there = format_citation(citation.path, citation.first, citation.last) in now
    cite = f"cite the lines of {listed} that it means; " if now and not is_there else ""
    return context.finding(
        "N219",
        f"the lines of `{context.citation.text}` have changed since the lock was written",
        expected=f"lines with SHA-256 {locked.sha256[:12]}…",
        found=f"`{locked.symbol}` is {listed}" if now else "no file of the working tree has them",
        help=f"read this sentence again: “{context.sentence}”; {cite}then run `shardbook lock`",
    )


def _format_count(count: int) -> str:
    return {1: "once", 2: "twice"}.get(count, f"{count} times")
