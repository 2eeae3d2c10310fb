"""N1xx: checks a page's limits (its stop conditions); those about pins are in commits.py."""

from collections.abc import Iterator

from notelab.book.workbook import Workbook
from notelab.errors import display_path
from notelab.finding import TOP, Finding, find_text
from notelab.lab.lab import LAB_FILE, Lab
from notelab.lab.pages import ParsedPage
from notelab.lab.pins import Pin
from notelab.page.citation import Citation
from notelab.page.note import Heading, Note, ProseBlock
from notelab.rules import commits


def check_closing_section(lab: Lab, view: ParsedPage, note: Note) -> Iterator[Finding]:
    """Check a note's last section."""
    mentions = view.page.table.closing_mentions.get(view.page.language)
    if not mentions:
        return
    closing_heading = lab.closing_heading(view.page.language)
    if not closing_heading:
        lab_file = display_path(lab.folder / LAB_FILE)
        yield view.finding(
            "N109",
            TOP,
            f"{lab_file} sets no `closing-heading.{view.page.language}`",
            expected="under `[lab]`, the heading of the last section in the language of the page",
        )
        return
    closings = [
        heading
        for heading in note.headings
        if heading.text.casefold() == closing_heading.casefold()
    ]
    sections = [heading for heading in note.headings if heading.level <= 2]
    if not closings:
        yield view.finding(
            "N109",
            TOP,
            "the note has no closing section",
            expected=f"a last section `## {closing_heading}`",
            found=f"last section `{sections[-1].text}`" if sections else "no section",
        )
        return
    closing, last = closings[-1], note.headings[-1]
    if closing is not last:
        yield view.finding(
            "N110",
            closing.span,
            "the closing is not the last section",
            expected=f"nothing after `## {closing_heading}`",
            found=f"`{last.text}`",
        )
    elif closing.level != 2:
        yield view.finding(
            "N110",
            closing.span,
            f"the closing's heading is of level {closing.level}",
            expected=f"level 2: `## {closing_heading}`",
            found=f"level {closing.level}",
        )
    yield from _check_closing(view, closing, mentions)


def _check_closing(view: ParsedPage, closing: Heading, mentions: list[str]) -> Iterator[Finding]:
    if closing.paragraphs != 1 or closing.other_blocks:
        extra = f" and {closing.other_blocks} other blocks" if closing.other_blocks else ""
        yield view.finding(
            "N111",
            closing.span,
            "the closing is not one paragraph",
            expected="one paragraph and nothing else",
            found=f"{closing.paragraphs} paragraphs{extra}",
        )
    prose = " ".join(closing.prose.split()).casefold()
    if not any(mention.casefold() in prose for mention in mentions):
        yield view.finding(
            "N112",
            closing.span,
            "the closing mentions nothing from `closing-mentions`",
            expected="one of " + ", ".join(f"“{mention}”" for mention in mentions),
            found=f"“{prose[:60]}…”" if prose else "no prose",
        )


def check_new_choices(book: Workbook, earlier: list[ParsedPage]) -> Iterator[Finding]:
    """Check that enough choices of a lab cite only lines that no earlier page cites.

    A lab whose notes still lack choices is not checked.
    """
    minimum = book.lab.file.lab.min_new_choices or 0
    notes = [
        view
        for view in book.views
        if view.page.listed and not view.page.original
        and view.page.path.is_relative_to(book.lab.folder)
    ]  # fmt: skip
    choices = [c for view in notes if view.note for c in view.note.choices if c.citations]
    cited = [(view.filename, c) for view in earlier if view.note for c in view.note.citations]
    repeated = []
    for choice in choices:
        pages = (
            filename
            for filename, earlier_citation in cited
            if any(_share_lines(earlier_citation, citation) for citation in choice.citations)
        )
        if page := next(pages, ""):
            repeated.append(f"“{choice.title.rstrip('.')}” ({page})")
    new = len(choices) - len(repeated)
    if new >= minimum or len(choices) < sum(view.page.table.min_choices or 0 for view in notes):
        return
    path = book.lab.folder / LAB_FILE
    yield Finding(
        "N114",
        display_path(path),
        find_text(path, "min-new-choices"),
        f"{new} of {len(choices)} choices cite only lines that no earlier page cites",
        expected=f"at least {minimum}",
        found="cited earlier: " + ", ".join(repeated),
        help="cite other lines, or write about another decision",
    )


