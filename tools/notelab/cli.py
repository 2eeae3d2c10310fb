"""The command line: `shardbook check` and the other commands for learners and authors.

Each command imports heavy modules only when it runs. A check of one note therefore takes about a
tenth of a second, which matters because it runs on every commit.
"""

import errno
import gc
import os
import shlex
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from notelab import __version__
from notelab.audit.command import adopt, audit
from notelab.commands.learning import compare, new
from notelab.errors import NotelabError, display_path
from notelab.recall.recall_command import recall
from notelab.repin.repin_command import repin
from notelab.report.terminal import (
    EXIT_FAULT,
    lab_option,
    mirror_option,
    offline_option,
    paths_argument,
    say,
    wants_colour,
    write,
)

EXIT_FINDINGS = 1
if TYPE_CHECKING:
    from notelab.report.formats import Detail
    from notelab.report.outcome import Report


def main() -> None:
    """Run the command line and exit: 0 for no findings, 1 for findings, 2 if the tool failed."""
    try:
        # A label may hold any character, also one that the terminal's own encoding lacks.
        for stream in (sys.stdout, sys.stderr):
            if hasattr(stream, "reconfigure"):
                stream.reconfigure(encoding="utf-8", errors="replace")
        status = cli(standalone_mode=False)
    except (click.exceptions.Abort, KeyboardInterrupt):
        _fail("interrupted", "no file is left half-written; run the command again")
    except click.ClickException as fault:
        fault.show()
        sys.exit(EXIT_FAULT)
    except NotelabError as fault:
        _fail(str(fault), fault.hint)
    except OSError as fault:
        nowhere = "the current folder" if fault.errno == errno.ENOENT else "the output"
        place = display_path(Path(str(fault.filename))) if fault.filename else nowhere
        _fail(f"{place} cannot be read or written: {fault.strerror or fault}", "")
    except Exception as fault:
        if os.environ.get("SHARDBOOK_TRACEBACK"):
            raise
        reason = " ".join(f"{type(fault).__name__}: {fault}".split())
        _fail(f"a fault of shardbook: {reason[:300]}", "set SHARDBOOK_TRACEBACK=1 and report it")
    for stream in filter(None, (sys.stdout, sys.stderr)):
        with suppress(OSError):
            stream.flush()
    # Exit without freeing objects one by one, which would take a tenth of a check's time.
    os._exit(status if isinstance(status, int) else 0)


def _fail(message: str, hint: str) -> NoReturn:
    say(f"error: {message}", stderr=True)
    if hint:
        say(f"hint: {hint}", stderr=True)
    sys.exit(EXIT_FAULT)


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="shardbook")
def cli() -> None:
    """Prove reading notes: every citation at its pin, every number, every diagram."""
    # A command runs for seconds and creates few cycles. Without cycle collection a check of a
    # thousand notes takes a tenth less time and a repin a sixth less, in the same memory.
    gc.disable()


cli.add_command(new)
cli.add_command(adopt)
cli.add_command(audit)
cli.add_command(compare)
cli.add_command(recall)
cli.add_command(repin)


