"""The command line: `shardbook check · explain · fetch · pin · lock · cite · show`.

Heavy modules are imported inside the commands that need them: `check` on one note answers in about
a tenth of a second, and it is run on every commit.
"""

import gc
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from notelab import __version__
from notelab.errors import NotelabError
from notelab.plain import plain

if TYPE_CHECKING:
    from notelab.book.workbook import Bench
    from notelab.report.outcome import Report

FINDINGS, FAULT = 1, 2


def main() -> None:
    """Run the command line and exit: 0 nothing to report, 1 findings, 2 the tool itself failed."""
    try:
        # Also where a terminal's own encoding is narrower: a label may hold any character.
        for stream in (sys.stdout, sys.stderr):
            if hasattr(stream, "reconfigure"):
                stream.reconfigure(encoding="utf-8", errors="replace")
        status = cli(standalone_mode=False)
    except click.exceptions.Abort:
        _fail("interrupted", "nothing was left half-written; run it again")
    except click.ClickException as fault:
        fault.show()
        sys.exit(FAULT)
    except NotelabError as fault:
        _fail(str(fault), fault.hint)
    except KeyboardInterrupt:
        _fail("interrupted", "nothing was left half-written; run it again")
    except OSError as fault:
        what = f"{fault.filename}" if fault.filename else "the output"
        _fail(f"{what} cannot be read or written: {fault.strerror or fault}", "")
    except Exception as fault:
        if os.environ.get("SHARDBOOK_TRACEBACK"):
            raise
        reason = " ".join(f"{type(fault).__name__}: {fault}".split())
        _fail(f"a fault of shardbook: {reason[:300]}", "set SHARDBOOK_TRACEBACK=1 and report it")
    sys.exit(status if isinstance(status, int) else 0)


def _fail(message: str, hint: str) -> NoReturn:
    _say(f"error: {message}", aside=True)
    if hint:
        _say(f"hint: {hint}", aside=True)
    sys.exit(FAULT)


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="shardbook")
def cli() -> None:
    """Prove reading notes: every citation at its pin, every number, every diagram."""


_mirror = click.option(
    "--mirror",
    "mirrors",
    multiple=True,
    metavar="NAME=DIR",
    help="Read source NAME from a clone on disk, bare or not (also: SHARDBOOK_MIRROR_NAME).",
)
_offline = click.option(
    "--offline", is_flag=True, help="Ask no remote: store, mirrors and installed packages only."
)
_lab = click.option(
    "--lab",
    "lab_folder",
    type=click.Path(path_type=Path, file_okay=False),
    help="The lab's folder, where several have the source.",
)
_paths = click.argument("paths", nargs=-1, type=click.Path(path_type=Path))


@cli.command()
@_paths
@click.option(
    "--output-format",
    type=click.Choice(["text", "json", "github", "sarif"]),
    default="text",
    show_default=True,
)
@click.option("-q", "--quiet", is_flag=True, help="Print findings only, and no summary.")
@_mirror
@_offline
def check(
    paths: tuple[Path, ...],
    output_format: str,
    quiet: bool,
    mirrors: tuple[str, ...],
    offline: bool,
) -> int:
    """Prove labs or single notes; without PATH, every lab there is.

    A PATH is a lab's folder, one of its pages, or any file that a lab hangs on.
    """
    from notelab.book.finding_labs import asked, default_labs
    from notelab.check import check_labs

    # A check lives for a second and leaves no cycles worth collecting: not looking for them saves
    # a tenth of its time over a thousand notes.
    gc.disable()
    bench = _bench(mirrors, offline=offline)
    wanted: dict[Path, set[Path] | None] = {}
    strays: list[Path] = []
    if paths:
        wanted, strays = asked(list(paths), bench.lab)
    else:
        wanted.update(dict.fromkeys(default_labs(Path.cwd())))
    report = check_labs(wanted, bench)
    for stray in strays if not quiet else []:
        _say(f"note: {stray} is no page of a lab; not checked", aside=True)
    _print(_written(report, output_format, quiet=quiet))
    return FINDINGS if report.findings else 0


def _written(report: "Report", output_format: str, *, quiet: bool) -> str:
    if output_format == "json":
        from notelab.report import json as writer

        return writer.write(report)
    if output_format == "github":
        from notelab.report import github

        return github.write(report)
    if output_format == "sarif":
        from notelab.report import sarif

        return sarif.write(report)
    from notelab.report import text

    return text.write(report, colour=_colour(), findings_only=quiet)


def _colour() -> bool:
    if os.environ.get("NO_COLOR"):
        return False
    # Standard output may have been closed (`>&-`).
    return bool(os.environ.get("FORCE_COLOR")) or bool(sys.stdout and sys.stdout.isatty())


def _bench(mirrors: tuple[str, ...], *, offline: bool = False, anew: bool = False) -> "Bench":
    """Open the store and the content cache, where the user's environment puts them.

    With `anew` whoever said no some minutes ago is asked again.
    """
    from notelab.book.workbook import Bench
    from notelab.memo import Memo
    from notelab.sources.library import Library
    from notelab.sources.store import Store, default_root

    asked = os.environ.get("SHARDBOOK_CACHE")
    root = Path(asked).expanduser().absolute() if asked else default_root()
    library = Library(
        Store(root), _mirrors(mirrors), offline=offline, anew=anew, progress=_progress
    )
    return Bench(Memo(root / "memo"), library, _count)


