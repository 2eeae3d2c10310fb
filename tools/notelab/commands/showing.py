"""`shardbook show`: prints the cited lines with their numbers."""

from pathlib import Path

import msgspec

from notelab.book.discovery import unknown_source_error
from notelab.book.evidence import CitedFile, State
from notelab.book.workbook import CheckSession, open_lab
from notelab.errors import NotelabError, sanitize
from notelab.page.citation import Citation, Span
from notelab.page.citation_syntax import looks_like_citation, parse


class Shown(msgspec.Struct):
    """A citation, its file and its commit."""

    citation: Citation
    file: CitedFile
    commit: str


def find(labs: list[Path], text: str, session: CheckSession) -> Shown:
    """Find the lines that a citation names, in the first lab whose sources have them.

    Raises:
        NotelabError: the text is no citation, or no source of a lab has its lines here.
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
        book = open_lab(folder, session, only=set())
        sources |= dict.fromkeys(book.pins)
        book.resolver.gather([citation])
        resolved = book.resolver.resolve(citation)
        if resolved.rivals:
            raise NotelabError(
                f"{citation.path} is a file of more than one source",
                hint=" or ".join(f"show {file.source}:{text}" for file in resolved.rivals),
            )
        # The output names the source, so a file is shown even if another source may have it, too.
        cited = resolved.file or resolved.sole
        if cited and cited.state is State.PROVED:
            if citation.last <= len(cited.lines):
                return Shown(citation, cited, book.pins[cited.source].commit)
            raise NotelabError(
                f"{citation.path} has {len(cited.lines)} lines; {citation.text} goes past its end"
            )
        for file in resolved.candidates:
            reasons += file.reasons or [f"{file.source} has no such file at its pin"]
            reasons += [f"closest: {path}" for path in file.suggestions[:1]]
    if citation.source and citation.source not in sources:
        raise unknown_source_error(citation.source, sources)
    raise NotelabError(
        f"{citation.path} is not available: "
        + ("; ".join(dict.fromkeys(reasons)) or "no usable pin")
    )


def write(shown: Shown, context: int, *, colour: bool) -> str:
    """Return the lines with their numbers, with cited lines marked; `colour` highlights them."""
    citation, file = shown.citation, shown.file
    first = max(citation.first - context, 1)
    last = min(citation.last + context, len(file.lines))
    outline = file.outline
    symbol = outline.innermost(citation.first, citation.last) if outline else None
    # Names and lines come from a remote, so their control characters must not reach the terminal.
    named = f"  {symbol.name}" if symbol else ""
    head = sanitize(f"{file.source} {shown.commit[:12]}  {file.path}{named}")
    lines = [
        sanitize(line.decode("utf-8", "replace").replace("\t", "    "))
        for line in file.lines[first - 1 : last]
    ]
    cited = range(citation.first, citation.last + 1) if context else range(0)
    if colour:
        return _highlight(head, file.path, lines, first, set(cited))
    rows = [
        f"{'>' if number in cited else ' '}{number:>6}  {line}".rstrip()
        for number, line in enumerate(lines, start=first)
    ]
    return "".join(f"{row}\n" for row in [head, *rows])


def _highlight(head: str, path: str, lines: list[str], first: int, cited: set[int]) -> str:
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
