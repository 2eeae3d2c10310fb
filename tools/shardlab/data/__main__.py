"""Corpora from the command line: `python -m shardlab.data build|inspect|verify`."""

from __future__ import annotations

import os
import sys
from typing import Any

import click
import numpy as np

from shardlab.data.corpus import Corpus, DataError, require
from shardlab.data.encoding import by_name
from shardlab.data.prepare import Job, Tally, prepare

COUNT = click.IntRange(min=1)


class DataErrorGroup(click.Group):
    """Commands that end with a one-line message and status 1 on a DataError or OSError."""

    def invoke(self, ctx: click.Context) -> object:
        """Run the command; turn data errors into click's."""
        try:
            return super().invoke(ctx)
        except (DataError, OSError) as error:
            raise click.ClickException(str(error)) from None


@click.group(cls=DataErrorGroup)
def main() -> None:
    """Make a corpus (PREFIX.bin and PREFIX.idx, as Megatron reads them) of text; look at one."""


@main.command()
@click.argument("prefix")
@click.argument("files", nargs=-1, required=True)
@click.option("--tokenizer", default="bytes", help="a tokenizer.json; bytes unless given")
@click.option("--end", help="the token of a tokenizer.json that ends each document")
@click.option("--field", default="text", help="of JSON lines, the field with the text")
@click.option("--lines", is_flag=True, help="each line of a text file is a document")
@click.option("--skip-bad", is_flag=True, help="leave faulty lines out, and count them")
@click.option("--processes", type=COUNT, default=os.cpu_count, help="that encode side by side")
def build(prefix: str, files: tuple[str, ...], processes: int, **about: Any) -> None:
    """Make the corpus PREFIX of FILES; after a kill, the same command goes on where it was.

    FILES hold JSON lines (one object a line, as Megatron reads them) or text; their content says
    which, not their name.
    """
    job = Job(files, prefix, **about)
    total, tallies = sum(piece.end - piece.begin for piece in job.pieces()), list[Tally]()
    with click.progressbar(length=total, label="encoding", file=sys.stderr) as bar:
        for tally in prepare(job, processes):
            tallies.append(tally)
            bar.update(tally.size)
    click.echo(describe(Corpus(prefix)))
    report(job, tallies)


def report(job: Job, tallies: list[Tally]) -> None:
    """Report on standard error what was left out, and whether documents are joined unmarked."""
    documents, empty, bad = (
        sum(getattr(tally, name) for tally in tallies) for name in ("documents", "empty", "bad")
    )
    for fault in (fault for tally in tallies for fault in tally.faults):
        click.echo(f"left out: {fault}", err=True)
    if bad or empty:
        click.echo(f"left out: {bad:,} faulty, {empty:,} without text", err=True)
    if job.tokenizer != "bytes" and job.end is None and documents - empty > 1:
        click.echo(
            "warning: no token ends a document, so samples join documents without a mark: give "
            "the tokenizer's end token as --end",
            err=True,
        )


@main.command()
@click.argument("prefix")
@click.option("--document", default=0, help="whose first tokens are shown")
@click.option("--tokens", type=COUNT, default=32, help="how many are shown")
@click.option("--tokenizer", help="to show them as text: bytes, or a tokenizer.json")
def inspect(prefix: str, document: int, tokens: int, tokenizer: str | None) -> None:
    """Say what a corpus holds, and show the beginning of a document."""
    corpus = Corpus(prefix)
    click.echo(describe(corpus))
    last = len(corpus.documents) - 2
    require(0 <= document <= last, f"no document {document}: {prefix} has documents 0 to {last}")
    first, end = corpus.documents[document : document + 2].tolist()
    begin = int(corpus.lengths[:first].sum(dtype=np.int64))
    length = int(corpus.lengths[first:end].sum(dtype=np.int64))
    shown = corpus.tokens[begin : begin + min(tokens, length)].tolist()
    click.echo(f"document {document}: {length:,} tokens: {' '.join(map(str, shown))}")
    if tokenizer:
        click.echo(repr(by_name(tokenizer).decode(shown)))


@main.command()
@click.argument("prefix")
@click.option("--vocabulary", type=COUNT, help="refuse tokens that are not below it")
def verify(prefix: str, vocabulary: int | None) -> None:
    """Check that a pair is whole and its own, and its tokens those of a vocabulary."""
    corpus = Corpus(prefix)
    corpus.check(vocabulary or 0)
    click.echo(f"whole: {describe(corpus)}")


def describe(corpus: Corpus) -> str:
    """Return the sizes of a corpus, in one line."""
    lengths = corpus.lengths
    return (
        f"{corpus.prefix}: {len(corpus.documents) - 1:,} documents, {len(corpus):,} sequences of "
        f"{lengths.min():,} to {lengths.max():,} tokens, {len(corpus.tokens):,} tokens in all, "
        f"{corpus.tokens.dtype.name}"
    )


if __name__ == "__main__":
    main(prog_name="python -m shardlab.data")
