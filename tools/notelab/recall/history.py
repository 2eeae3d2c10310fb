"""The history of answers, and when each card is due; a line of JSON per answer.

Lines are only added to a file of the user's data folder, by one process at a time. The scheduler of
fsrs computes from them when a card is asked again.

An export holds the same answers as one JSON object. The site's page of cards keeps, exports and
imports the same object (docs/assets/javascripts/recall-schedule.js).
"""

import os
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated

import msgspec
from filelock import FileLock
from msgspec import Meta

from notelab.errors import NotelabError
from notelab.files import write_files
from notelab.recall.cards import Card
from notelab.report.terminal import say

GRADES = ("again", "hard", "good", "easy")  # as fsrs counts them, from 1


class Review(msgspec.Struct, frozen=True):
    """One answer; `evidence` is the card's evidence at that time."""

    card: str
    at: Annotated[datetime, Meta(tz=True)]
    grade: Annotated[int, Meta(ge=1, le=len(GRADES))]
    evidence: str


FORMAT, VERSION = "shardbook-recall", 1
_LARGEST = 64 << 20  # bytes of an export that is read
_AHEAD = timedelta(days=1)  # by which another machine's clock may be ahead


class Export(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A user's answers in one file; `version` is that of this form."""

    format: str
    version: int
    reviews: list[Review]


def read_export(path: Path, now: datetime) -> list[Review]:
    """Return the answers in an export.

    Raises:
        NotelabError: it is no export, is of a later version, or has an answer of the future.
        OSError: the file can't be read.
    """
    with path.open("rb") as stream:
        data = stream.read(_LARGEST + 1)
    advice = "`shardbook recall --export FILE` or the site's page of cards writes one"
    try:
        if len(data) > _LARGEST:
            raise ValueError(f"more than {_LARGEST:,} bytes")
        head = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
        if bytes(head.get("format", b"")) != f'"{FORMAT}"'.encode():
            raise ValueError(f'it has no "format": "{FORMAT}"')
        if (version := bytes(head.get("version", b"")).decode()) != str(VERSION):
            raise ValueError(f"its version is {version or 'missing'}, and {VERSION} is read here")
        reviews = msgspec.json.decode(data, type=Export).reviews
    except (ValueError, RecursionError) as fault:
        reason = str(fault) or "it is nested too deeply"
        raise NotelabError(f"{path} is no export of recall: {reason}", hint=advice) from None
    if late := next((review for review in reviews if review.at > now + _AHEAD), None):
        raise NotelabError(
            f"{path}: an answer to {late.card} is of {late.at:%Y-%m-%d}, which is still to come",
            hint="nothing was taken; set the clock, or correct the answer's `at`",
        )
    return reviews


def write_export(path: Path, reviews: Iterable[Review], now: datetime) -> None:
    """Write an export, whole or not at all; only another export is replaced.

    Raises:
        NotelabError: the file holds something else.
        OSError: the file can't be read or written.
    """
    if path.exists() and path.stat().st_size:
        read_export(path, now)
    ordered = sorted(reviews, key=lambda review: (review.at, review.card))
    text = msgspec.json.encode(Export(FORMAT, VERSION, ordered))
    write_files({path: msgspec.json.format(text, indent=1) + b"\n"})


class History:
    """A user's answers, in a folder that is created when it is needed."""

    def __init__(self, folder: Path | None = None) -> None:
        import platformdirs

        folder = folder or platformdirs.user_data_path("shardbook", appauthor=False)
        self.path, self._lock = folder / "recall.jsonl", FileLock(folder / "recall.lock")

    def read(self) -> dict[str, list[Review]]:
        """Return the answers to each card, the oldest first.

        If some lines cannot be read, the file is copied, and only the others are kept in it.

        Raises:
            OSError: the file cannot be read.
        """
        if not self.path.exists():
            return {}
        with self._lock:
            readable, broken_count = self._read_lines()
            if broken_count:
                self._keep_corrupt_copy(readable, broken_count)
        answers: dict[str, list[Review]] = {}
        for review in sorted((review for _, review in readable), key=lambda review: review.at):
            answers.setdefault(review.card, []).append(review)
        return answers

    def add(self, review: Review) -> None:
        """Save an answer before returning.

        Raises:
            OSError: the file cannot be written.
        """
        line = msgspec.json.encode(review) + b"\n"
        with self._lock, self.path.open("a+b") as stream:
            if stream.seek(0, os.SEEK_END):
                stream.seek(-1, os.SEEK_END)
                # A process that was killed while writing left a line without its end.
                line = line if stream.read(1) == b"\n" else b"\n" + line
            stream.write(line)
            stream.flush()
            os.fsync(stream.fileno())

    def merge(self, reviews: Iterable[Review]) -> int:
        """Add the answers that are not here yet, all of them or none; return how many they are.

        Raises:
            OSError: the file can't be read or written.
        """
        known = {(card, review.at) for card, each in self.read().items() for review in each}
        new = {(r.card, r.at): r for r in reviews if (r.card, r.at) not in known}
        if new:
            lines = b"".join(msgspec.json.encode(review) + b"\n" for review in new.values())
            with self._lock:
                before = self.path.read_bytes() if self.path.exists() else b""
                end = b"\n" if before and not before.endswith(b"\n") else b""
                write_files({self.path: before + end + lines})
        return len(new)

    def _read_lines(self) -> tuple[list[tuple[bytes, Review]], int]:
        """Return the lines that can be read, and the number of the others."""
        decode = msgspec.json.Decoder(Review).decode
        readable, broken_count = [], 0
        for line in self.path.read_bytes().split(b"\n"):
            try:
                readable += [(line, decode(line))] if line.strip() else []
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                broken_count += 1
        return readable, broken_count

    def _keep_corrupt_copy(self, readable: list[tuple[bytes, Review]], broken_count: int) -> None:
        stamp = f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{os.urandom(2).hex()}"
        copy = self.path.with_name(f"recall.corrupt-{stamp}.jsonl")
        write_files(
            {
                copy: self.path.read_bytes(),
                self.path: b"".join(line + b"\n" for line, _ in readable),
            }
        )
        say(
            f"recall: {broken_count} of {broken_count + len(readable)} lines of {self.path} can't "
            f"be read; a copy is kept as {copy.name} in the same folder, and the other "
            f"{len(readable)} are used",
            stderr=True,
        )


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
