"""Asks cards in a terminal."""

import sys
from datetime import UTC, datetime

import click

from notelab.recall import cards
from notelab.recall.cards import Card
from notelab.recall.history import GRADES, History, Review, Turn
from notelab.report.terminal import say, write

STALE = "stale: the lines that it cites have changed since you answered it; read them again"
NUMBER_HELP = (
    "a number with its unit, such as 16 GB, 16 GiB, 16e9 B or 4 ranks; "
    "an empty line shows the answer"
)
UNIT_HELP = "in which unit? type it, such as B, KiB, MiB or GB; an empty line shows the answer"


def ask(turns: list[Turn], history: History) -> int:
    """Ask cards until there are no more cards or no more input; return how many were answered.

    Each answer is saved before the next card is asked.
    """
    for done, turn in enumerate(turns):
        say(f"{done + 1} of {len(turns)}  {turn.card.id}")
        if turn.stale:
            say(f"  {STALE}")
        say("", *turn.card.question.split("\n"), "")
        try:
            grade = _ask_card(turn.card)
        except EOFError:
            return done
        history.add(Review(turn.card.id, datetime.now(UTC), grade, turn.card.evidence))
    return len(turns)


def _ask_card(card: Card) -> int:
    is_right = _check_number(card) if card.number else None
    if is_right is None:
        _read_key("press any key to see the answer ")
    say(*card.answer.split("\n"), "")
    if is_right is not None:
        say("right" if is_right else "wrong, graded 1 (again)")
    if is_right is False:
        return 1
    choices = "  ".join(f"{number} {grade}" for number, grade in enumerate(GRADES, 1))
    while True:
        key = _read_key(f"{choices}  ").strip().lower()
        for number, grade in enumerate(GRADES, 1):
            if key and (key == str(number) or grade.startswith(key)):
                say(grade)
                return number


def _check_number(card: Card) -> bool | None:
    """Return whether the number that the learner types is right, or None to show the answer."""
    assert card.number
    while True:
        text = _read_line("? ")
        if not text:
            return None
        typed_quantity = cards.parse_quantity(text)
        if typed_quantity and cards.lacks_unit(typed_quantity, card.number):
            say(UNIT_HELP)
            unit = _read_line("unit? ")
            if not unit:
                return None
            typed_quantity = cards.parse_quantity(f"{text} {unit}") or cards.parse_quantity(unit)
        if typed_quantity and not cards.lacks_unit(typed_quantity, card.number):
            return cards.is_same(typed_quantity, card.number)
        say(f"expected {NUMBER_HELP}")


def _read_line(prompt: str) -> str:
    """Return a typed line.

    Raises:
        EOFError: the input has ended.
    """
    write(prompt)
    line = sys.stdin.readline() if sys.stdin and not sys.stdin.closed else ""
    if not line or not sys.stdin.isatty():
        write("\n")  # the input did not end the line on the terminal
    if not line:
        raise EOFError
    return line.strip()


def _read_key(prompt: str) -> str:
    """Return a pressed key; if the input is no terminal, a line."""
    if not (sys.stdin and not sys.stdin.closed and sys.stdin.isatty()):
        return _read_line(prompt)
    write(prompt)
    key = click.getchar()
    write("\n")
    if key in ("\x04", "\x1a", ""):
        raise EOFError
    return key