@cli.command()
@paths_argument
@click.option(
    "--output-format",
    type=click.Choice(["text", "json", "github", "sarif"]),
    default="text",
    show_default=True,
)
@click.option(
    "-q", "--quiet", "detail", flag_value="findings", help="Print findings only, and no summary."
)
@click.option("--by-lab", "detail", flag_value="labs", help="Print a line for each lab, too.")
@click.option(
    "-v", "--verbose", "detail", flag_value="tables", help="Print a table for each lab, too."
)
@click.option("--select", multiple=True, metavar="CODES", help="Report these rules only: N2,N601.")
@click.option("--ignore", multiple=True, metavar="CODES", help="Don't report these rules.")
@click.option("--exit-zero", is_flag=True, help="Exit with 0 even if there are findings.")
@click.option(
    "--stdin-filename", default="-", metavar="NAME", help="With PATH `-`: the document's name."
)
@click.option(
    "--strict", is_flag=True, help="Fail on text that looks like a citation but isn't judged."
)
@click.option("--fix", "fixing", is_flag=True, help="Print certain fixes of citations, as a diff.")
@click.option("--write", "writing", is_flag=True, help="With --fix: write them, and check again.")
@click.option(
    "--baseline", "shrinking", is_flag=True, help="Drop fixed findings from the labs' baselines."
)
@click.option("--watch", is_flag=True, help="Check again whenever a file is saved, until Ctrl-C.")
@mirror_option
@offline_option
def check(
    *,
    paths: tuple[Path, ...],
    output_format: str,
    detail: "Detail | None",
    select: tuple[str, ...],
    ignore: tuple[str, ...],
    exit_zero: bool,
    stdin_filename: str,
    strict: bool,
    fixing: bool,
    writing: bool,
    shrinking: bool,
    watch: bool,
    mirrors: tuple[str, ...],
    offline: bool,
) -> int:
    """Check labs or single notes; without PATH, check every lab.

    A PATH is a lab's folder, one of its pages, or any file that a lab depends on. `-` is one
    document on standard input, without a lab.
    """
    from notelab.book.discovery import select_labs
    from notelab.book.opening import open_session
    from notelab.check import check_labs
    from notelab.codes import RULES, select_codes
    from notelab.report.formats import render_report

    if writing and not fixing:
        raise click.UsageError("--write goes with --fix")
    if shrinking and (select or ignore):
        raise click.UsageError("--baseline needs every rule: leave --select and --ignore out")
    if Path("-") in paths and (len(paths) > 1 or fixing or watch):
        raise click.UsageError("standard input is checked alone, without --fix and --watch")

    codes = select_codes(select, RULES) - select_codes(ignore)
    is_input = paths == (Path("-"),)
    quiet = detail == "findings"

    def run_check() -> int:
        bench = open_session(mirrors, *(() if is_input else paths), offline=offline)
        if is_input:
            from notelab.check import check_input

            return finish(check_input(stdin_filename, bench, codes))
        wanted, strays = select_labs(list(paths), bench.lab, may_be_nothing=quiet)
        diff = ""
        if fixing:
            from notelab.commands.fixing import fix

            diff = fix(wanted, bench, write=writing)
            write(diff, stderr=output_format != "text")
        report = check_labs(wanted, bench, implicit=not paths, strict=strict, codes=codes)
        report.apply_baselines(wanted, shrink=shrinking and codes >= RULES.keys())
        for stray in strays if not quiet else []:
            say(f"note: {stray} belongs to no lab; not checked", stderr=True)
        return finish(report, has_fixes=bool(diff) and not writing)

    def finish(report: "Report", *, has_fixes: bool = False) -> int:
        write(render_report(report, output_format, detail or "line"))
        return EXIT_FINDINGS if (report.findings or has_fixes) and not exit_zero else 0

    if watch:
        from notelab.commands.watching import keep_checking

        return keep_checking(paths, run_check)
    return run_check()


@cli.command()
@click.argument("rule", required=False)
@click.option("--language", default="en", show_default=True, help="The page's language: en, es.")
def explain(rule: str | None, language: str) -> None:
    """Explain RULE (a code or a name); without it, list all rules.

    `explain lab-file` shows the fields of lab.toml, `explain notes` the grammar of a note.
    """
    from notelab.codes import RULES
    from notelab.commands import explain as pages

    if rule is None:
        for code, name in RULES.items():
            say(f"{code}  {name:<28} {pages.summary(code, language)}")
        for name in pages.GRAMMARS:
            say(f"      {name:<28} {pages.summary(name, language)}")
        return
    write(pages.page(pages.code_of(rule), language))


@cli.command()
def schema() -> None:
    """Print the JSON schema of lab.toml, for editors."""
    import msgspec

    from notelab.lab.lab_file import LabFile
    from notelab.report.formats import format_json

    write(format_json(msgspec.json.schema(LabFile)))


