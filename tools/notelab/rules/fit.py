"""N205 to N209: does a range fit the file it cites, and name what it shows?"""

from collections.abc import Iterator

from notelab.book.evidence import CitedFile
from notelab.cache import CacheFile
from notelab.cited import fitting
from notelab.cited.outline import Outline
from notelab.page.citation import Citation, format_citation
from notelab.report.finding import Finding
from notelab.rules.case import Case, listed


def judged(case: Case, file: CitedFile, cache: CacheFile) -> tuple[list[Finding], bool]:
    """Judge a citation's range against the file's own lines; tell whether it has a structure.

    That a range fits is remembered by all that it hangs on; why one doesn't is worked out anew.
    """
    cited, anchors = case.citation, " ".join(sorted(case.anchors))
    key = f"{file.blob} {file.path}:{cited.first}-{cited.last} {case.max_lines} {anchors}"
    kept = cache.get("fits", key)
    if kept is not None:
        return [], kept == b"structured"
    found = list(findings(case, file))
    structured = bool(file.outline and file.outline.structured)
    if not found:
        cache.put("fits", key, b"structured" if structured else b"lines")
    return found, structured


def findings(case: Case, file: CitedFile) -> Iterator[Finding]:
    """Say what of a citation's range does not fit."""
    citation, outline = case.citation, file.outline
    assert outline is not None
    if citation.last > outline.lines:
        yield case.finding(
            "N205",
            f"`{citation.text}` goes past the end of the file",
            expected=f"lines 1 to {outline.lines}",
            found=f"line {citation.last}",
            help=_mend(case, outline),
        )
        return
    length = citation.last - citation.first + 1
    if length > case.max_lines:
        yield case.finding(
            "N206",
            f"`{citation.text}` is {length} lines wide",
            expected=f"at most {case.max_lines} lines",
            found=f"{length}",
            help=_mend(case, outline),
        )
    if outline.structured:
        yield from _structure(case, outline)
    if case.anchors.isdisjoint(outline.names_between(citation.first, citation.last)):
        places = fitting.standing_places(outline, case.anchors)
        where = ", ".join(f"`{name}` at L{row}" for name, row in places)
        stand = f"in this file: {where}; " if where else ""
        yield not_anchored(case, stand + _mend(case, outline))
    else:
        yield from _weak(case, outline)


def _structure(case: Case, outline: Outline) -> Iterator[Finding]:
    citation = case.citation
    crossed = fitting.straddles(outline, citation.first, citation.last)
    if crossed:
        yield case.finding(
            "N207",
            f"`{citation.text}` crosses the edge of `{crossed.name}`",
            expected=f"lines of one symbol; `{crossed.name}` is L{crossed.top}-L{crossed.last}",
            found=_touched(outline, citation),
            help=_mend(case, outline),
        )
    elif not fitting.is_whole(outline, citation.first, citation.last):
        wrong = []
        if not fitting.starts_well(outline, citation.first):
            wrong.append(f"begins at line {citation.first}, which begins no statement")
        if not fitting.ends_well(outline, citation.last):
            wrong.append(f"ends at line {citation.last}, which ends none")
        yield case.finding(
            "N208",
            f"`{citation.text}` " + " and ".join(wrong),
            expected="the first line of a statement (or of its comment or decorator) to the last "
            "line of one",
            help=_mend(case, outline),
        )


def _touched(outline: Outline, citation: Citation) -> str:
    first = outline.innermost(citation.first, citation.first)
    last = outline.innermost(citation.last, citation.last)
    names = [f"`{symbol.name}`" if symbol else "the module" for symbol in (first, last)]
    return f"begins in {names[0]}, ends in {names[1]}"


def _weak(case: Case, outline: Outline) -> Iterator[Finding]:
    citation = case.citation
    kind = "statements" if outline.structured else "lines"
    if weak := fitting.weakness(outline, citation.first, citation.last, case.anchors):
        yield case.finding(
            "N215",
            f"what the text names of `{citation.text}` stands nearly everywhere around it",
            expected=f"one name of the cited lines in at most {fitting.COMMON:.0%} of the {kind} "
            f"within {fitting.NEAR_BY} lines",
            found=f"`{weak.name}`, the rarest, in {weak.stands} of {weak.near}",
            help=f"name {listed(weak.better)} too" if weak.better else "",
        )


def not_anchored(case: Case, help: str) -> Finding:
    """Return the finding that the text names nothing of the cited lines."""
    return case.finding(
        "N209",
        f"nothing that the text names in code font stands in `{case.citation.text}`",
        expected="one identifier of the cited lines, in code font, in the same choice",
        found=listed(sorted(case.anchors)) or "no identifier in code font",
        help=help,
    )


def _mend(case: Case, outline: Outline) -> str:
    """Say which range would fit, and what the symbol around really is; searched for once."""
    if case.mend is not None:
        return case.mend
    citation = case.citation
    said = [f"the lock knows `{case.once}` on this page"] if case.once else []
    near = fitting.nearest(outline, citation.first, citation.last, case.max_lines, case.anchors)
    if near:
        said.append(f"nearest that fits: `{format_citation(citation.path, *near)}`")
    middle = min((citation.first + citation.last) // 2, outline.lines)
    symbol = outline.innermost(middle, middle)
    if symbol:
        said.append(f"`{symbol.name}` is L{symbol.top}-L{symbol.last}")
    case.mend = "; ".join(said)
    return case.mend