def _share_lines(citation: Citation, other: Citation) -> bool:
    paths = f"/{citation.path}", f"/{other.path}"
    same_file = paths[0].endswith(paths[1]) or paths[1].endswith(paths[0])
    return same_file and citation.first <= other.last and other.first <= citation.last


_TO_DO_CODES = ("N1", "N3", "N210", "N212")  # stop conditions, diagrams, a lock that is behind


def is_to_do(lab: Lab, finding: Finding) -> bool:
    """Return whether a finding is something that a lab in progress still lacks, not an error."""
    return lab.file.lab.in_progress and finding.code.startswith(_TO_DO_CODES)


def page_findings(lab: Lab, view: ParsedPage, pinned: dict[str, Pin]) -> Iterator[Finding]:
    """Check that a page can be read, its words, its choices and its closing."""
    if view.note is None:
        yield from _check_readable(view)
        return
    for part in view.note.unread:
        yield view.finding(
            "N102",
            part.span,
            f"the page {part.description}",
            expected="shorter paragraphs, and lists and quotations that are nested less deeply",
        )
    for hidden in view.note.hidden:
        yield view.finding(
            "N113",
            hidden.span,
            f"the page contains a hidden character: {hidden.description}",
            expected="text without hidden characters",
            help="delete it, or type the line again",
        )
    if view.page.listed:
        yield from commits.commit_findings(lab, view, view.note, pinned)
    yield from _check_words(view, view.note)
    yield from _check_choices(view, view.note)
    yield from check_closing_section(lab, view, view.note)


def _check_readable(view: ParsedPage) -> Iterator[Finding]:
    if view.problem:
        yield view.finding(
            "N102",
            TOP,
            f"the page {view.problem}",
            expected="a Markdown file in UTF-8 of at most 256 KiB",
        )
    elif view.page.original is None:
        yield view.finding(
            "N101",
            TOP,
            "a page that lab.toml names is missing",
            expected="the file",
            found="no file",
            help="write it, or delete its table from lab.toml",
        )


def _check_words(view: ParsedPage, note: Note) -> Iterator[Finding]:
    max_words = view.page.table.max_words
    if max_words is not None and note.words > max_words:
        yield view.finding(
            "N104",
            TOP,
            f"the note has {note.words} words",
            expected=f"at most {max_words}",
            found=f"{note.words}",
            help=f"cut {note.words - max_words}",
        )


def _check_choices(view: ParsedPage, note: Note) -> Iterator[Finding]:
    table = view.page.table
    cited = [choice for choice in note.choices if choice.citations]
    if table.min_choices is None and table.choice_words is None:
        return
    if len(cited) < (table.min_choices or 0):
        uncited_count = len(note.choices) - len(cited)
        uncited = f", and {uncited_count} without a citation" if uncited_count else ""
        yield view.finding(
            "N105",
            TOP,
            f"the note has {len(cited)} choices with a citation",
            expected=f"at least {table.min_choices} top-level `- ` bullets with a citation each",
            found=f"{len(cited)}{uncited}",
        )
    for number, choice in enumerate(note.choices, start=1):
        yield from _check_choice(view, number, choice)


def _check_choice(view: ParsedPage, number: int, choice: ProseBlock) -> Iterator[Finding]:
    subject = f"choice {number}" + (f" ({choice.title.rstrip('.')})" if choice.title else "")
    limits = view.page.table.choice_words
    if limits and not limits[0] <= choice.words <= limits[1]:
        low, high = limits
        fix = f"add {low - choice.words}" if choice.words < low else f"cut {choice.words - high}"
        yield view.finding(
            "N106",
            choice.span,
            f"{subject} has {choice.words} words",
            expected=f"{low} to {high}",
            found=f"{choice.words}",
            help=fix,
        )
    if not choice.title:
        yield view.finding(
            "N107",
            choice.span,
            f"{subject} doesn't begin with a bold title",
            expected="`- **Title.** …`",
            found=f"`{' '.join(choice.prose.split())[:40]}`",
        )
    if not choice.citations:
        yield view.finding(
            "N108",
            choice.span,
            f"{subject} cites nothing",
            expected="at least one citation such as `path/file.py:L10-L14`",
            found="none",
            help="`shardbook cite SOURCE SYMBOL` prints one",
        )
