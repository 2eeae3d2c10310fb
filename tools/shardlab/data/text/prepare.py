"""Text files to a corpus: in pieces, by several processes, and after a kill where it was left.

Each piece of the text becomes a corpus of its own, in a folder beside the prefix that is named for
the text and the tokenizer; a piece that is whole is not done again. At the end they are joined in
order, so the result doesn't depend on how many processes there were, nor on who finished first.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import get_context, parent_process
from pathlib import Path
from threading import Thread

from shardlab.data.corpus import Corpus, DataError
from shardlab.data.text.encoding import by_name
from shardlab.data.writer import Writer

PIECE = 8 << 20  # bytes of text


@dataclass(frozen=True)
class Job:
    """What is made of which text.

    Args:
        files: `.jsonl` has a document a line, others are one document each.
        prefix: of the corpus.
        tokenizer, end: as `by_name` takes them.
        field: of a .jsonl's lines, which holds the text.
        lines: whether each line of a text file is a document.
    """

    files: tuple[str, ...]
    prefix: str
    tokenizer: str = "bytes"
    end: str | None = None
    field: str = "text"
    lines: bool = False

    @property
    def folder(self) -> Path:
        """Where the pieces lie: another one for another text or tokenizer."""
        seen = [(str(path), (s := path.stat()).st_size, s.st_mtime_ns) for path in self._read]
        said = repr((seen, self.tokenizer, self.end, self.field, self.lines, PIECE))
        return Path(f"{self.prefix}.pieces-{hashlib.sha256(said.encode()).hexdigest()[:16]}")

    @property
    def _read(self) -> list[Path]:
        more = [] if self.tokenizer == "bytes" else [self.tokenizer]
        return [Path(name) for name in (*self.files, *more)]

    def pieces(self) -> list[Piece]:
        """Return the pieces of the text, in order.

        Raises:
            DataError: a file is missing, or all are empty.
        """
        found: list[Piece] = []
        for path in map(Path, self.files):
            if not path.is_file():
                raise DataError(f"no {path}: give text files, or .jsonl with a document a line")
            cut = self.lines or path.suffix == ".jsonl"
            size = path.stat().st_size
            step = PIECE if cut else max(size, 1)
            found += [
                Piece(self, len(found) + number, str(path), begin, min(begin + step, size))
                for number, begin in enumerate(range(0, size, step))
            ]
        if not found:
            raise DataError(f"no text in {', '.join(self.files) or 'no file'}")
        return found


@dataclass(frozen=True)
class Piece:
    """The documents that begin within some bytes of a file."""

    job: Job
    number: int
    file: str
    begin: int
    end: int

    def documents(self) -> Iterator[str]:
        """Yield the texts.

        Raises:
            DataError: a line is no JSON object with the text, or a text no UTF-8; says where.
        """
        is_json = self.file.endswith(".jsonl")
        if not (is_json or self.job.lines):
            yield self._text(Path(self.file).read_bytes(), 0)
            return
        with Path(self.file).open("rb") as file:
            if self.begin:
                file.seek(self.begin - 1)
                file.readline()  # begins in the piece before
            while (at := file.tell()) < self.end:
                line = self._text(file.readline(), at).rstrip("\r\n")
                if line.strip():
                    yield self._field(line, at) if is_json else line

    def _text(self, content: bytes, at: int) -> str:
        try:
            return content.decode()
        except UnicodeDecodeError as error:
            raise DataError(f"{self.file}: byte {at + error.start} is no UTF-8") from None

    def _field(self, line: str, at: int) -> str:
        try:
            text: str = json.loads(line.removeprefix("\ufeff"))[self.job.field]
            text.encode()  # half of a surrogate pair is no text either
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
            raise DataError(
                f"{self.file}: the line at byte {at} is no JSON object with a text in "
                f"{self.job.field!r}; --field names another"
            ) from None
        return text


def encode(piece: Piece, folder: Path) -> int:
    """Make a piece's corpus, unless it is there; return how many bytes of text it took."""
    prefix, none = folder / f"{piece.number:06}", folder / f"{piece.number:06}.none"
    if not (Path(f"{prefix}.idx").is_file() or none.is_file()):
        encoder, empty = by_name(piece.job.tokenizer, piece.job.end), True
        with Writer(prefix, encoder.dtype) as writer:
            for text in piece.documents():
                tokens = encoder.encode(text)
                writer.add(tokens)
                empty = empty and not len(tokens)
            if empty:
                none.touch()  # blank lines alone: a corpus of no tokens there is not
                writer.discard()
    return piece.end - piece.begin


def follow() -> None:
    """End this process with the one that began it, which can't say so when it is killed."""

    def wait() -> None:
        if parent := parent_process():
            parent.join()
        os._exit(1)

    Thread(target=wait, daemon=True).start()


def prepare(job: Job, processes: int) -> Iterator[int]:
    """Make the corpus; yield the bytes of text of each piece once it is there.

    Raises:
        DataError: what is wrong with the text, the tokenizer or the disk. What was done stays, and
            the next call goes on from there.
    """
    pieces = job.pieces()
    by_name(job.tokenizer, job.end)  # refused here, rather than by each process
    folder = job.folder
    folder.mkdir(parents=True, exist_ok=True)
    with ProcessPoolExecutor(processes, get_context("spawn"), follow) as pool:
        waiting = [pool.submit(encode, piece, folder) for piece in pieces]
        try:
            for done in as_completed(waiting):
                yield done.result()
        except BrokenProcessPool:
            raise DataError(
                "a process that encoded was killed (out of memory?): the same command goes on"
            ) from None
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    join(job, pieces, folder)


def join(job: Job, pieces: Sequence[Piece], folder: Path) -> None:
    """Join the pieces' corpora in order, and remove them."""
    with Writer(job.prefix, by_name(job.tokenizer, job.end).dtype) as writer:
        for piece in pieces:
            if not (folder / f"{piece.number:06}.none").is_file():
                writer.append(Corpus(folder / f"{piece.number:06}"))
    shutil.rmtree(folder)
