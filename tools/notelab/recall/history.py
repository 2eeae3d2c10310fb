"""What was answered, when and how well: a line of JSON each, in the user's data folder.

Lines are only ever added, one writer at a time; when a card is due again is worked out from them.
"""

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import msgspec
from filelock import FileLock
from msgspec import Meta

from notelab.atomic_write import write_files
from notelab.report.terminal import say

GRADES = ("again", "hard", "good", "easy")  # as fsrs counts them, from 1


class Review(msgspec.Struct, frozen=True):
    """One answer. `evidence` is the card's, as it was then."""

    card: str
    at: Annotated[datetime, Meta(tz=True)]
    grade: Annotated[int, Meta(ge=1, le=len(GRADES))]
    evidence: str


class History:
    """The answers of a user, in a folder that is made when it is first needed."""

    def __init__(self, folder: Path | None = None) -> None:
        import platformdirs

        folder = folder or platformdirs.user_data_path("shardbook", appauthor=False)
        self.path, self._lock = folder / "recall.jsonl", FileLock(folder / "recall.lock")

    def read(self) -> dict[str, list[Review]]:
        """Return each card's answers, oldest first.

        A line that can't be read is no reason to lose the others: the file is kept aside as it is,
        and goes on with what can be read.

        Raises:
            OSError: the file cannot be read.
        """
        if not self.path.exists():
            return {}
        with self._lock:
            whole, broken = self._lines()
            if broken:
                self._set_aside(whole, broken)
        answers: dict[str, list[Review]] = {}
        for review in sorted((review for _, review in whole), key=lambda review: review.at):
            answers.setdefault(review.card, []).append(review)
        return answers

    def add(self, review: Review) -> None:
        """Write an answer down before returning.

        Raises:
            OSError: it cannot be written.
        """
        line = msgspec.json.encode(review) + b"\n"
        with self._lock, self.path.open("a+b") as stream:
            if stream.seek(0, os.SEEK_END):
                stream.seek(-1, os.SEEK_END)
                # Whoever was killed while writing left a line without its end.
                line = line if stream.read(1) == b"\n" else b"\n" + line
            stream.write(line)
            stream.flush()
            os.fsync(stream.fileno())

    def _lines(self) -> tuple[list[tuple[bytes, Review]], int]:
        """Return the lines that can be read, and how many can't."""
        decode = msgspec.json.Decoder(Review).decode
        whole, broken = [], 0
        for line in self.path.read_bytes().split(b"\n"):
            try:
                whole += [(line, decode(line))] if line.strip() else []
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                broken += 1
        return whole, broken

    def _set_aside(self, whole: list[tuple[bytes, Review]], broken: int) -> None:
        stamp = f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{os.urandom(2).hex()}"
        aside = self.path.with_name(f"recall.corrupt-{stamp}.jsonl")
        write_files(
            {
                aside: self.path.read_bytes(),
                self.path: b"".join(line + b"\n" for line, _ in whole),
            }
        )
        say(
            f"recall: {broken} of {broken + len(whole)} lines of {self.path} can't be read; the "
            f"file is kept as {aside.name} beside it, and the other {len(whole)} go on",
            stderr=True,
        )
