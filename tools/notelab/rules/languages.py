"""N5xx: has a translation the choices, citations, numbers and diagrams of its original?"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator

from notelab.book.view import View
from notelab.page.citation import Span
from notelab.page.note import Note, ProseBlock
from notelab.report.finding import TOP, Finding

# A number and its unit read alike in either language: "0.75×", "14.2 MiB", "2.01 GB/s".
_QUANTITY = re.compile(r"\d[\d.,]*(?:\s?(?:[KMGT]?i?B(?:/s)?|[mµn]?s|[MG]\b|[%×]))?")


def findings(original: View, translation: View) -> Iterator[Finding]:
    """Compare a translation with its original; both sides' own faults are other rules'."""
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
    yield from _choices(original, translation, original.note, translation.note)
    yield from _numbers(translation, original.note, translation.note)
    yield from _diagrams(translation, original.note, translation.note)
    yield from _same_text(translation, original.note, translation.note)


def _choices(one: View, other: View, original: Note, translation: Note) -> Iterator[Finding]:
    if len(original.choices) != len(translation.choices):
        yield other.finding(
            "N502",
            TOP,
            "the translation has another number of choices than the original",
            expected=f"{len(original.choices)}, as in {one.filename}",
            found=f"{len(translation.choices)}",
        )
        yield from _citations(other, "the page", TOP, original.blocks, translation.blocks)
        return
    pairs = zip(original.choices, translation.choices, strict=True)
    for number, (first, second) in enumerate(pairs, start=1):
        yield from _citations(other, f"choice {number}", second.span, [first], [second])
    around = original.outside_choices, translation.outside_choices
    yield from _citations(other, "the text around the choices", TOP, *around)


def _citations(
    view: View,
    where: str,
    span: Span,
    original: Iterable[ProseBlock],
    translation: Iterable[ProseBlock],
) -> Iterator[Finding]:
    first, second = (
        Counter([one.text if one.problem else one.key for cell in cells for one in cell.citations])
        for cells in (original, translation)
    )
    if first != second:
        yield view.finding(
            "N503",
            span,
            f"{where} cites other lines than the original",
            expected=_more(first, second, "`{}`") or "no more than the original",
            found=_more(second, first, "`{}`") or "not there",
        )


def _more(one: Counter[str], other: Counter[str], form: str = "{}") -> str:
    """Return what the one has more of than the other."""
    return ", ".join(map(form.format, (one - other).elements()))


def _numbers(view: View, original: Note, translation: Note) -> Iterator[Finding]:
    said = [f"{link.text} (#{link.anchor})" for link in translation.numbers]
    first = Counter([f"{link.text} (#{link.anchor})" for link in original.numbers])
    second = Counter(said)
    if first != second:
        links = zip(said, translation.numbers, strict=True)
        places = (link.span for text, link in links if text in second - first)
        yield view.finding(
            "N504",
            next(places, TOP),
            "the translation quotes other numbers than the original",
            expected=_more(first, second) or "no more than the original",
            found=_more(second, first) or "not there",
        )


def _diagrams(view: View, original: Note, translation: Note) -> Iterator[Finding]:
    first, second = ([one.id or "no id" for one in n.diagrams] for n in (original, translation))
    if first != second:
        yield view.finding(
            "N505",
            TOP,
            "the translation has other diagrams than the original, or in another order",
            expected=", ".join(f"`{name}`" for name in first) or "none",
            found=", ".join(f"`{name}`" for name in second) or "none",
        )


def _same_text(view: View, original: Note, translation: Note) -> Iterator[Finding]:
    """A paragraph of some length that stands in both languages to the letter is in neither."""
    said = {" ".join(cell.prose.split()) for cell in original.blocks if cell.words >= 8}
    for cell in translation.blocks:
        prose = " ".join(cell.prose.split())
        if prose in said and _words(_QUANTITY.sub(" ", prose)) >= 8:
            yield view.finding(
                "N506",
                cell.span,
                "this paragraph is the original's, word for word",
                expected=f"it in `{view.page.language}`",
                found=f"“{prose[:50]}…”",
            )


def _words(prose: str) -> int:
    from notelab.page.inline import count_words  # with all the patterns that reading a page needs

    return count_words(prose)
