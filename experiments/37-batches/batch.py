"""Lab 05: who reads what of a corpus at a step, and what a blend takes from where.

    python experiments/37-batches/batch.py PREFIX --step 3
    python experiments/37-batches/batch.py PREFIX PREFIX --weights 3 1 --step 3

docs/labs/05-from-text-to-the-batch.md walks through.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

try:
    from shardlab.data.blend import Blend
    from shardlab.data.build import Builder
    from shardlab.data.corpus import Corpus, DataError
    from shardlab.data.encoding import Bytes
    from shardlab.data.samples import Recipe, Samples
    from shardlab.grid.layout import Layout
except ModuleNotFoundError as missing:
    sys.exit(
        f"batch.py: error: this Python has no {missing.name}: run `make bench-env` once, and "
        "`source .venv/bin/activate` in every terminal"
    )


@dataclass(frozen=True, kw_only=True)
class Settings:
    """One question.

    Attributes:
        prefixes: of the corpora.
        weights: of the corpora, where there are several; none: in proportion to their samples.
        step: which one, from 0.
        samples: how many the run will read; none: those of one epoch.
        sequence: tokens of a sample.
        batch: samples of a step, over all data ranks.
        tp, dp, pp: the grid.
    """

    prefixes: Sequence[str]
    weights: Sequence[float] | None = None
    step: int = 0
    samples: int | None = None
    sequence: int = 64
    batch: int = 8
    tp: int = 1
    dp: int = 2
    pp: int = 2


def make_samples(settings: Settings) -> Samples | Blend:
    """Make the samples, as every rank does for itself."""
    corpora = [Corpus(prefix) for prefix in settings.prefixes]
    recipe = Recipe(sequence=settings.sequence, samples=settings.samples)
    if len(corpora) == 1:
        return Builder().samples(corpora[0], recipe)
    return Builder().blend(corpora, recipe, weights=settings.weights)


def readers(settings: Settings) -> Iterator[str]:
    """Say for each rank which samples it reads at the step, and what of them."""
    layout = Layout(tensor=settings.tp, data=settings.dp, pipeline=settings.pp)
    share, begin = settings.batch // settings.dp, settings.step * settings.batch
    yield "rank  tensor  data  stage  samples    reads"
    for rank in range(settings.tp * settings.dp * settings.pp):
        at = layout.coordinates(rank)
        first = begin + at["data"] * share
        read = [
            word
            for word, stage in (("tokens", 0), ("labels", settings.pp - 1))
            if at["pipeline"] == stage
        ]
        samples = f"{first}–{first + share - 1}" if read else "–"
        yield (
            f"{rank:4}  {at['tensor']:6}  {at['data']:4}  {at['pipeline']:5}  {samples:9}  "
            f"{' and '.join(read) or 'nothing'}"
        )


def traced(samples: Samples, sample: int) -> Iterator[str]:
    """Say where a sample's tokens lie: through the three indices, to documents."""
    index = samples.index
    place = index.order.item(sample)
    (first, offset), (last, end) = index.places[place : place + 2].tolist()
    yield f"sample {sample} is number {place} in the text: places {first}:{offset} to {last}:{end}"
    for at in range(first, last + 1):
        document = index.documents.item(at)
        begin = offset if at == first else 0
        stop = end + samples.extra if at == last else samples.corpus.lengths.item(document)
        shown = samples.corpus[document][begin:stop].tolist()
        text = Bytes().decode(shown if len(shown) < 40 else shown[:40])
        yield f"  place {at} is document {document}: tokens {begin} to {stop - 1}, {text!r}"


def mixed(blend: Blend, begin: int) -> Iterator[str]:
    """Say what a blend has taken from which corpus, and what it takes next."""
    for count in (begin, len(blend)):
        counts = [
            int((blend.corpora[:count] == corpus).sum()) for corpus in range(len(blend.parts))
        ]
        parts = [f"{part} of {len(of)}" for part, of in zip(counts, blend.parts, strict=True)]
        yield f"after {count} samples: {', '.join(parts)}"
    yield f"next from: {' '.join(map(str, blend.corpora[begin : begin + 16].tolist()))}"


def report(settings: Settings) -> str:
    """Return what is printed, in three paragraphs."""
    for name in ("batch", "tp", "dp", "pp"):
        if getattr(settings, name) < 1:
            raise DataError(f"--{name} is {getattr(settings, name)}: choose 1 or more")
    if settings.weights and len(settings.prefixes) == 1:
        raise DataError("--weights are of several corpora, and there is one: leave them")
    samples, begin = make_samples(settings), settings.step * settings.batch
    if settings.batch % settings.dp:
        raise DataError(f"{settings.dp} data ranks do not divide a batch of {settings.batch}")
    if not 0 <= begin <= len(samples) - settings.batch:
        last = len(samples) // settings.batch - 1
        raise DataError(f"no step {settings.step}: {len(samples)} samples are steps 0 to {last}")
    about = mixed(samples, begin) if isinstance(samples, Blend) else traced(samples, begin)
    head = f"{len(samples)} samples of {settings.sequence} tokens; {begin} before step"
    return "\n\n".join([f"{head} {settings.step}", "\n".join(readers(settings)), "\n".join(about)])


def parsed() -> Settings:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="batch.py", description=__doc__.split("\n")[0])
    parser.add_argument("prefixes", nargs="+", metavar="PREFIX")
    parser.add_argument("--weights", nargs="+", type=float)
    parser.add_argument("--samples", type=int)
    for name in ("step", "sequence", "batch", "tp", "dp", "pp"):
        parser.add_argument(f"--{name}", type=int, default=getattr(Settings, name))
    return Settings(**vars(parser.parse_args()))


def main() -> int:
    """Read the command line and answer; return the exit status."""
    try:
        print(report(parsed()))
    except DataError as error:
        print(f"batch.py: error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
