"""N109 to N112: checks that a note ends with a closing that refers to what came before."""

from collections.abc import Iterator

from notelab.book.parsed_page import ParsedPage
from notelab.lab.lab import Lab
from notelab.page.note import Heading, Note
from notelab.report.finding import TOP, Finding


def findings(lab: Lab, view: ParsedPage, note: Note) -> Iterator[Finding]:
    """Check a note's last section."""
    mentions = view.page.table.closing_mentions.get(view.page.language)
    if not mentions:
        return
    closing_heading = lab.closing_heading(view.page.language)
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
