"""N2xx: checks the form of each citation and finds its file; other modules check the rest."""

from collections import Counter
from pathlib import Path

import msgspec

from notelab.book.evidence import CitedFile, State
from notelab.book.workbook import Workbook
from notelab.cache import CacheFile, cache_key, get_decoded
from notelab.finding import Finding
from notelab.lab.pages import ParsedPage
from notelab.lines import is_anchor, names_in
from notelab.page.citation import format_citation
from notelab.page.note import Note
from notelab.rules import ranges
from notelab.rules.constraints import PageQuotation, find_quotations
from notelab.rules.locked import LockJudge
from notelab.rules.ranges import CitationContext
from notelab.sources.git.url import normalize_repository


class Verdict(msgspec.Struct, array_like=True):
    """The result for one citation: its findings, and how it was proved."""

    findings: list[Finding]
    source: str = ""
    key: str = ""  # as the lock of that source writes it
    proof: str = ""  # "git" or "wheel": which provider proved that the commit holds the file
    locked: bool = False
    unstructured: bool = False  # in a file whose statements cannot be parsed here

    @property
    def proved(self) -> bool:
        """Return whether the text of the file itself was available."""
        return bool(self.proof)


class Judge:
    """Checks the citations of one lab."""

    def __init__(self, book: Workbook, cache: CacheFile) -> None:
        """Prepare; citations that fit are stored in `cache`."""
        self._lab, self._pins, self._cache = book.lab, book.pins, cache
        self._unknown_commit, self._resolver = book.evidence.unknown_commit, book.resolver
        self.lock = LockJudge(book)
        self._quotations: dict[Path, list[PageQuotation]] = {}
        # All that a page's verdicts depend on except its text; a blob id stands for a file's lines.
        listed = book.evidence.list_files()
        files = [(f.source, f.path, f.state, f.blob, f.proof, f.has_kin) for f in listed]
        commits = {name: pin.commit for name, pin in book.pins.items()}
        inputs = (book.lab.file, book.lab.sources, commits, book.lock, files)
        self._inputs_key = cache_key(msgspec.msgpack.encode(inputs))

    def verdicts(self, view: ParsedPage) -> list[Verdict]:
        """Return the verdict on each citation of a page, in the page's order.

        If all citations of a page are sound, the verdicts are cached by all that they depend on.
        """
        if view.note is None:
            return []
        linked = [(each.tag, each.problem) for each in view.note.citations if each.repository]
        key = f"{view.digest} {view.page.key} {self._inputs_key}"
        key += cache_key(msgspec.msgpack.encode(linked)) if linked else ""  # a branch may move
        cached = get_decoded(self._cache, "verdicts", key, list[Verdict])
        if cached is not None:
            return cached
        verdicts = self._judge_page(view, view.note)
        if all(verdict.key and not verdict.findings for verdict in verdicts):
            self._cache.put("verdicts", key, msgspec.msgpack.encode(verdicts))
        return verdicts

    def quotations(self, view: ParsedPage) -> list[PageQuotation]:
        """Return the quotations of a page, each with its citation and a finding or None."""
        path = view.page.path
        if path not in self._quotations:
            self._quotations[path] = list(find_quotations(self._resolver, view))
        return self._quotations[path]

    def _judge_page(self, view: ParsedPage, note: Note) -> list[Verdict]:
        max_lines = view.page.table.max_lines or self._lab.file.lab.max_lines
        occurrences = Counter(cited.key for cited in note.citations if not cited.problem)
        quoted = {
            citation.span: frozenset(filter(is_anchor, names_in(quotation.text)))
            for quotation, citation, finding in self.quotations(view)
            if finding is None
        }
        return [
            self._judge_citation(
                CitationContext(
                    *(view, block, citation, max_lines, occurrences[citation.key]),
                    quoted=quoted.get(citation.span, frozenset()),
                )
            )
            for block in note.blocks
            for citation in block.citations
        ]

    def _judge_citation(self, context: CitationContext) -> Verdict:
        citation = context.citation
        if malformed := _check_form(context):
            return Verdict([malformed])
        if outdated := self.lock.find_outdated(context):
            source, finding = outdated
            # No other rule checks such a citation.
            return Verdict([finding], source, citation.key_in(source))
        file = self._resolve(context)
        if file is None:
            return Verdict([])
        if isinstance(file, Finding):
            return Verdict([file])
        if file.state is State.POINTER:
            return Verdict([_report_pointer(context, file)])
        findings = []
        note_sources = context.view.page.table.sources
        if note_sources and file.source not in note_sources:
            findings.append(
                context.finding(
                    "N214",
                    f"`{citation.path}` is a file of `{file.source}`, which this note doesn't read",
                    expected="a file of " + " or ".join(f"`{name}`" for name in note_sources),
                    help=f'add "{file.source}" to the note\'s `sources` in lab.toml',
                )
            )
        proved = file.state is State.PROVED
        context.moved_from = self.lock.find_moved_from(file, citation, context.page)
        misfits, structured = ranges.judge(context, file, self._cache) if proved else ([], True)
        findings += misfits
        # A range that does not fit must be fixed first, so what the lock says is not reported.
        findings = findings or list(self.lock.findings(context, file))
        key = citation.key_in(file.source)
        is_own_form = citation.form in ("code", "symbol") and citation.text == key
        if self._lab.file.lab.style and not is_own_form:
            findings.append(_report_form(context, key))
        return Verdict(
            findings,
            file.source,
            key,
            proof=file.proof if proved else "",
            locked=not proved,
            unstructured=not structured,
        )

    def _resolve(self, context: CitationContext) -> CitedFile | Finding | None:
        """Return the cited file, a finding that says why there is none, or None.

        None means that the pin of a source is unusable, which is a finding of its own.
        """
        citation = context.citation
        if finding := self._check_source(context):
            return finding
        resolved = self._resolver.resolve(citation)
        looked_up = [resolved.file] if resolved.file else resolved.candidates
        known = [file for file in looked_up if file.state in (State.PROVED, State.ABSENT)]
        drift = next(filter(None, (self.lock.find_drift(context, each) for each in known)), None)
        if drift or resolved.file:
            return drift or resolved.file
        if resolved.rivals:
            return context.finding(
                "N204",
                f"`{citation.path}` is a file of more than one source",
                expected="one source",
                found=", ".join(f"`{file.source}`" for file in resolved.rivals),
                help=f"write `{resolved.rivals[0].source}:{citation.text}`",
            )
        if resolved.sole:
            return _report_ambiguous_source(context, resolved.sole, resolved.unknown)
        if any(self._pins[name].code or self._unknown_commit(name) for name in resolved.names):
            return None
        return _report_unknown_path(context, resolved.candidates)

    def _check_source(self, context: CitationContext) -> Finding | None:
        """Return a finding if the citation names a source that the lab does not have, else None."""
        citation, sources = context.citation, self._lab.sources
        if citation.source and citation.source not in sources:
            return context.finding(
                "N203",
                f"this lab has no source `{citation.source}`, which `{citation.text}` names",
                expected=" or ".join(f"`{name}`" for name in sources),
            )
        if not citation.repository:
            return None
        names = self._resolver.of_repository(citation)
        commits = [self._pins[name].commit for name in names if self._pins[name].commit]
        if any(commit.startswith(citation.commit) for commit in commits):
            return None
        if not names:
            repositories = (
                f"`{normalize_repository(source.url)}`" for source in sources.values() if source.url
            )
            return context.finding(
                "N216",
                f"the link is to `{citation.repository}`, which is no source of this lab",
                expected=" or ".join(repositories),
                help="link to the file without its lines, or add the repository to lab.toml",
            )
        return context.finding(
            "N216",
            f"the link is to another commit of `{names[0]}` than the pin",
            expected=" or ".join(f"`{commit[:12]}`" for commit in commits) or "a usable pin",
            found=f"`{citation.commit[:12]}`",
            help=f"read the lines at the pin, then write `{names[0]}:"
            f"{format_citation(citation.path, citation.first, citation.last)}`",
        )


