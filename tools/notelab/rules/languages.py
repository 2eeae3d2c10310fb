"""N5xx: has a translation the choices, citations, numbers and diagrams of its original?"""

import re
from collections import Counter
from collections.abc import Iterator

from notelab.book.view import View
from notelab.page.citation import Span
from notelab.page.note import Cell, Note
from notelab.report.finding import TOP, Finding

# A number and its unit read alike in either language: "0.75×", "14.2 MiB", "2.01 GB/s".
_QUANTITY = re.compile(r"\d[\d.,]*(?:\s?(?:[KMGT]?i?B(?:/s)?|[mµn]?s|[MG]\b|[%×]))?")


def findings(original: View, translation: View) -> Iterator[Finding]:
    """Compare a translation with its original; both sides' own faults are other rules'."""
    if not translation.exists:
        if original.exists:
            yield _missing(original, translation)
        return
    if original.note is None or translation.note is None:
        return
    yield from _choices(original, translation, original.note, translation.note)
    yield from _numbers(translation, original.note, translation.note)
    yield from _diagrams(translation, original.note, translation.note)
    yield from _same_text(translation, original.note, translation.note)


def _missing(original: View, translation: View) -> Finding:
    return translation.finding(
        "N501",
        TOP,
        f"`{original.filename}` has no translation into `{translation.page.language}`",
        expected="the file",
        found="no file",
    )


def _choices(one: View, other: View, original: Note, translation: Note) -> Iterator[Finding]:
    if len(original.choices) != len(translation.choices):
        yield Finding(
            "N502",
            other.filename,
            TOP,
            "the translation has another number of choices than the original",
            expected=f"{len(original.choices)}, as in {one.filename}",
            found=f"{len(translation.choices)}",
        )
        yield from _citations(other, "the page", TOP, original.citations, translation.citations)
        return
    pairs = zip(original.choices, translation.choices, strict=True)
    for number, (first, second) in enumerate(pairs, start=1):
        yield from _citations(
            other, f"choice {number}", second.span, first.citations, second.citations
        )
    yield from _citations(
        other, "the text around the choices", TOP, _loose(original.other), _loose(translation.other)
    )


def _loose(cells: list[Cell]) -> list[object]:
    return [citation for cell in cells for citation in cell.citations]


def _citations(
    view: View, where: str, span: Span, original: object, translation: object
) -> Iterator[Finding]:
    first, second = _texts(original), _texts(translation)
    if first == second:
        return
    missing, added = list((first - second).elements()), list((second - first).elements())
    yield view.finding(
        "N503",
        span,
        f"{where} cites other lines than the original",
        expected=", ".join(f"`{text}`" for text in missing) or "no more than the original",
        found=", ".join(f"`{text}`" for text in added) or "not there",
    )


def _texts(citations: object) -> Counter[str]:
    assert isinstance(citations, list)
    return Counter(citation.text for citation in citations)


def _numbers(view: View, original: Note, translation: Note) -> Iterator[Finding]:
    first = Counter((link.anchor, link.text) for link in original.numbers)
    second = Counter((link.anchor, link.text) for link in translation.numbers)
    if first == second:
        return
    added = list((second - first).elements())
    places = [link.span for link in translation.numbers if (link.anchor, link.text) in added]
    yield view.finding(
        "N504",
        places[0] if places else TOP,
        "the translation quotes other numbers than the original",
        expected=", ".join(f"{text} (#{row})" for row, text in (first - second).elements())
        or "no more than the original",
        found=", ".join(f"{text} (#{row})" for row, text in added) or "not there",
    )


def _diagrams(view: View, original: Note, translation: Note) -> Iterator[Finding]:
    first = [diagram.id for diagram in original.diagrams]
    second = [diagram.id for diagram in translation.diagrams]
    if first == second:
        return
    yield view.finding(
        "N505",
        TOP,
        "the translation has other diagrams than the original, or in another order",
        expected=", ".join(f"`{name or 'no id'}`" for name in first) or "none",
        found=", ".join(f"`{name or 'no id'}`" for name in second) or "none",
    )


def _same_text(view: View, original: Note, translation: Note) -> Iterator[Finding]:
    """A paragraph of some length that stands in both languages to the letter is in neither."""
    said = {" ".join(cell.prose.split()) for cell in original.cells if cell.words >= 8}
    for cell in translation.cells:
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
