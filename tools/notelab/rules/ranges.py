"""N205 to N209, N215: checks that a range fits its file and that the text names what it shows."""

import re
from collections.abc import Iterator

import msgspec

from notelab.book.evidence import CitedFile
from notelab.cache import CacheFile
from notelab.cited import nearest_range
from notelab.cited.outline import Outline
from notelab.finding import Finding
from notelab.lab.pages import ParsedPage
from notelab.lines import is_anchor
from notelab.page.citation import Citation, format_citation, group_ranges
from notelab.page.note import ProseBlock

_SENTENCE_END = re.compile(r"[.!?][*_)\"”»]*\s+(?=[*_(\"“«¿¡`]*[A-ZÁÉÍÓÚÑ])")


class CitationContext(msgspec.Struct):
    """A citation, the block and the page that hold it, and what the rules find out about it.

    `occurrences` is how often the page cites the same lines. `fix_hint` caches the range that would
    fit. `moved_from` is the nearby citation of this page that the lock knows, from which this
    citation probably moved. `quoted` are the identifiers of a quotation of the cited lines.
    """

    view: ParsedPage
    block: ProseBlock
    citation: Citation
    max_lines: int
    occurrences: int
    fix_hint: str | None = None
    moved_from: str = ""
    quoted: frozenset[str] = frozenset()

    @property
    def page(self) -> str:
        """Return the page's name in the lock."""
        return self.view.page.key

    @property
    def anchors(self) -> set[str]:
        """Return the identifiers that the text around the citation names or quotes."""
        return {name for name in self.block.names if is_anchor(name)} | self.quoted

    @property
    def ranges(self) -> list[Citation]:
        """Return the citations that share this one's path: the ranges that follow it."""
        groups = group_ranges(self.block.citations, lambda each: each.form)
        return next(group for group in groups if self.citation in group)

    @property
    def sentence(self) -> str:
        """Return the sentence that holds the citation, on one line."""
        span, block = self.citation.span, self.block.span
        rows = self.view.text.split("\n")[block.row - 1 : max(block.end_row, block.row)]
        place = span.row - block.row
        offset = sum(len(row) + 1 for row in rows[:place]) + span.column - 1
        text = "\n".join(rows)
        cuts = [0, *(match.end() for match in _SENTENCE_END.finditer(text))]
        start = max(cut for cut in cuts if cut <= offset)
        end = min((cut for cut in cuts if cut > offset), default=len(text))
        return " ".join(text[start:end].split())[:300]

    def finding(self, code: str, message: str, **details: str) -> Finding:
        """Return a finding at the citation's position; for `details` see `View.finding`."""
        return self.view.finding(code, self.citation.span, message, **details)


def format_names(names: list[str]) -> str:
    """Return up to six names as a comma-separated list, and how many more there are."""
    first_names = ", ".join(f"`{name}`" for name in names[:6])
    return first_names + (f" and {len(names) - 6} more" if len(names) > 6 else "")


def judge(
    context: CitationContext, file: CitedFile, cache: CacheFile
) -> tuple[list[Finding], bool]:
    """Return the findings about a citation's range, and whether the file has a parsed structure.

    A fit is cached by all that it depends on. A misfit is computed each time, with its explanation.
    """
    citation, anchors = context.citation, " ".join(sorted(context.anchors))
    key = f"{file.blob} {file.path}:{citation.first}-{citation.last} {context.max_lines} {anchors}"
    cached = cache.get("fits", key)
    if cached is not None:
        return [], cached == b"structured"
    misfits = list(findings(context, file))
    structured = bool(file.outline and file.outline.structured)
    if not misfits:
        cache.put("fits", key, b"structured" if structured else b"lines")
    return misfits, structured


