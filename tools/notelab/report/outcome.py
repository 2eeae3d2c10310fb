"""The outcome of a check: what was found, proved and counted."""

from collections.abc import Mapping
from pathlib import Path

import msgspec

from notelab.finding import Finding


class NoteReport(msgspec.Struct):
    """The counts of one page; `max_words` and `min_choices` are 0 if there is no limit.

    `cited_choices` are the choices that count towards the limit. `unjudged` is how often the page
    has text that looks like a citation but is not checked.
    """

    filename: str
    lab: str
    language: str
    words: int
    choices: int
    citations: int
    proved: int
    locked: int
    diagrams: int
    by_wheel: int = 0
    unstructured: int = 0
    unjudged: int = 0
    waived: int = 0
    cited_choices: int = 0
    min_choices: int = 0
    max_words: int = 0


class SourceReport(msgspec.Struct):
    """How many of a source's cited files were read or proved, and by which provider.

    `vouched` counts the files that this lab's lock does not know, by the other lab whose lock does.
    """

    name: str
    commit: str
    release: str
    files: int
    proved: int
    providers: dict[str, int]
    reasons: list[str]
    vouched: dict[str, int] = {}


class Unparsed(msgspec.Struct):
    """A cited file without a structure rule: the reason, and a count.

    `citations` counts its citations that were proved, by their lines and names alone.
    """

    reason: str
    citations: int


class LabReport(msgspec.Struct):
    """The outcome for one lab.

    `lock_only` gives, for each file whose text was not available, the number of its citations that
    were checked against the lock only. Of the proved citations, `by_wheel` are of files that only a
    wheel proves, and `unstructured` are of files whose statements are not parsed. `unparsed` are
    these files, with the reasons.
    """

    title: str
    folder: str
    sources: list[SourceReport]
    notes: int
    citations: int
    proved: int
    locked: int
    diagrams: int
    lock_only: dict[str, int]
    unread_for_paste: int
    by_wheel: int = 0
    unstructured: int = 0
    unjudged: int = 0
    waived: int = 0
    in_progress: bool = False
    to_do: int = 0
    compares: bool = False  # all of it was checked, and it has the solution of another lab
    committed: bool = False  # it compares, and its notes are committed as they are
    unparsed: dict[str, Unparsed] = {}


class Report(msgspec.Struct):
    """The outcome of a check over one or more labs.

    `to_do` lists what a lab in progress still lacks. Neither it nor `warnings` makes a check fail.
    """

    findings: list[Finding] = []
    notes: list[NoteReport] = []
    labs: list[LabReport] = []
    to_do: list[Finding] = []
    warnings: list[Finding] = []
    baselined: int = 0  # findings that a lab's baseline has

    def keep(self, codes: frozenset[str]) -> None:
        """Keep only the findings of some rules."""
        for field in ("findings", "to_do", "warnings"):
            selected = [each for each in getattr(self, field) if each.code in codes]
            setattr(self, field, selected)

    def apply_baselines(self, wanted: Mapping[Path, set[Path] | None], *, shrink: bool) -> None:
        """Remove the findings that the labs' baselines have; `shrink` drops the fixed ones there.

        Only a lab of which every page was checked can lose a row of its baseline.
        """
        folders = [folder for folder in wanted if (folder / "baseline.json").is_file()]
        if not folders:
            return
        from notelab.audit import baseline

        for folder in folders:
            self.findings, used = baseline.split(folder, self.findings)
            self.baselined += used.total()
            if shrink and wanted[folder] is None:
                baseline.write(folder, used)

    def add(self, report: "Report") -> None:
        """Add the outcome of another lab; a finding that both labs have is listed once."""
        self.findings = sorted(
            {*self.findings, *report.findings}, key=lambda finding: finding.order
        )
        self.to_do += report.to_do
        self.warnings += report.warnings
        self.notes += report.notes
        self.labs += report.labs
