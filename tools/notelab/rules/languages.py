"""N5xx: compares a translation's choices, citations, numbers and diagrams with the original's."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator

from notelab.finding import TOP, Finding
from notelab.lab.pages import ParsedPage
from notelab.page.citation import Span
from notelab.page.note import Note, ProseBlock

# A number and its unit read alike in either language: "0.75×", "14.2 MiB", "2.01 GB/s".
_QUANTITY = re.compile(r"\d[\d.,]*(?:\s?(?:[KMGT]?i?B(?:/s)?|[mµn]?s|[MG]\b|[%×]))?")


def findings(original: ParsedPage, translation: ParsedPage) -> Iterator[Finding]:
    """Compare a translation with its original; faults of either page are found by other rules."""
    if original.exists and not translation.exists:
        yield translation.finding(
            "N501",
            TOP,
            f"`{original.filename}` has no translation into `{translation.page.language}`",
            expected="the file",
            found="no file",
        )
    if original.note is None or translation.note is None:
        return
    yield from _compare_choices(original, translation, original.note, translation.note)
    yield from _compare_numbers(translation, original.note, translation.note)
    yield from _compare_diagrams(translation, original.note, translation.note)
    yield from _find_untranslated(translation, original.note, translation.note)


def _compare_choices(
    original_view: ParsedPage, translation_view: ParsedPage, original: Note, translation: Note
) -> Iterator[Finding]:
    if len(original.choices) != len(translation.choices):
        yield translation_view.finding(
            "N502",
            TOP,
            "the translation has another number of choices than the original",
            expected=f"{len(original.choices)}, as in {original_view.filename}",
            found=f"{len(translation.choices)}",
        )
        yield from _compare_citations(
            translation_view, "the page", TOP, original.blocks, translation.blocks
        )
        return
    pairs = zip(original.choices, translation.choices, strict=True)
    for number, (first, second) in enumerate(pairs, start=1):
        yield from _compare_citations(
            translation_view, f"choice {number}", second.span, [first], [second]
        )
    outside_choices = original.outside_choices, translation.outside_choices
    yield from _compare_citations(
        translation_view, "the text around the choices", TOP, *outside_choices
    )


def _compare_citations(
    view: ParsedPage,
    where: str,
    span: Span,
    original: Iterable[ProseBlock],
    translation: Iterable[ProseBlock],
) -> Iterator[Finding]:
    first, second = (
        Counter(
            [
                citation.text if citation.problem else citation.key
                for block in blocks
                for citation in block.citations
            ]
        )
        for blocks in (original, translation)
    )
    if first != second:
        yield view.finding(
            "N503",
            span,
            f"{where} cites other lines than the original",
            expected=_format_excess(first, second, "`{}`") or "only what the original has",
            found=_format_excess(second, first, "`{}`") or "missing",
        )


def _format_excess(counts: Counter[str], subtracted: Counter[str], form: str = "{}") -> str:
    """Return what `counts` has more of than `subtracted`."""
    return ", ".join(map(form.format, (counts - subtracted).elements()))


def _compare_numbers(view: ParsedPage, original: Note, translation: Note) -> Iterator[Finding]:
    translated_numbers = [f"{link.text} (#{link.anchor})" for link in translation.numbers]
    first = Counter([f"{link.text} (#{link.anchor})" for link in original.numbers])
    second = Counter(translated_numbers)
    if first != second:
        links = zip(translated_numbers, translation.numbers, strict=True)
        places = (link.span for text, link in links if text in second - first)
        yield view.finding(
            "N504",
            next(places, TOP),
            "the translation quotes other numbers than the original",
            expected=_format_excess(first, second) or "only what the original has",
            found=_format_excess(second, first) or "missing",
        )


def _compare_diagrams(view: ParsedPage, original: Note, translation: Note) -> Iterator[Finding]:
    first, second = (
        [diagram.id or "no id" for diagram in note.diagrams] for note in (original, translation)
    )
    if first != second:
        yield view.finding(
            "N505",
            TOP,
            "the translation has other diagrams than the original, or in another order",
            expected=", ".join(f"`{name}`" for name in first) or "none",
            found=", ".join(f"`{name}`" for name in second) or "none",
        )


def _find_untranslated(view: ParsedPage, original: Note, translation: Note) -> Iterator[Finding]:
    """Yield a finding for each longer paragraph that is the same in both languages."""
    original_texts = {
        " ".join(block.prose.split()) for block in original.blocks if block.words >= 8
    }
    for block in translation.blocks:
        prose = " ".join(block.prose.split())
        if prose in original_texts and _count_words(_QUANTITY.sub(" ", prose)) >= 8:
            yield view.finding(
                "N506",
                block.span,
                "this paragraph is the same as in the original, word for word",
                expected=f"the paragraph in `{view.page.language}`",
                found=f"“{prose[:50]}…”",
            )


def _count_words(prose: str) -> int:
    from notelab.page.inline import count_words  # imported late: it compiles many patterns

    return count_words(prose)
