"""The commands of learners: `shardbook new` and `shardbook compare`."""

from pathlib import Path

import click

from notelab.errors import NotelabError, display_path
from notelab.report.terminal import mirror_option, offline_option, say, write


@click.command()
@click.argument("name")
@click.option("--from", "origin", metavar="LAB", help="Copy the conditions and the pins of LAB.")
@click.option(
    "--repo",
    metavar="URL",
    help="Read this repository; `.` is the one that contains the lab.",
)
@click.option("--ref", help="The tag, branch or commit of --repo; of `.`, by default, HEAD.")
@click.option(
    "--language",
    metavar="CODE",
    default="en",
    show_default=True,
    help="The notes' language: two letters. The hints are in English or Spanish.",
)
@mirror_option
def new(
    *,
    name: str,
    origin: str | None,
    repo: str | None,
    ref: str | None,
    language: str,
    mirrors: tuple[str, ...],
) -> None:
    """Start a lab in a folder NAME: lab file, pins, blank notes.

    A bare name is created in experiments/, if there is one; a path, where it says.
    """
    from notelab.commands import starting

    if origin is not None and repo is None and ref is None:
        lines = starting.from_lab(name, origin, language, Path.cwd())
    elif origin is None and repo is not None and (ref or repo == "."):
        lines = starting.about(name, repo, ref or "HEAD", language, mirrors)
    else:
        hint = "`shardbook new NAME --from LAB`, or `shardbook new NAME --repo URL --ref REF`"
        raise NotelabError("a new lab needs --from, or --repo with --ref", hint=hint)
    say(*lines)


@click.command()
@click.argument("folder", metavar="[LAB]", required=False, type=click.Path(path_type=Path))
@click.option(
    "--output-format", type=click.Choice(["text", "json"]), default="text", show_default=True
)
@click.option("--all", "show_all", is_flag=True, help="List every choice that you missed.")
@click.option(
    "--page", is_flag=True, help="Also write the comparison as a page in the lab's folder."
)
@mirror_option
@offline_option
def compare(
    folder: Path | None,
    output_format: str,
    *,
    show_all: bool,
    page: bool,
    mirrors: tuple[str, ...],
    offline: bool,
) -> None:
    """Compare your committed choices with the solution's.

    Choices match if they cite the same lines or symbol. The rest are missed, or yours alone.
    """
    from notelab.book.opening import open_session
    from notelab.commands import comparing
    from notelab.report.formats import format_json

    session = open_session(mirrors, *([folder] if folder else []), offline=offline)
    folder = (folder or comparing.find_lab(Path.cwd(), session)).resolve()
    comparison, remarks = comparing.compare(folder, session)
    say(*(f"note: {remark}" for remark in remarks), stderr=True)
    if page:
        path = comparing.write_page(comparison, folder, session.lab(folder).languages[0])
        say(f"wrote {display_path(path)}", stderr=True)
    write(
        format_json(comparing.to_data(comparison))
        if output_format == "json"
        else comparing.format_text(
            comparison, () if show_all else session.lab(folder).file.lab.candidates
        )
    )
