"""Lab 05: sets the four functions of mine.py beside the library, and Megatron's where it is here.

python experiments/37-batches/check.py PREFIX
"""

import sys
import warnings
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

try:
    import mine
    import numpy as np

    from shardlab.data.blend import greedy_order, normalize_weights
    from shardlab.data.build import Builder
    from shardlab.data.corpus import Corpus, DataError
    from shardlab.data.loader import Loader
    from shardlab.data.samples import Recipe, Samples, build_indices
except ModuleNotFoundError as missing:
    sys.exit(
        f"check.py: error: this Python has no {missing.name}: run `make bench-env` once, and "
        "`source .venv/bin/activate` in every terminal"
    )

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # that apex and Transformer Engine are not installed
    try:
        from megatron.core.datasets import helpers
    except ModuleNotFoundError:  # its C++ comes for some Pythons only; the library is equal to it
        helpers = None

SEQUENCES = (1, 7, 64, 500)
Case = tuple[str, tuple[Any, ...], list[Any]]  # what is asked in words, the arguments, the answer


def lengths(corpus: Corpus) -> Iterator[Case]:
    """Those of the corpus."""
    index = Path(f"{corpus.prefix}.idx").read_bytes()
    yield "lengths", (index,), corpus.lengths.tolist()


def places(corpus: Corpus) -> Iterator[Case]:
    """Those of an epoch, in the order in which the documents are shuffled."""
    for sequence in SEQUENCES:
        index = build_indices(corpus.lengths, range(len(corpus)), Recipe(sequence=sequence))
        sizes, right = corpus.lengths[index.documents], index.places
        if helpers:
            numbers = np.arange(len(sizes), dtype=np.int32)
            tokens = int(sizes.sum())
            right = helpers.build_sample_idx(sizes, numbers, sequence, 1, tokens, True, 1)
        yield f"sequence {sequence}", (sizes.tolist(), sequence), [*map(tuple, right.tolist())]


class Numbers(Samples):
    """Samples whose tokens are their own number, so that a loader shows which it read."""

    def __getitem__(self, sample: int) -> Any:
        """Return the number, twice: as a token and as its label."""
        return np.array([sample, sample])


def share(corpus: Corpus) -> Iterator[Case]:
    """What the loader of each data rank reads."""
    recipe = Recipe(sequence=1)
    samples = Builder().samples(corpus, recipe)
    for ranks, step in product((1, 2, 4), (0, 5)):
        for rank in range(ranks):
            axis: Any = SimpleNamespace(size=ranks, rank=rank)  # all that a loader asks of one
            tokens, _ = Loader(Numbers(corpus, samples.index, recipe), 8, data=axis).read(8 * step)
            assert tokens is not None
            right = tokens[:, 0].tolist()
            yield f"step {step}, rank {rank} of {ranks}", (step, 8, ranks, rank), right


def blended(_: Corpus) -> Iterator[Case]:
    """Blends of two and of four corpora."""
    for weights in ([3.0, 1.0], [0.4, 0.3, 0.2, 0.1], [1.0, 1.0, 1.0]):
        normal, size = normalize_weights(weights), 1000
        right = greedy_order(normal, size)[0]
        if helpers:
            helpers.build_blending_indices(
                right, np.zeros(size, np.int64), normal, len(normal), size, False
            )
        yield f"weights {weights}", (normal.tolist(), size), right.tolist()


PARTS: dict[str, Callable[[Corpus], Iterator[Case]]] = {
    "lengths": lengths, "places": places, "share": share, "blended": blended,
}  # fmt: skip


def judged(function: Callable[..., Any], cases: Iterator[Case]) -> str:
    """Return what is said of a function: right, or where its first wrong answer is."""
    for words, arguments, right in cases:
        try:
            answer = function(*arguments)
        except NotImplementedError:
            return "not written yet"
        except Exception as error:  # the learner's own: it is shown, not raised
            return f"{words}: {type(error).__name__}: {error}"
        if (fault := differs(list(answer), right)) is not None:
            return f"{words}: {fault}"
    return "right"


def differs(answer: list[Any], right: list[Any]) -> str | None:
    """Say where two lists part; None: nowhere."""
    for at, (value, expected) in enumerate(zip(answer, right, strict=False)):
        if value != expected:
            return f"at {at} yours is {value}, and {expected} is right"
    if len(answer) != len(right):
        return f"yours has {len(answer)}, and {len(right)} is right"
    return None


def report(module: ModuleType, corpus: Corpus) -> dict[str, str]:
    """Return what is said of each of a module's four functions."""
    return {name: judged(getattr(module, name), cases(corpus)) for name, cases in PARTS.items()}


def main() -> int:
    """Read the command line; return 0 if all are right."""
    if len(sys.argv) != 2:
        sys.exit("check.py: error: give the prefix of a corpus: check.py PREFIX")
    try:
        lines = report(mine, Corpus(sys.argv[1]))
    except DataError as error:
        sys.exit(f"check.py: error: {error}")
    print(f"beside shardlab{' and Megatron’s C++' if helpers else ''}")
    for name, words in lines.items():
        print(f"  {name:8} {words}")
    return 0 if set(lines.values()) == {"right"} else 1


if __name__ == "__main__":
    sys.exit(main())
