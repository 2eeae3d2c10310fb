"""Decides when each card is asked again, from the answers so far, by the scheduler of fsrs."""

from collections.abc import Iterable
from datetime import UTC, datetime

import msgspec

from notelab.recall.cards import Card
from notelab.recall.history import Review


class Turn(msgspec.Struct, frozen=True):
    """A card, when it is due, and whether its evidence has changed since the last answer.

    `due` is true if the time has come, if the card is stale, or if it was never answered.
    """

    card: Card
    at: datetime
    stale: bool
    due: bool


def schedule(
    cards: Iterable[Card], reviews_by_card: dict[str, list[Review]], now: datetime
) -> list[Turn]:
    """Return the cards in the order in which they are asked: stale, answered, then new ones."""
    from fsrs import Card as Memory
    from fsrs import Rating, Scheduler

    scheduler = Scheduler(enable_fuzzing=False)
    turns = []
    for card in cards:
        reviews = reviews_by_card.get(card.id, [])
        memory = Memory(card_id=0, due=datetime.max.replace(tzinfo=UTC))
        for review in reviews:
            answered_at = review.at.astimezone(UTC)
            memory, _ = scheduler.review_card(memory, Rating(review.grade), answered_at)
        stale = bool(reviews) and reviews[-1].evidence != card.evidence
        turns.append(Turn(card, memory.due, stale, stale or not reviews or memory.due <= now))
    return sorted(turns, key=lambda turn: (not turn.stale, turn.at))
