"""Text files to a corpus: in pieces, by several processes, and after a kill where it was left.

Each piece of the text becomes a corpus of its own, in a folder beside the prefix that is named for
the text and the tokenizer; a piece that is whole is not done again. At the end they are joined in
order, so the result doesn't depend on how many processes there were, nor on who finished first.

A text without a token becomes a document without a sequence, as in Megatron's
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

from shardlab.data.corpus import Corpus, DataError, demand, told
from shardlab.data.text.content import BOM, decode, holds_json_lines, read_field
from shardlab.data.text.encoding import by_name
from shardlab.data.writer import Writer

PIECE = 8 << 20  # bytes of text
FORMAT = 2  # of the pieces on disk
NAMED = 10  # faults of a piece that are named; all are counted


@dataclass(frozen=True)
class Job:
    """What is made of which text.

    Args:
        files: of JSON lines, a document each, or of text, which is one document.
        prefix: of the corpus.
        tokenizer, end: as `by_name` takes them.
        field: of the JSON objects, which holds the text.
        lines: whether each line of a text file is a document.
        skip_bad: whether faulty lines and files are left out and counted, or end the job.
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
        """Where the pieces lie: another one for another text or tokenizer."""
        read = self.files if self.tokenizer == "bytes" else (*self.files, self.tokenizer)
        seen = [(stat.st_size, stat.st_mtime_ns) for stat in map(os.stat, read)]
        said = repr((seen, self, PIECE, FORMAT))
        return Path(f"{self.prefix}.pieces-{hashlib.sha256(said.encode()).hexdigest()[:16]}")

    def pieces(self) -> list[Piece]:
        """Return the pieces of the text, in order.

        Raises:
            DataError: a file is missing, compressed, or the corpus's own, or all are empty.
        """
        found: list[Piece] = []
        own = [Path(f"{self.prefix}.{kind}").resolve() for kind in ("bin", "idx")]
        for path in map(Path, self.files):
            demand(path.is_file(), f"no file {path}: give text files, or files of JSON lines")
            replaced = path.resolve() in own
            demand(not replaced, f"{path} would be replaced by its corpus: choose another prefix")
            size, json_lines = path.stat().st_size, holds_json_lines(path)
            whole = not (json_lines or self.lines)
            step = max(size, 1) if whole else PIECE
            for begin in range(0, max(size, whole), step):
                piece = Piece(self, len(found), path, json_lines, begin, min(begin + step, size))
                found.append(piece)
        text = any(piece.end for piece in found)
        demand(text, f"no text in {', '.join(self.files) or 'no file'}")
        return found


@dataclass
class Tally:
    """What became of a piece's texts, or of all.

    Attributes:
        size: bytes of text.
        documents, tokens: in the corpus.
        empty: documents among them that have no token.
        bad: faulty lines and files, which were left out.
        faults: what is wrong with the first of them, and where.
    """

    size: int = 0
    documents: int = 0
    tokens: int = 0
    empty: int = 0
    bad: int = 0
    faults: list[str] = field(default_factory=list)

    def add(self, fault: str) -> None:
        """Count a fault, and name it if it is one of the first."""
        self.bad += 1
        if len(self.faults) < NAMED:
            self.faults.append(fault)


@dataclass(frozen=True)
class Piece:
    """The documents that begin within some bytes of a file."""

    job: Job
    number: int
    file: Path
    json_lines: bool
    begin: int
    end: int

    def documents(self, tally: Tally) -> Iterator[str]:
        """Yield the texts; put what is wrong with the others into the tally."""
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
                file.readline()  # begins in the piece before
            elif file.read(len(BOM)) != BOM:
                file.seek(0)
            number = 0
            while file.tell() < self.end:
                number += 1
                if (line := file.readline()).strip():
                    yield number, line

    def _lines_before(self) -> int:
        """Count the lines that begin before this piece."""
        count, left = 0, max(self.begin - 1, 0)
        with self.file.open("rb") as file:
            while left and (content := file.read(min(left, PIECE))):
                count, left = count + content.count(b"\n"), left - len(content)
        return count + (self.begin > 0)


def encode(piece: Piece, folder: Path) -> Tally:
    """Make a piece's corpus, unless it is there, and say what became of its texts.

    Where no text has a token, there can be no corpus.

    Raises:
        DataError: a line or a file is faulty, and none is to be left out.
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
            more = f"; {tally.bad - NAMED} more" if tally.bad > NAMED else ""
            advice = "correct them, or leave them out by --skip-bad"
            raise DataError(f"{'; '.join(tally.faults)}{more}: {advice}")
        if not tally.tokens:
            writer.discard()
    draft = done.with_suffix(".draft")
    draft.write_text(json.dumps(asdict(tally)), "utf-8")
    draft.replace(done)
    return tally


def follow() -> None:
    """End this process with the one that began it, which can't say so when it is killed."""

    def wait() -> None:
        if parent := parent_process():
            parent.join()
        os._exit(1)

    Thread(target=wait, daemon=True).start()


def prepare(job: Job, processes: int) -> Iterator[Tally]:
    """Make the corpus; yield what became of each piece's texts once it is there, in any order.

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
            made = [pool.submit(encode, piece, folder) for piece in pieces]
            for done in as_completed(made):
                yield done.result()
            join(writer, folder, [piece.result() for piece in made])
        except BrokenProcessPool:
            raise DataError("an encoder was killed (memory?): the same command goes on") from None
        finally:
            pool.shutdown(cancel_futures=True)
            with suppress(OSError):
                folder.rmdir()  # where nothing was done
    shutil.rmtree(folder)


def join(writer: Writer, folder: Path, tallies: Iterable[Tally]) -> None:
    """Append the pieces' corpora, in order."""
    for number, tally in enumerate(tallies):
        if tally.tokens:
            writer.append(Corpus(folder / f"{number:06}"))
        else:
            writer.extend([], [], [0] * (tally.documents + 1))
