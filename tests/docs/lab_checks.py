"""What labs, and the theory before them, are held to, so that they don't give answers away.

A check yields the line and what is wrong there, as those of `page_checks.py` do.
"""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.docs.page import ROOT
from tests.docs.page_checks import Faults, line_of

LABS = ROOT / "docs/labs"
NOTES = sorted((ROOT / "experiments/35-reading-notes").glob("*.md"))
THEORY = sorted((ROOT / "docs/theory").glob("0[1-4]-*.md"))
EARLIER_LABS = sorted(LABS.glob("0[0-2]*.md"))
BEFORE_LAB_03 = [ROOT / "docs/index.md", *THEORY, *EARLIER_LABS]

PREDICTION = re.compile(r"\*Predi(?:ct|ce)\b")
ROW = re.compile(r"\]\(\S*?(?:\bRESULTS(?:\.es)?\.md|\bmeasured/[\w./-]*)#([\w-]+)\)")
CITATION = re.compile(r"[\w/.-]+\.\w+:L\d+(?:-L\d+)?")
LINES = re.compile(r"([\w/.-]+\.py):L(\d+)(?:-L(\d+))?")
CHOICE = re.compile(r"^- \*\*.*\n(?:  .*\n)*", re.M)
HINT = re.compile(r'^\?\?\? \w+ "(.*)"\n((?: {4}.*\n|\n)+)', re.M)
CLAIMS = re.compile(
    r"^## (?:The claims, judged|Las afirmaciones, juzgadas)\n(.*?)^## ", re.M | re.S
)
FOLD = re.compile(
    r'[^|]*<details class="answers" markdown="1">\n'
    r"<summary>(?P<title>.*?)</summary>.*</details>\s*",
    re.S,
)
CANDIDATES = re.compile(
    r"^### The (?:lab's candidates|candidates of Block C)\n(.*?)^###? ", re.M | re.S
)
NEW_CHOICES = re.compile(
    r"\*\*(?:at least|al menos) (three|tres)\*\*.*?(?:labs|laboratorios) 00 (?:to|a) 02", re.S
)
Line = tuple[int, str, bool]  # its number, its text, and whether a fold that starts closed holds it


def list_lines(text: str) -> Iterator[Line]:
    """Yield each line that isn't code."""
    code = hint = False
    details = 0
    for number, line in enumerate(text.splitlines(), 1):
        if re.match(r" *```", line):
            code = not code
        if code:
            continue
        details += len(re.findall(r"<details(?![^>]* open)[^>]*>", line))
        if re.match(r"\?\?\?(?!\+)", line):
            hint = True
        elif line.strip() and not line.startswith("    "):
            hint = False
        yield number, line, hint or details > 0
        if details and "</details>" in line:
            details -= 1


def sections_with_predictions(text: str) -> Iterator[list[Line]]:
    """Yield the lines from a prediction to the next heading, one list a prediction."""
    section: list[Line] = []
    for line in list_lines(text):
        if line[1].startswith("#") or PREDICTION.search(line[1]):
            if section:
                yield section
            section = [line] if PREDICTION.search(line[1]) else []
        elif section:
            section.append(line)
    if section:
        yield section


def list_rows(lines: list[Line], *, folded: bool) -> list[tuple[int, str]]:
    """Return line and anchor of the result rows that stand inside folds, or outside."""
    return [
        (number, row)
        for number, line, inside in lines
        if inside is folded
        for row in ROW.findall(line)
    ]


def check_folds(page: Path, text: str) -> Faults:
    """Where a lab asks for a prediction, the reference machine's results are folded."""
    if page.parent.name != "labs":
        return
    sections = list(sections_with_predictions(text))
    hidden = {row for section in sections for row in list_rows(section, folded=False)}
    for number, row in list_rows(list(list_lines(text)), folded=False) if sections else []:
        # A count is the same on every machine, and spoils nothing where nobody has to predict it.
        if (number, row) in hidden or not row.startswith("count-"):
            yield number, f"fold #{row} (`??? example`): the page asks for a prediction"
    if page.name.startswith("02-"):
        if len(sections) < 4:
            yield 1, "fewer than four predictions"
        for section in sections:
            if not list_rows(section, folded=True):
                yield section[0][0], "no folded result follows the prediction"


def cited_lines(text: str) -> set[tuple[str, int]]:
    """Return every line that the text cites, as its file and its number."""
    return {
        (path, line)
        for path, first, last in LINES.findall(text)
        for line in range(int(first), int(last or first) + 1)
    }


def open_citations(text: str) -> set[tuple[str, int]]:
    """Return every line that the page cites outside of folds."""
    return cited_lines("\n".join(line for _, line, folded in list_lines(text) if not folded))


def choices_shown(choices: list[str], pages: list[Path]) -> list[str]:
    """Return the choices of which one of the English pages cites a line outside of folds."""
    english = [page for page in pages if ".es." not in page.name]
    lines = set().union(*(open_citations(page.read_text("utf-8")) for page in english))
    return [choice for choice in choices if cited_lines(choice) & lines]


@cache
def finished_notes() -> str:
    """Return the finished notes of lab 03, in both languages."""
    return "".join(note.read_text("utf-8") for note in NOTES)


def check_reading_lab(page: Path, text: str) -> Faults:
    """Lab 03 asks and points; it doesn't hand over the notes that it wants written."""
    if page.parent.name != "labs" or not page.name.startswith("03-"):
        return
    finished = {*CITATION.findall(finished_notes())}
    citations = list(CITATION.finditer(text))
    for citation in citations:
        if citation[0] in finished:
            yield line_of(text, citation.start()), f"a finished note cites it: {citation[0]}"
    hints = list(HINT.finditer(text))
    if len(finished) <= 30 or not citations or len(hints) <= 15:
        yield 1, f"{len(finished)} finished, {len(citations)} own citations, {len(hints)} hints"
    for hint in hints:
        if CITATION.search(hint[2]):
            yield line_of(text, hint.start()), "a hint names symbols, and no lines"
    if not NEW_CHOICES.search(text):
        yield 1, "it doesn't say how many choices cite only new lines"


def check_theory_before_lab_03(page: Path, text: str) -> Faults:
    """The theory before lab 03 folds its verdicts, and links no finished note."""
    if page.parent.name != "theory" or not re.match("0[1-4]-", page.name):
        return
    claims = CLAIMS.search(text)
    if not claims:
        yield 1, "the judged claims have no section of their own"
    else:
        fold = FOLD.fullmatch(claims[1])
        if not fold:
            yield line_of(text, claims.start()), "the table is not inside `details`"
        elif not re.search(r"[Ll]ab(?:oratorio)? 03", fold["title"]):
            yield line_of(text, claims.start()), "the summary doesn't say until when"
    for match in re.finditer("35-reading-notes", text):
        yield line_of(text, match.start()), "links a finished note"


CHECKS = (check_folds, check_reading_lab, check_theory_before_lab_03)
