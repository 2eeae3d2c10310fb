"""`shardbook repin` on the command line: its options and its output."""

import shlex
from pathlib import Path

import click

from notelab.report.terminal import lab_option, mirror_option, offline_option, say, write


@click.command()
@click.argument("source")
@click.argument("ref")
@lab_option
@click.option("--output-format", type=click.Choice(["text", "json"]), default="text")
@click.option(
    "--write",
    "writing",
    is_flag=True,
    help="Write the same and moved citations, and the accepted ones.",
)
@click.option("--dry-run", is_flag=True, help="Write nothing; this is the default.")
@click.option("--reformatted", is_flag=True, help="Write, and accept every reformatted citation.")
@click.option(
    "--accept",
    multiple=True,
    metavar="OLD=NEW",
    help="Write, and accept PATH:L1-L9=L3-L11; may be repeated.",
)
@mirror_option
@offline_option
def repin(
    source: str,
    ref: str,
    lab_folder: Path | None,
    *,
    output_format: str,
    writing: bool,
    dry_run: bool,
    reformatted: bool,
    accept: tuple[str, ...],
    mirrors: tuple[str, ...],
    offline: bool,
) -> None:
    """Move SOURCE to REF, and say what happened to each citation."""
    from notelab.book.discovery import find_lab
    from notelab.book.opening import open_session
    from notelab.files import finish_journal
    from notelab.lab.lab import repository_root
    from notelab.repin import migrate
    from notelab.repin.review_order import build_review, render
    from notelab.repin.writing import as_json, as_text, write_repin

    for name in finish_journal(repository_root(Path.cwd())):
        say(f"finished an interrupted repin: {name}", stderr=True)
    typed = shlex.join(["shardbook", "repin", source, ref])
    folder = find_lab(source, lab_folder, Path.cwd(), to_write=typed)
    session = open_session(mirrors, folder, offline=offline)
    migration = migrate.open_migration(folder, source, ref, session)
    outcome = migrate.classify_citations(migration)
    review, remark = build_review(migration, outcome, session)
    session.cache.save()
    if remark:
        say(f"note: {remark}", stderr=True)
    if output_format == "json":
        write(as_json(outcome))
    else:
        say(*as_text(outcome), "", *render(review))
    if (writing or reformatted or accept) and not dry_run:
        report = write_repin(migration, outcome, session, reformatted=reformatted, accept=accept)
        say(*report, stderr=output_format == "json")
