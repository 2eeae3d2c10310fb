"""From text files to a corpus: in pieces, by several processes; a killed job can be continued.

Each piece of the text becomes a corpus of its own, in a folder next to the prefix whose name is a
hash of the text and the tokenizer. A complete piece isn't encoded again. At the end the pieces are
joined in order, so the result doesn't depend on the number of processes or on their timing.

A text without tokens becomes a document without a sequence, as in Megatron's
tools/preprocess_data.py: no sample reads it, and the corpus has the same bytes.
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
from dataclasses import asdict, dataclass, field
from multiprocessing import get_context, parent_process
from pathlib import Path
from threading import Thread

from shardlab.data.corpus import Corpus, DataError, require, wrap_os_errors
from shardlab.data.encoding import BOM, by_name, decode, holds_json_lines, read_field
from shardlab.data.writer import Writer

PIECE = 8 << 20  # bytes of text
FORMAT = 2  # of the pieces on disk
MAX_NAMED_FAULTS = 10  # of a piece; further faults are only counted


@dataclass(frozen=True)
class Job:
    """The settings of a job that makes a corpus from text.

    Args:
        files: files of JSON lines, with a document a line, or of text, with one document a file.
        prefix: the corpus's path, without `.bin` and `.idx`.
        tokenizer, end: the arguments of `by_name`.
        field: the field of the JSON objects that has the text.
        lines: whether each line of a text file is a document.
        skip_bad: whether faulty lines and files are skipped and counted; otherwise they end the
            job.
    """

    files: tuple[str, ...]
    prefix: str
    tokenizer: str = "bytes"
    end: str | None = None
    field: str = "text"
    lines: bool = False
    skip_bad: bool = False

    @property
    def folder(self) -> Path:
        """The folder of the pieces, which depends on the text, the tokenizer and the settings."""
        files = self.files if self.tokenizer == "bytes" else (*self.files, self.tokenizer)
        stats = [(stat.st_size, stat.st_mtime_ns) for stat in map(os.stat, files)]
        key = repr((stats, self, PIECE, FORMAT))
        return Path(f"{self.prefix}.pieces-{hashlib.sha256(key.encode()).hexdigest()[:16]}")

    def pieces(self) -> list[Piece]:
        """Return the pieces of the text, in order.

        Raises:
            DataError: a file is missing, compressed or one of the corpus's, or all are empty.
        """
        pieces: list[Piece] = []
        outputs = [Path(f"{self.prefix}.{kind}").resolve() for kind in ("bin", "idx")]
        for path in map(Path, self.files):
            require(path.is_file(), f"no file {path}: give text files, or files of JSON lines")
            overwrites = path.resolve() in outputs
            require(
                not overwrites, f"{path} would be replaced by its corpus: choose another prefix"
            )
            size, json_lines = path.stat().st_size, holds_json_lines(path)
            whole = not (json_lines or self.lines)
            step = max(size, 1) if whole else PIECE
            for begin in range(0, max(size, whole), step):
                piece = Piece(self, len(pieces), path, json_lines, begin, min(begin + step, size))
                pieces.append(piece)
        text = any(piece.end for piece in pieces)
        require(text, f"no text in {', '.join(self.files) or 'no file'}")
        return pieces


@dataclass
class Tally:
    """Counts of a piece's texts.

    Attributes:
        size: bytes of text.
        documents: documents in the corpus.
        tokens: tokens in the corpus.
        empty: documents without tokens.
        bad: faulty lines and files, which were skipped.
        faults: descriptions of the first faults.
    """

    size: int = 0
    documents: int = 0
    tokens: int = 0
    empty: int = 0
    bad: int = 0
    faults: list[str] = field(default_factory=list)

    def add(self, fault: str) -> None:
        """Count a fault, and store its description if it is one of the first."""
        self.bad += 1
        if len(self.faults) < MAX_NAMED_FAULTS:
            self.faults.append(fault)


@dataclass(frozen=True)
class Piece:
    """The documents that begin within a range of bytes of a file."""

    job: Job
    number: int
    file: Path
    json_lines: bool
    begin: int
    end: int

    def documents(self, tally: Tally) -> Iterator[str]:
        """Yield the texts; add the faults of the others to the tally."""
        for number, content in self._contents():
            try:
                text = read_field(content, self.job.field) if self.json_lines else decode(content)
            except ValueError as error:
                line = f" line {self._lines_before() + number}:" if number else ""
                tally.add(f"{self.file}:{line} {error}")
                continue
            yield text if number is None or self.json_lines else text.rstrip("\r\n")

    def _contents(self) -> Iterator[tuple[int | None, bytes]]:
        """Yield each line that isn't blank, with its number from 1; or None and the whole file."""
        if not (self.json_lines or self.job.lines):
            yield None, self.file.read_bytes()
            return
        with self.file.open("rb") as file:
            if self.begin:
                file.seek(self.begin - 1)
                file.readline()  # begins in the previous piece
            elif file.read(len(BOM)) != BOM:
                file.seek(0)
            number = 0
            while file.tell() < self.end:
                number += 1
                if (line := file.readline()).strip():
                    yield number, line

    def _lines_before(self) -> int:
        """Count the lines that begin before this piece."""
        count, remaining = 0, max(self.begin - 1, 0)
        with self.file.open("rb") as file:
            while remaining and (content := file.read(min(remaining, PIECE))):
                count, remaining = count + content.count(b"\n"), remaining - len(content)
        return count + (self.begin > 0)


