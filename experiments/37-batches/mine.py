"""Lab 05: four functions to finish, in plain Python; `check.py PREFIX` says which are right.

Write them from the lab and theory 7, not from shardlab's: loops will do.
"""


def lengths(index: bytes) -> list[int]:
    """Return each sequence's tokens, as an .idx says; `struct.unpack_from` reads numbers."""
    raise NotImplementedError


def places(sizes: list[int], sequence: int) -> list[tuple[int, int]]:
    """Return where each sample begins in documents of these sizes, laid end to end, and one more.

    A place is (document, token in it). A sample reads `sequence` + 1 tokens from its place on; the
    last of them is the first of the next. Tokens too few for a last sample are left.
    """
    raise NotImplementedError


def share(step: int, batch: int, ranks: int, rank: int) -> range:
    """Return the samples that a data rank reads at a step, from 0: an equal run of the batch."""
    raise NotImplementedError


def blended(weights: list[float], size: int) -> list[int]:
    """Return, for each of `size` samples, the corpus that gives it: the one that lags most.

    Weights add up to 1. At step n, from 0, corpus i lags by weights[i] · max(n, 1) less what it has
    given; of those that lag alike the first gives.
    """
    raise NotImplementedError
