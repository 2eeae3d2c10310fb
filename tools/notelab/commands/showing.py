"""`shardbook show`: the cited lines, with their numbers."""

from pathlib import Path

import msgspec

from notelab.book.evidence import CitedFile, State
from notelab.book.finding_labs import no_such_source
from notelab.book.workbook import Bench, open_lab
from notelab.errors import NotelabError, sanitize
from notelab.page.citation import Citation, Span
from notelab.page.citation_syntax import looks_like_citation, parse


class Shown(msgspec.Struct):
    """A citation and the file that it stands in."""

    citation: Citation
    file: CitedFile
    commit: str


def find(labs: list[Path], text: str, bench: Bench) -> Shown:
    """Find the lines that a citation names, in the first lab whose sources have them.

    Raises:
        NotelabError: it is no citation, or no lab's source has its lines at hand.
    """
    text = text.strip().strip("`")
    if not looks_like_citation(text):
        raise NotelabError(f"{text!r} is no citation", hint="write path/from/root.py:L10-L14")
    citation = parse(text, Span(1, 1, 1, 1))
    if citation.problem or citation.last < citation.first:
        raise NotelabError(f"{text!r} {citation.problem or 'runs backwards'}")
    reasons: list[str] = []
    sources: dict[str, None] = {}
    for folder in labs:
        book = open_lab(folder, bench, only=set())
        sources |= dict.fromkeys(book.pins)
        book.resolver.gather([citation])
        resolved = book.resolver.resolve(citation)
        if resolved.rivals:
            raise NotelabError(
                f"{citation.path} is a file of more than one source",
                hint=" or ".join(f"show {file.source}:{text}" for file in resolved.rivals),
            )
        # Whoever asks to see lines reads whose they are; a source out of reach may have them too.
        there = resolved.file or resolved.sole
        if there and there.state is State.PROVED:
            if citation.last <= len(there.lines):
                return Shown(citation, there, book.pins[there.source].commit)
            raise NotelabError(
                f"{citation.path} has {len(there.lines)} lines; {citation.text} goes past its end"
            )
        for file in resolved.asked:
            reasons += file.reasons or [f"{file.source} has no such file at its pin"]
            reasons += [f"closest: {path}" for path in file.near[:1]]
    if citation.source and citation.source not in sources:
        raise no_such_source(citation.source, sources)
    raise NotelabError(
        f"{citation.path} is not at hand: " + ("; ".join(dict.fromkeys(reasons)) or "no usable pin")
    )


def write(shown: Shown, context: int, *, colour: bool) -> str:
    """Return the lines with their numbers, the cited ones marked; highlighted with `colour`."""
    citation, file = shown.citation, shown.file
    first = max(citation.first - context, 1)
    last = min(citation.last + context, len(file.lines))
    outline = file.outline
    symbol = outline.innermost(citation.first, citation.last) if outline else None
    # Names and lines are a remote's: no control character of theirs may reach the terminal.
    named = f"  {symbol.name}" if symbol else ""
    head = sanitize(f"{file.source} {shown.commit[:12]}  {file.path}{named}")
    lines = [
        sanitize(line.decode("utf-8", "replace").replace("\t", "    "))
        for line in file.lines[first - 1 : last]
    ]
    cited = range(citation.first, citation.last + 1) if context else range(0)
    if colour:
        return _highlighted(head, file.path, lines, first, set(cited))
    rows = [
        f"{'>' if number in cited else ' '}{number:>6}  {line}".rstrip()
        for number, line in enumerate(lines, start=first)
    ]
    return "".join(f"{row}\n" for row in [head, *rows])


def _highlighted(head: str, path: str, lines: list[str], first: int, cited: set[int]) -> str:
    from io import StringIO

    from rich.console import Console
    from rich.syntax import Syntax

    out = StringIO()
    console = Console(file=out, highlight=False, force_terminal=True)
    console.print(head, style="bold", markup=False, soft_wrap=True)
    console.print(
        Syntax(
            "\n".join(lines),
            Syntax.guess_lexer(path),
            theme="ansi_dark",
            line_numbers=True,
            start_line=first,
            highlight_lines=cited,
            background_color="default",
        )
    )
    return out.getvalue()
