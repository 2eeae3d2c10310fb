"""Every way to make a citation of the real lab wrong, from the files that the lab cites."""

import itertools
from collections.abc import Iterator
from functools import partial

from notelab.book.evidence import CitedFile, State
from notelab.cited.nearest_range import ends_well
from notelab.cited.outline import FUNCTION
from notelab.page.citation import Citation, format_citation
from pages.faults.book import OUTSIDE_THE_WHEELS, RANGE_CODES, Book, Mutation

Plant = tuple[Mutation, set[str]]


class Sources:
    """The cited files of the real lab, from which faults are made.

    Attributes:
        functions: the heads of the other functions of a citation's file, by the citation's key.
    """

    def __init__(self, book: Book) -> None:
        """Read every page and every cited file once."""
        workbook = book.open()
        self._files = {
            file.path: file for file in workbook.evidence.list_files() if file.state is State.PROVED
        }
        self._named: dict[str, set[str]] = {}
        cited: dict[str, Citation] = {}
        for view in workbook.views:
            for block in view.note.blocks if view.note else []:
                for citation in block.citations:
                    self._named.setdefault(citation.text, set()).update(block.names)
                    cited[citation.key] = citation
        self.functions = {
            key: list(self._other_functions(citation))
            for key, citation in cited.items()
            if not citation.path.startswith(OUTSIDE_THE_WHEELS)
        }

    def file(self, citation: Citation) -> CitedFile:
        """Return the file that a citation names."""
        return self._files[citation.path]

    def shifted(self, citation: Citation, by: int) -> str | None:
        """Return the range moved by some lines, or None if it would begin before the file."""
        if citation.first + by < 1:
            return None
        return format_citation(citation.path, citation.first + by, citation.last + by)

    def other_file(self, citation: Citation) -> str | None:
        """Return the same lines of another file of the same source, or None if there is none."""
        cited_file = self.file(citation)
        paths = [
            f.path
            for f in self._files.values()
            if f.source == cited_file.source and f != cited_file
        ]
        if not paths:
            return None
        return format_citation(sorted(paths)[0], citation.first, citation.last)

    def other_function(self, citation: Citation, index: int) -> str | None:
        """Return the head of the `index`-th other function of the file; None if there are fewer."""
        functions = self.functions[citation.key]
        return functions[index] if index < len(functions) else None

    def _other_functions(self, citation: Citation) -> Iterator[str]:
        """Yield the head of each other function of the file, a range that is sound in itself.

        A function that the text names in code font is left out: the text is about it, so a citation
        of it would not be wrong.
        """
        outline = self.file(citation).outline
        assert outline is not None
        cited_symbol = outline.innermost(citation.first, citation.last)
        for symbol in outline.symbols:
            is_apart = symbol.last < citation.first or symbol.top > citation.last
            is_named = symbol.name.rpartition(".")[2] in self._named[citation.text]
            if symbol.kind != FUNCTION or not is_apart or is_named or symbol == cited_symbol:
                continue
            length = max(citation.last - citation.first, symbol.line - symbol.top + 1)
            ends = [
                line
                for line in range(symbol.line + 1, min(symbol.top + length, symbol.last) + 1)
                if ends_well(outline, line)
            ]
            if ends:
                yield format_citation(citation.path, symbol.top, ends[-1])

    def straddling(self, citation: Citation) -> str | None:
        """Return a range from the last line of one function into the first line of the next."""
        outline = self.file(citation).outline
        assert outline is not None
        tops = [s for s in outline.symbols if s.kind == FUNCTION and s.parent == -1]
        for function, next_function in itertools.pairwise(tops):
            if next_function.top > citation.first and next_function.line - function.last < 30:
                return format_citation(citation.path, function.last, next_function.line)
        return None

    def past_the_end(self, citation: Citation) -> str:
        """Return the lines just after the last line."""
        count = len(self.file(citation).lines)
        return format_citation(citation.path, count, count + 2)


def plants(book: Book) -> dict[str, dict[str, Plant]]:
    """Return every kind of fault, and for each kind every way to plant it in all citations at once.

    A way is a mutation and the codes that are right for it.
    """
    sources = Sources(book)

    def shifts(sizes: range) -> dict[str, Plant]:
        both = [by for size in sizes for by in (-size, size)]
        return {f"{by:+d}": (partial(sources.shifted, by=by), RANGE_CODES) for by in both}

    return {
        "shifted by 1 to 4 lines": shifts(range(1, 5)),
        "shifted by 5 to 50 lines": shifts(range(5, 51)),
        "pointing at another function": {
            str(index): (partial(sources.other_function, index=index), RANGE_CODES)
            for index in range(max(map(len, sources.functions.values())))
        },
        "pointing into another file": {"": (sources.other_file, RANGE_CODES)},
        "past the end of the file": {"": (sources.past_the_end, {"N205"})},
        "reversed": {"": (lambda c: format_citation(c.path, c.last + 1, c.first), {"N202"})},
        "straddling two functions": {"": (sources.straddling, {"N207"})},
        "too wide": {
            "": (lambda c: format_citation(c.path, c.first, c.first + 40), {"N205", "N206"})
        },
    }