def encode(piece: Piece, folder: Path) -> Tally:
    """Make a piece's corpus, unless it exists, and return the counts of its texts.

    If no text has a token, there is no corpus.

    Raises:
        DataError: a line or a file is faulty, and faults aren't skipped.
    """
    prefix = folder / f"{piece.number:06}"
    done = prefix.with_suffix(".json")
    if done.is_file():
        return Tally(**json.loads(done.read_text("utf-8")))
    encoder, tally = by_name(piece.job.tokenizer, piece.job.end), Tally(piece.end - piece.begin)
    with Writer(prefix, encoder.dtype) as writer:
        for tokens in map(encoder.encode, piece.documents(tally)):
            if len(tokens):
                writer.add(tokens)
            else:
                writer.extend([], [], [0, 0])
            tally.documents, tally.tokens = tally.documents + 1, tally.tokens + len(tokens)
            tally.empty += not len(tokens)
        if tally.bad and not piece.job.skip_bad:
            more = f"; {tally.bad - MAX_NAMED_FAULTS} more" if tally.bad > MAX_NAMED_FAULTS else ""
            advice = "correct them, or leave them out by --skip-bad"
            raise DataError(f"{'; '.join(tally.faults)}{more}: {advice}")
        if not tally.tokens:
            writer.discard()
    draft = done.with_suffix(".draft")
    draft.write_text(json.dumps(asdict(tally)), "utf-8")
    draft.replace(done)
    return tally


def exit_with_parent() -> None:
    """End this process when its parent ends, also when the parent is killed."""

    def wait() -> None:
        if parent := parent_process():
            parent.join()
        os._exit(1)

    Thread(target=wait, daemon=True).start()


def prepare(job: Job, processes: int) -> Iterator[Tally]:
    """Make the corpus; yield the counts of each piece when it is done, in any order.

    Raises:
        DataError: a fault of the text, the tokenizer or the disk. Complete pieces remain, and the
            next call continues from there.
    """
    pieces, parent = job.pieces(), Path(job.prefix).parent
    encoder = by_name(job.tokenizer, job.end)  # its errors are raised here, not in each process
    with wrap_os_errors(f"no folder {parent}", "choose another prefix"):
        parent.mkdir(parents=True, exist_ok=True)
    with Writer(job.prefix, encoder.dtype) as writer:  # another build of it is refused meanwhile
        folder = job.folder
        folder.mkdir(exist_ok=True)
        pool = ProcessPoolExecutor(processes, get_context("spawn"), exit_with_parent)
        try:
            futures = [pool.submit(encode, piece, folder) for piece in pieces]
            for done in as_completed(futures):
                yield done.result()
            join(writer, folder, [piece.result() for piece in futures])
        except BrokenProcessPool:
            raise DataError("an encoder was killed (memory?): the same command goes on") from None
        finally:
            pool.shutdown(cancel_futures=True)
            with suppress(OSError):
                folder.rmdir()  # if no piece was done
    shutil.rmtree(folder)


def join(writer: Writer, folder: Path, tallies: Iterable[Tally]) -> None:
    """Append the pieces' corpora to `writer`, in order."""
    for number, tally in enumerate(tallies):
        if tally.tokens:
            writer.append(Corpus(folder / f"{number:06}"))
        else:
            writer.extend([], [], [0] * (tally.documents + 1))