def _check_form(context: CitationContext) -> Finding | None:
    """Return a finding if the citation is malformed, whatever its file holds, else None."""
    citation = context.citation
    if citation.problem:
        return context.finding("N201", f"`{citation.text[:80]}` {citation.problem}")
    if citation.label:
        return _report_label(context)
    if citation.last < citation.first:
        reversed_range = format_citation(citation.path, citation.last, citation.first)
        message = f"the range of `{citation.text}` runs backwards"
        fix = "`shardbook check --fix --write` turns it round, if the file has the lines"
        return context.finding("N202", message, help=f"did you mean `{reversed_range}`?; {fix}")
    return None


def _report_form(context: CitationContext, key: str) -> Finding:
    return context.finding(
        "N233",
        f"`{context.citation.text[:200]}` is not in the form that the lab asks for",
        expected=f"`{key}`",
        help="`shardbook check --fix --write` writes it",
    )


def _report_label(context: CitationContext) -> Finding:
    citation = context.citation
    return context.finding(
        "N231",
        "the link's label cites another place than its target",
        expected="the same place in the label and in the target",
        found=f"`{citation.label[:120]}` and `{citation.text[:200]}`",
        help="if the target is right, `shardbook check --fix --write` writes it into the label",
    )


def _report_ambiguous_source(
    context: CitationContext, sole: CitedFile, unasked: list[CitedFile]
) -> Finding:
    return context.finding(
        "N213",
        f"`{context.citation.text}` is a file of `{sole.source}`, and perhaps of another source",
        expected="an answer from every source of the lab, or the source's name in the citation",
        found="; ".join(f"`{file.source}`: {'; '.join(file.reasons)}" for file in unasked),
        help=f"write `{sole.source}:{context.citation.text}`, or run where git can be reached",
    )


def _report_pointer(context: CitationContext, file: CitedFile) -> Finding:
    return context.finding(
        "N213",
        f"`{context.citation.text}` could not be proved: {'; '.join(file.reasons)}",
        expected="a file whose text is in the commit",
        help="cite another file; no commit of the source contains the text behind the pointer",
    )


def _report_unknown_path(context: CitationContext, searched: list[CitedFile]) -> Finding:
    citation = context.citation
    suggestions = [path for file in searched for path in file.suggestions][:3]
    closest = "closest: " + ", ".join(f"`{path}`" for path in suggestions) if suggestions else ""
    if searched and all(file.state is State.ABSENT for file in searched):
        return context.finding(
            "N203",
            f"no source has `{citation.path}` at its pin",
            expected="a path from the root of "
            + " or ".join(f"`{file.source}`" for file in searched),
            help=closest,
        )
    reasons = list(dict.fromkeys(reason for file in searched for reason in file.reasons))
    return context.finding(
        "N213",
        f"`{citation.text}` could not be proved, and the lock doesn't know its file",
        expected="a file that the lock knows, or a provider that has it at the pin",
        found="; ".join(reasons) or "no usable pin",
        help=closest or "check the path, or run where git is reachable or with --mirror NAME=DIR",
    )
