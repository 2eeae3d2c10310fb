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
def recall(paths: tuple[Path, ...], language: str, limit: int) -> None:
    """Ask the questions of lab and theory pages that are due.

    A PATH is a lab's folder or one of its pages; without PATH, ask those of every lab.
    """
    from notelab.book.discovery import select_labs
    from notelab.book.opening import open_session
    from notelab.recall import asking
    from notelab.recall.cards import collect_cards
    from notelab.recall.history import History

    bench = open_session((), offline=True)
    cards = collect_cards(select_labs(list(paths), bench.lab)[0], language, bench)
    if not cards:
        raise NotelabError(
            f"no recall cards in {language!r} on these pages",
            hint='a card is `??? question name "The question?"`, with its answer indented below',
        )
    history = History()
    now = datetime.now(UTC)
    due = [turn for turn in asking.schedule(cards, history.read(), now) if turn.due]
    done = asking.ask(due[:limit], history)
    remaining = f", {len(due) - done} left" if due else ""
    later_times = [turn.at for turn in asking.schedule(cards, history.read(), now) if not turn.due]
    next_time = (
        f"; next in {_format_wait(min(later_times) - datetime.now(UTC))}" if later_times else ""
    )
    say(f"{done} answered{remaining}, of {len(cards)} cards{next_time}")


def _format_wait(wait: timedelta) -> str:
    minutes = max(1, round(wait.total_seconds() / 60))
    if minutes < 120:
        return f"{minutes} min"
    return f"{minutes // 60} h" if minutes < 48 * 60 else f"{minutes // (24 * 60)} days"
