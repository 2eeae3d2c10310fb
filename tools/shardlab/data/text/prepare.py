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
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import get_context, parent_process
from pathlib import Path
from threading import Thread

from shardlab.data.corpus import Corpus, DataError, demand, told
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
        read = self.files if self.tokenizer == "bytes" else (*self.files, self.tokenizer)
        seen = [(stat.st_size, stat.st_mtime_ns) for stat in map(os.stat, read)]
        said = repr((seen, self, PIECE))
        return Path(f"{self.prefix}.pieces-{hashlib.sha256(said.encode()).hexdigest()[:16]}")

    def pieces(self) -> list[Piece]:
        """Return the pieces of the text, in order.

        Raises:
            DataError: a file is missing, or the corpus's own, or all are empty.
        """
        found: list[Piece] = []
        own = [Path(f"{self.prefix}.{kind}").resolve() for kind in ("bin", "idx")]
        for path in map(Path, self.files):
            demand(path.is_file(), f"no {path}: give text files, or .jsonl with a document a line")
            kept = path.resolve() not in own
            demand(kept, f"{path} would be replaced by its corpus: choose another prefix")
            size = path.stat().st_size
            step = PIECE if self.lines or is_json(path) else max(size, 1)
            for begin in range(0, size, step):
                found.append(Piece(self, len(found), path, begin, min(begin + step, size)))
        demand(found, f"no text in {', '.join(self.files) or 'no file'}")
        return found


def is_json(path: Path) -> bool:
    """Say whether a file has a JSON object a line."""
    return path.suffix.lower() == ".jsonl"


@dataclass(frozen=True)
class Piece:
    """The documents that begin within some bytes of a file."""

    job: Job
    number: int
    file: Path
    begin: int
    end: int

    def documents(self) -> Iterator[str]:
        """Yield the texts.

        Raises:
            DataError: a line is no JSON object with the text, or a text no UTF-8; says where.
        """
        if not (is_json(self.file) or self.job.lines):
            yield self._text(self.file.read_bytes(), 0)
            return
        with self.file.open("rb") as file:
            if self.begin:
                file.seek(self.begin - 1)
                file.readline()  # begins in the piece before
            while (at := file.tell()) < self.end:
                line = self._text(file.readline(), at).rstrip("\r\n")
                if line.strip():
                    yield self._field(line, at) if is_json(self.file) else line

    def _text(self, content: bytes, at: int) -> str:
        try:
            return content.decode().removeprefix("\ufeff")  # some programs put it before UTF-8
        except UnicodeDecodeError as error:
            where = f"{self.file}: byte {at + error.start}"
            raise DataError(f"{where} is no UTF-8: convert the file to UTF-8 first") from None

    def _field(self, line: str, at: int) -> str:
        try:
            text: str = json.loads(line)[self.job.field]
            text.encode()  # half of a surrogate pair is no text either
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
            wanted = f"no JSON object with a text in {self.job.field!r}; --field names another"
            raise DataError(f"{self.file}: the line at byte {at} is {wanted}") from None
        return text


def encode(piece: Piece, folder: Path) -> Path | None:
    """Make a piece's corpus, unless it is there; return its prefix, or None where it has no token.

    Of blank lines alone, or the middle of a long one, no corpus can be.
    """
    prefix = folder / f"{piece.number:06}"
    if not prefix.with_suffix(".idx").is_file():
        encoder, count = by_name(piece.job.tokenizer, piece.job.end), 0
        with Writer(prefix, encoder.dtype) as writer:
            for tokens in map(encoder.encode, piece.documents()):
                writer.add(tokens)
                count += len(tokens)
            if not count:
                writer.discard()
                return None
    return prefix


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
    pieces, parent = job.pieces(), Path(job.prefix).parent
    encoder = by_name(job.tokenizer, job.end)  # refused here, rather than by each process
    with told(f"no folder {parent}", "choose another prefix"):
        parent.mkdir(parents=True, exist_ok=True)
    with Writer(job.prefix, encoder.dtype) as writer:  # another build of it is refused meanwhile
        folder = job.folder
        folder.mkdir(exist_ok=True)
        pool = ProcessPoolExecutor(processes, get_context("spawn"), follow)
        try:
            made = {pool.submit(encode, piece, folder): piece for piece in pieces}
            for done in as_completed(made):
                done.result()
                yield made[done].end - made[done].begin
            join(writer, [piece.result() for piece in made])
        except BrokenProcessPool:
            raise DataError("an encoder was killed (memory?): the same command goes on") from None
        finally:
            pool.shutdown(cancel_futures=True)
            with suppress(OSError):
                folder.rmdir()  # where nothing was done
    shutil.rmtree(folder)


def join(writer: Writer, made: Iterable[Path | None]) -> None:
    """Append the pieces' corpora in order."""
    for prefix in filter(None, made):
        writer.append(Corpus(prefix))
