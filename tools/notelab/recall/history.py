"""The history of answers: one line of JSON per answer, in the user's data folder.

Lines are only added, by one process at a time. The time when a card is due is computed from them.
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
    """One answer; `evidence` is the card's evidence at that time."""

    card: str
    at: Annotated[datetime, Meta(tz=True)]
    grade: Annotated[int, Meta(ge=1, le=len(GRADES))]
    evidence: str


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
