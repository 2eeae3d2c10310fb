"""What a check found, proved and counted."""

import msgspec

from notelab.report.finding import Finding


class NoteReport(msgspec.Struct):
    """What was counted and proved of one page; `max_words` and `min_choices` are 0 where no limit.

    `cited_choices` are those of its choices that count towards the limit; `unjudged` is how often
    it has text that looks like a citation and is not judged.
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
    """How a source's cited files came: by which provider, with which proof.

    `vouched` says how many the lock didn't know, and whose other lab's lock did.
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
    """A cited file without structure rules, in a language that has them: why, and how often cited.

    `citations` counts those that were proved, so by their lines and names alone.
    """

    reason: str
    citations: int


class LabReport(msgspec.Struct):
    """What was proved of one lab.

    `lock_only` says, for each file whose text was not at hand, how many citations of it were
    checked against the lock alone. Of those proved, `by_wheel` are of files that a wheel alone says
    the commit holds, and `unstructured` of files in which no rule knows a statement; `unparsed` are
    those of such files whose language has rules, but which can't be parsed here.
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
    compares: bool = (
        False  # checked whole, it has a solution to be compared with that isn't its own
    )
    unparsed: dict[str, Unparsed] = {}


class Report(msgspec.Struct):
    """The outcome of a check over one or more labs.

    `to_do` holds what a lab in progress still lacks, where it fails nobody.
    """

    findings: list[Finding] = []
    notes: list[NoteReport] = []
    labs: list[LabReport] = []
    to_do: list[Finding] = []

    def add(self, other: "Report") -> None:
        """Take in another lab's outcome; a place that two labs judge is said once."""
        self.findings = sorted({*self.findings, *other.findings}, key=lambda one: one.order)
        self.to_do += other.to_do
        self.notes += other.notes
        self.labs += other.labs