def findings(context: CitationContext, file: CitedFile) -> Iterator[Finding]:
    """Yield what does not fit in a citation's range."""
    citation, outline = context.citation, file.outline
    assert outline is not None
    if citation.last > outline.lines:
        yield context.finding(
            "N205",
            f"`{citation.text}` goes past the end of the file",
            expected=f"lines 1 to {outline.lines}",
            found=f"line {citation.last}",
            help=_suggest_fix(context, outline),
        )
        return
    length = citation.last - citation.first + 1
    if length > context.max_lines:
        yield context.finding(
            "N206",
            f"`{citation.text}` covers {length} lines",
            expected=f"at most {context.max_lines} lines",
            found=f"{length}",
            help=_suggest_fix(context, outline),
        )
    if outline.structured:
        yield from _check_structure(context, outline)
    if context.anchors.isdisjoint(outline.names_between(citation.first, citation.last)):
        places = nearest_range.find_names(outline, context.anchors)
        places_text = ", ".join(f"`{name}` at L{row}" for name, row in places)
        anchors_elsewhere = f"in this file: {places_text}; " if places_text else ""
        yield not_anchored(context, anchors_elsewhere + _suggest_fix(context, outline))
    else:
        yield from _check_anchor(context, outline)


def _check_structure(context: CitationContext, outline: Outline) -> Iterator[Finding]:
    citation = context.citation
    symbol = nearest_range.straddles(outline, citation.first, citation.last)
    if symbol:
        yield context.finding(
            "N207",
            f"`{citation.text}` crosses the edge of `{symbol.name}`",
            expected=f"lines of one symbol; `{symbol.name}` is L{symbol.top}-L{symbol.last}",
            found=_describe_ends(outline, citation),
            help=_suggest_fix(context, outline),
        )
    elif not nearest_range.is_whole(outline, citation.first, citation.last):
        problems = []
        if not nearest_range.starts_well(outline, citation.first):
            problems.append(
                f"begins at line {citation.first}, which is not the first line of a statement"
            )
        if not nearest_range.ends_well(outline, citation.last):
            problems.append(
                f"ends at line {citation.last}, which is not the last line of a statement"
            )
        yield context.finding(
            "N208",
            f"`{citation.text}` " + ", and ".join(problems),
            expected="the first line of a statement (or of its comment or decorator) to the last "
            "line of a statement",
            help=_suggest_fix(context, outline),
        )


def _describe_ends(outline: Outline, citation: Citation) -> str:
    first = outline.innermost(citation.first, citation.first)
    last = outline.innermost(citation.last, citation.last)
    names = [f"`{symbol.name}`" if symbol else "the module" for symbol in (first, last)]
    return f"begins in {names[0]}, ends in {names[1]}"


def _check_anchor(context: CitationContext, outline: Outline) -> Iterator[Finding]:
    citation = context.citation
    kind = "statements" if outline.structured else "lines"
    if weak := nearest_range.weakness(outline, citation.first, citation.last, context.anchors):
        yield context.finding(
            "N215",
            f"every name that the text gives from `{citation.text}` is common in the lines around",
            expected="one name of the cited lines that is in at most "
            f"{nearest_range.COMMON:.0%} of "
            f"the {kind} within {nearest_range.NEAR_BY} lines",
            found=f"the rarest, `{weak.name}`, is in {weak.count} of {weak.statements}",
            help=f"also name one of {format_names(weak.better)}" if weak.better else "",
        )


def not_anchored(context: CitationContext, help: str) -> Finding:
    """Return the finding that the text names nothing from the cited lines."""
    return context.finding(
        "N209",
        f"no name that the text gives in code font is in `{context.citation.text}`",
        expected="one identifier of the cited lines, in code font, in the same choice",
        found=format_names(sorted(context.anchors)) or "no identifier in code font",
        help=help,
    )


def _suggest_fix(context: CitationContext, outline: Outline) -> str:
    """Return which range would fit and where the enclosing symbol is; computed once."""
    if context.fix_hint is not None:
        return context.fix_hint
    citation = context.citation
    hints = [f"the lock knows `{context.moved_from}` on this page"] if context.moved_from else []
    nearest_fit = nearest_range.nearest(
        outline, citation.first, citation.last, context.max_lines, context.anchors
    )
    if nearest_fit:
        hints.append(f"nearest that fits: `{format_citation(citation.path, *nearest_fit)}`")
    middle = min((citation.first + citation.last) // 2, outline.lines)
    symbol = outline.innermost(middle, middle)
    if symbol:
        hints.append(f"`{symbol.name}` is L{symbol.top}-L{symbol.last}")
    context.fix_hint = "; ".join(hints)
    return context.fix_hint