@cli.command()
@paths_argument
@click.option(
    "--worktree",
    type=click.Path(path_type=Path),
    help="Write a source's files at the pin to this folder.",
)
@click.option("--source", help="Fetch, or write to the folder, this source only.")
@mirror_option
def fetch(
    paths: tuple[Path, ...], worktree: Path | None, source: str | None, mirrors: tuple[str, ...]
) -> int:
    """Copy the cited files into the store; ask failed hosts again.

    After that, check and show need no network.
    """
    from notelab.book.discovery import select_labs
    from notelab.book.opening import open_session
    from notelab.commands import fetching

    bench = open_session(mirrors, *paths, refresh=True)
    labs = list(select_labs(list(paths), bench.lab)[0])
    if worktree:
        say(fetching.check_out(labs, source, worktree, bench))
        return 0
    lines, missing = fetching.fetch(labs, source, bench)
    say(*lines)
    return EXIT_FINDINGS if missing else 0


@cli.command()
@click.argument("source")
@click.argument("ref")
@lab_option
@mirror_option
def pin(source: str, ref: str, lab_folder: Path | None, mirrors: tuple[str, ...]) -> None:
    """Pin SOURCE to REF: write its pin file and the lock.

    REF is a tag, a branch or a commit.
    """
    from notelab.book.discovery import find_lab
    from notelab.book.opening import open_session
    from notelab.commands import pinning

    command = shlex.join(["shardbook", "pin", source, ref])
    folder = find_lab(source, lab_folder, Path.cwd(), to_write=command)
    say(*pinning.pin(folder, source, ref, open_session(mirrors, folder, refresh=True)))


@cli.command()
@paths_argument
@mirror_option
@offline_option
def lock(paths: tuple[Path, ...], mirrors: tuple[str, ...], offline: bool) -> int:
    """Record in citations.lock what the pages cite; run no rules."""
    from notelab.book.discovery import select_labs
    from notelab.book.opening import open_session
    from notelab.commands import pinning

    bench = open_session(mirrors, *paths, offline=offline)
    labs = list(select_labs(list(paths), bench.lab)[0])
    lines, skipped = pinning.lock(labs, bench)
    say(*lines)
    return EXIT_FINDINGS if skipped else 0


@cli.command()
@click.argument("source")
@click.argument("symbol")
@lab_option
@mirror_option
@offline_option
def cite(
    source: str, symbol: str, lab_folder: Path | None, mirrors: tuple[str, ...], offline: bool
) -> int:
    """Print the citation of SYMBOL, and its parts if it is long.

    SYMBOL is a name, a dotted name, or path/to/file.py:Name for any file of SOURCE.
    """
    from notelab.book.discovery import find_lab
    from notelab.book.opening import open_session
    from notelab.commands import citing

    folder = find_lab(source, lab_folder, Path.cwd())
    bench = open_session(mirrors, folder, offline=offline)
    lines, is_found = citing.cite(folder, source, symbol, bench)
    for line, is_note in lines:
        say(line, stderr=is_note)
    return 0 if is_found else EXIT_FINDINGS


@cli.command()
@click.argument("citation")
@lab_option
@mirror_option
@offline_option
@click.option(
    "--context",
    "-C",
    type=click.IntRange(0, 200),
    default=0,
    help="Also show this many lines above and below.",
)
def show(
    citation: str,
    lab_folder: Path | None,
    mirrors: tuple[str, ...],
    offline: bool,
    context: int,
) -> None:
    """Print the lines of CITATION, with their numbers."""
    from notelab.book.discovery import default_labs
    from notelab.book.opening import open_session
    from notelab.commands import showing

    labs = [lab_folder.resolve()] if lab_folder else default_labs(Path.cwd())
    excerpt = showing.find(labs, citation, open_session(mirrors, *labs, offline=offline))
    write(showing.write(excerpt, context, colour=wants_colour()))