def _mirrors(given: tuple[str, ...]) -> dict[str, Path]:
    prefix = "SHARDBOOK_MIRROR_"
    found = {
        name[len(prefix) :].lower().replace("_", "-"): Path(value).expanduser()
        for name, value in os.environ.items()
        if name.startswith(prefix) and value
    }
    for one in given:
        name, equals, folder = one.partition("=")
        if not equals or not name or not folder:
            raise NotelabError(f"--mirror {one}: expected NAME=DIR, a source and its clone on disk")
        found[name.lower().replace("_", "-")] = Path(folder).expanduser()
    for name, path in found.items():
        if not path.is_dir():
            raise NotelabError(f"the mirror of `{name}`, {path}, is no folder")
    return found


def _progress(text: str) -> None:
    _say(text, aside=True)


def _count(what: str, done: int, of: int) -> None:
    """Write how far something is over what was written before; a terminal alone is told."""
    if sys.stderr and sys.stderr.isatty():
        end = "\r" if done < of else "\n"
        _print(f"{done:,} of {of:,} {what}{end}", aside=True)


def _say(text: str, *, aside: bool = False) -> None:
    """Print a line that may hold a note's or a remote's words, on standard error if an aside."""
    _print(f"{plain(text)}\n", aside=aside)


def _print(text: str, *, aside: bool = False) -> None:
    """Print text as it is. A reader that went away (`| head`) is no fault worth a word."""
    try:
        click.echo(text, nl=False, err=aside, color=_colour() and not aside)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), (sys.stderr if aside else sys.stdout).fileno())
        sys.exit(FAULT)


@cli.command()
@click.argument("rule", required=False)
@click.option("--language", default="en", show_default=True, help="The page's language: en, es.")
def explain(rule: str | None, language: str) -> None:
    """Explain RULE (a code or a name); without it, list all rules."""
    from notelab.commands import explain as pages
    from notelab.rules.codes import RULES

    if rule is None:
        for code, name in RULES.items():
            _say(f"{code}  {name:<28} {pages.summary(code, language)}")
        return
    _print(pages.page(pages.code_of(rule), language))


@cli.command()
@_paths
@click.option(
    "--worktree",
    type=click.Path(path_type=Path),
    help="Lay a source's pinned tree out in this folder, to read.",
)
@click.option("--source", help="The source to lay out, where the lab has several.")
@_mirror
def fetch(
    paths: tuple[Path, ...], worktree: Path | None, source: str | None, mirrors: tuple[str, ...]
) -> int:
    """Bring the cited files into the store; who said no is asked anew.

    check and show need no network afterwards.
    """
    from notelab.book.finding_labs import asked, default_labs
    from notelab.commands import fetching

    bench = _bench(mirrors, anew=True)
    labs = list(asked(list(paths), bench.lab)[0]) if paths else default_labs(Path.cwd())
    if worktree:
        _say(fetching.lay_out(labs, source, worktree, bench))
        return 0
    lines, missing = fetching.fetch(labs, bench)
    for line in lines:
        _say(line)
    return FINDINGS if missing else 0


@cli.command()
@click.argument("source")
@click.argument("ref")
@_lab
@_mirror
def pin(source: str, ref: str, lab_folder: Path | None, mirrors: tuple[str, ...]) -> None:
    """Pin SOURCE to REF: write its pin file and the lock.

    REF is a tag, a branch or a commit.
    """
    from notelab.commands import pinning
    from notelab.commands.choosing import lab_with

    folder = lab_with(source, lab_folder, Path.cwd())
    for line in pinning.pin(folder, source, ref, _bench(mirrors, anew=True)):
        _say(line)


@cli.command()
@_paths
@_mirror
@_offline
def lock(paths: tuple[Path, ...], mirrors: tuple[str, ...], offline: bool) -> int:
    """Record in citations.lock whatever resolves; judge nothing."""
    from notelab.book.finding_labs import asked, default_labs
    from notelab.commands import locking

    bench = _bench(mirrors, offline=offline)
    labs = list(asked(list(paths), bench.lab)[0]) if paths else default_labs(Path.cwd())
    lines, skipped = locking.lock(labs, bench)
    for line in lines:
        _say(line)
    return FINDINGS if skipped else 0


@cli.command()
@click.argument("source")
@click.argument("symbol")
@_lab
@_mirror
@_offline
def cite(
    source: str, symbol: str, lab_folder: Path | None, mirrors: tuple[str, ...], offline: bool
) -> int:
    """Print the citation of SYMBOL, and its parts where it is long.

    SYMBOL is a name, a dotted name, or path/to/file.py:Name for any file of SOURCE.
    """
    from notelab.commands import citing
    from notelab.commands.choosing import lab_with

    folder = lab_with(source, lab_folder, Path.cwd())
    lines, found = citing.cite(folder, source, symbol, _bench(mirrors, offline=offline))
    for line, aside in lines:
        _say(line, aside=aside)
    return 0 if found else FINDINGS


@cli.command()
@click.argument("citation")
@_lab
@_mirror
@_offline
@click.option("--context", "-C", type=click.IntRange(0, 200), default=0, help="Lines around.")
def show(
    citation: str,
    lab_folder: Path | None,
    mirrors: tuple[str, ...],
    offline: bool,
    context: int,
) -> None:
    """Print the lines of CITATION, with their numbers."""
    from notelab.book.finding_labs import default_labs
    from notelab.commands import showing

    labs = [lab_folder.resolve()] if lab_folder else default_labs(Path.cwd())
    shown = showing.find(labs, citation, _bench(mirrors, offline=offline))
    _print(showing.write(shown, context, colour=_colour()))
