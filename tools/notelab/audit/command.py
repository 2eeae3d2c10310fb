"""`shardbook audit` on the command line: its options and its output."""

from collections import Counter
from pathlib import Path
from typing import get_args

import click
from msgspec import to_builtins

from notelab.report.terminal import format_count, mirror_option, say, write


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE…", type=click.Path(path_type=Path))
@click.option(
    "--source", "sources", multiple=True, metavar="NAME=URL", help="A repository that is cited."
)
@click.option("--lab", "folder", type=click.Path(path_type=Path), help="The new lab's folder.")
@mirror_option
def adopt(
    files: tuple[Path, ...],
    sources: tuple[str, ...],
    folder: Path | None,
    mirrors: tuple[str, ...],
) -> None:
    """Make a lab of notes that exist already, with a baseline.

    If nothing says which commit was read, it is found in a clone by the names near the citations.
    """
    from notelab.audit.adopt import adopt as adopt_notes

    say(*adopt_notes(list(files), folder, sources, mirrors))


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE…", type=click.Path(path_type=Path))
@click.option(
    "--at", "ref", default="", metavar="REF", help="Audit documents and code of a commit."
)
@click.option("--output-format", type=click.Choice(["text", "json"]), default="text")
@click.option("--write", "writing", is_flag=True, help="Rewrite the citations that are certain.")
@click.option("-v", "--verbose", is_flag=True, help="List the citations that are right, too.")
def audit(
    files: tuple[Path, ...], ref: str, *, output_format: str, writing: bool, verbose: bool
) -> int:
    """Say what became of each citation of FILE that names no commit.

    Each is dated by blame, and its text is carried to HEAD of its own repository.
    """
    from notelab.audit.audit import audit_document, rewrite
    from notelab.audit.judge import State
    from notelab.errors import NotelabError, display_path
    from notelab.files import write_files
    from notelab.report.formats import format_json

    if ref and writing:
        raise NotelabError(
            "--write rewrites the working copy, but --at audits another one",
            hint="leave out one of the two",
        )
    documents = [audit_document(path, ref) for path in dict.fromkeys(files)]
    citations = [citation for document in documents for citation in document.citations]
    if output_format == "json":
        write(format_json({"citations": to_builtins(citations)}))
    else:
        for each in citations:
            if verbose or each.state != "right":
                lines = f"L{each.start}" + (f"-L{each.end}" if each.end != each.start else "")
                say(f"{each.document}:{each.line} {each.state} {each.path}:{lines}")
                say(*(f"    -> {place}" for place in each.proposals if each.state != "right"))
                say(f"    {'certain: ' if each.certain else ''}{each.reason}")
        counts = Counter(each.state for each in citations)
        sums = ", ".join(f"{counts[state]} {state}" for state in get_args(State))
        say(f"{format_count(len(citations), 'citation')}: {sums}")
    unread = [part for document in documents for part in document.unread]
    say(*unread, stderr=True)
    wrong = len(unread) + sum(each.state != "right" for each in citations)
    if writing:
        for document in documents:
            data, count = rewrite(document)
            if count:
                write_files({document.path.resolve(): data})  # of a link, the file that it names
                wrong -= count
            name = display_path(document.path)
            say(
                f"{name}: {format_count(count, 'citation')} rewritten",
                stderr=output_format == "json",
            )
    return 1 if wrong else 0
