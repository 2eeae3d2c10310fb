"""The command `shardbook recall`."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import click

from notelab.errors import NotelabError
from notelab.report.terminal import say


@click.command()
@click.argument("paths", nargs=-1, type=click.Path(path_type=Path))
@click.option("--language", default="en", show_default=True, help="The cards' language: en, es.")
@click.option(
    "--limit",
    type=click.IntRange(1),
    default=20,
    show_default=True,
    help="Ask at most this many cards.",
)
@click.option(
    "--import",
    "imported",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="Add the answers of an export, and ask nothing.",
)
@click.option(
    "--export",
    "exported",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write all answers to FILE, and ask nothing.",
)
def recall(
    paths: tuple[Path, ...], language: str, limit: int, imported: Path | None, exported: Path | None
) -> None:
    """Ask the questions of lab and theory pages that are due.

    A PATH is a lab's folder or one of its pages; without PATH, ask those of every lab. The site's
    page of cards reads and writes the same exports.
    """
    if imported or exported:
        _exchange(imported, exported)
        return
    from notelab.book.discovery import select_labs
    from notelab.book.opening import open_session
    from notelab.recall.asking import ask
    from notelab.recall.cards import collect_cards
    from notelab.recall.history import History, schedule

    bench = open_session((), offline=True)
    cards = collect_cards(select_labs(list(paths), bench.lab)[0], language, bench)
    if not cards:
        raise NotelabError(
            f"no recall cards in {language!r} on these pages",
            hint='a card is `??? question name "The question?"`, with its answer indented below',
        )
    history = History()
    now = datetime.now(UTC)
    due = [turn for turn in schedule(cards, history.read(), now) if turn.due]
    done = ask(due[:limit], history)
    remaining = f", {len(due) - done} left" if due else ""
    later = [turn.at for turn in schedule(cards, history.read(), now) if not turn.due]
    next_time = f"; next in {_format_wait(min(later) - datetime.now(UTC))}" if later else ""
    say(f"{done} answered{remaining}, of {len(cards)} cards{next_time}")


def _exchange(imported: Path | None, exported: Path | None) -> None:
    """Import the answers of one file, then export all answers to another."""
    from notelab.recall.history import History, read_export, write_export

    history, now = History(), datetime.now(UTC)
    if imported:
        reviews = read_export(imported, now)
        say(f"{history.merge(reviews)} of {len(reviews)} answers are new; the others were here")
    if exported:
        every = [review for each in history.read().values() for review in each]
        write_export(exported, every, now)
        say(f"{len(every)} answers to {exported}")


def _format_wait(wait: timedelta) -> str:
    minutes = max(1, round(wait.total_seconds() / 60))
    if minutes < 120:
        return f"{minutes} min"
    return f"{minutes // 60} h" if minutes < 48 * 60 else f"{minutes // (24 * 60)} days"
