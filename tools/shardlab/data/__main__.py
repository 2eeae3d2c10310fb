"""Corpora from the command line: `python -m shardlab.data build|inspect|verify`."""

from __future__ import annotations

import os
import sys
from typing import Any

import click
import numpy as np

from shardlab.data.corpus import CHUNK, Corpus, DataError, demand
from shardlab.data.text.encoding import by_name
from shardlab.data.text.prepare import Job, prepare

COUNT = click.IntRange(min=1)


class Refusing(click.Group):
    """What data refuses ends the command in a line, with status 1."""

    def invoke(self, ctx: click.Context) -> object:
        """Run; say what is refused."""
        try:
            return super().invoke(ctx)
        except (DataError, OSError) as error:
            raise click.ClickException(str(error)) from None


@click.group(cls=Refusing)
def main() -> None:
    """Make a corpus (PREFIX.bin and PREFIX.idx, as Megatron reads them) of text; look at one."""


@main.command()
@click.argument("prefix")
@click.argument("files", nargs=-1, required=True)
@click.option("--tokenizer", default="bytes", help="a tokenizer.json; bytes unless given")
@click.option("--end", help="the token of a tokenizer.json that ends each document")
@click.option("--field", default="text", help="of a .jsonl's lines, that with the text")
@click.option("--lines", is_flag=True, help="each line of a text file is a document")
@click.option("--processes", type=COUNT, default=os.cpu_count, help="that encode side by side")
def build(prefix: str, files: tuple[str, ...], processes: int, **about: Any) -> None:
    """Make the corpus PREFIX of FILES; after a kill, the same command goes on where it was."""
    job = Job(files, prefix, **about)
    total = sum(piece.end - piece.begin for piece in job.pieces())
    with click.progressbar(length=total, label="encoding", file=sys.stderr) as bar:
        for count in prepare(job, processes):
            bar.update(count)
    click.echo(described(Corpus(prefix)))


@main.command()
@click.argument("prefix")
@click.option("--document", default=0, help="whose first tokens are shown")
@click.option("--tokens", type=COUNT, default=32, help="how many are shown")
@click.option("--tokenizer", help="to show them as text: bytes, or a tokenizer.json")
def inspect(prefix: str, document: int, tokens: int, tokenizer: str | None) -> None:
    """Say what a corpus holds, and show the beginning of a document."""
    corpus = Corpus(prefix)
    click.echo(described(corpus))
    last = len(corpus.documents) - 2
    demand(0 <= document <= last, f"no document {document}: {prefix} has documents 0 to {last}")
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
    for at in range(0, len(corpus.tokens), CHUNK):
        part = corpus.tokens[at : at + CHUNK]
        right = (part >= 0) & (part < (vocabulary or np.inf))  # of which no NaN is
        if not right.all():
            place = int(right.argmin())
            raise DataError(
                f"{prefix}: token {at + place} is {part[place]}, which a vocabulary of "
                f"{vocabulary or 'any size'} doesn't hold: it was made with another tokenizer"
            )
    click.echo(f"whole: {described(corpus)}")


def described(corpus: Corpus) -> str:
    """Return what a corpus holds, in a line."""
    lengths = corpus.lengths
    return (
        f"{corpus.prefix}: {len(corpus.documents) - 1:,} documents, {len(corpus):,} sequences of "
        f"{lengths.min():,} to {lengths.max():,} tokens, {len(corpus.tokens):,} tokens in all, "
        f"{corpus.tokens.dtype.name}"
    )


if __name__ == "__main__":
    main(prog_name="python -m shardlab.data")
