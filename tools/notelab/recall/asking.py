"""Which cards are due, and how they are asked in a terminal."""

import sys
from collections.abc import Iterable
from datetime import UTC, datetime

import click
import msgspec

from notelab.recall import quantity
from notelab.recall.cards import Card
from notelab.recall.history import GRADES, History, Review
from notelab.report.terminal import say, write

STALE = "stale: the lines it rests on have changed since you answered it; open them again"
NUMBERS = "a number with its unit, as 16 GB, 16 GiB, 16e9 B or 4 ranks; nothing to be shown it"


class Turn(msgspec.Struct, frozen=True):
    """A card, when its time comes, and whether what it rests on has changed since it was answered.

    It is `due` when its time has come, when it is stale, and as long as it was never answered.
    """

    card: Card
    at: datetime
    stale: bool
    due: bool


def turns(cards: Iterable[Card], answered: dict[str, list[Review]], now: datetime) -> list[Turn]:
    """Return the cards in the order they are due: the stale, the answered, then the new."""
    from fsrs import Card as Memory
    from fsrs import Rating, Scheduler

    scheduler = Scheduler(enable_fuzzing=False)
    found = []
    for card in cards:
        reviews = answered.get(card.id, [])
        memory = Memory(card_id=0, due=datetime.max.replace(tzinfo=UTC))
        for review in reviews:
            at = review.at.astimezone(UTC)
            memory, _ = scheduler.review_card(memory, Rating(review.grade), at)
        stale = bool(reviews) and reviews[-1].evidence != card.evidence
        found.append(Turn(card, memory.due, stale, stale or not reviews or memory.due <= now))
    return sorted(found, key=lambda turn: (not turn.stale, turn.at))


def ask(asked: list[Turn], history: History) -> int:
    """Ask cards until they, or what the user types, end; return how many were answered.

    Each answer is written down before the next card is asked.
    """
    for done, turn in enumerate(asked):
        say(f"{done + 1} of {len(asked)}  {turn.card.id}")
        if turn.stale:
            say(f"  {STALE}")
        say("", *turn.card.question.split("\n"), "")
        try:
            grade = _answered(turn.card)
        except EOFError:
            return done
        history.add(Review(turn.card.id, datetime.now(UTC), grade, turn.card.evidence))
    return len(asked)


def _answered(card: Card) -> int:
    right = _typed_right(card) if card.number else None
    if right is None:
        _key("any key for the answer ")
    say(*card.answer.split("\n"), "")
    if right is not None:
        say("right" if right else "not that: again")
    if right is False:
        return 1
    choices = "  ".join(f"{number} {grade}" for number, grade in enumerate(GRADES, 1))
    while True:
        key = _key(f"{choices}  ").strip().lower()
        for number, grade in enumerate(GRADES, 1):
            if key and (key == str(number) or grade.startswith(key)):
                say(grade)
                return number


def _typed_right(card: Card) -> bool | None:
    """Have a number typed; None where the learner would rather see it."""
    assert card.number
    while True:
        text = _line("? ")
        if not text:
            return None
        if typed := quantity.read(text):
            return quantity.same(typed, card.number)
        say(f"expected {NUMBERS}")


def _line(prompt: str) -> str:
    """Return what is typed up to the line's end.

    Raises:
        EOFError: nothing more will come.
    """
    write(prompt)
    line = sys.stdin.readline() if sys.stdin and not sys.stdin.closed else ""
    if not line or not sys.stdin.isatty():
        write("\n")  # nobody has seen it typed
    if not line:
        raise EOFError
    return line.strip()


def _key(prompt: str) -> str:
    """Return the key that is pressed; where nobody sits at a terminal, a line."""
    if not (sys.stdin and not sys.stdin.closed and sys.stdin.isatty()):
        return _line(prompt)
    write(prompt)
    key = click.getchar()
    write("\n")
    if key in ("\x04", "\x1a", ""):
        raise EOFError
    return key
