"""What all ranks do, or none: whoever fails tells the others why, and nobody waits for one."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from shardlab.comm import Axis, CollectiveError

WORDS = 512  # bytes of what a rank tells the others


@contextmanager
def together(
    ranks: Axis, device: torch.device, doing: str, error: type[Exception]
) -> Iterator[None]:
    """Let every rank go on, or every rank raise the same words; each of `ranks` enters alike.

    Args:
        ranks: who tells each other.
        device: of the tensors that they do it with.
        doing: what, as in "could not write its shard".
        error: what is raised, and, raised within, told.

    Raises:
        error: an exception was raised within, on some rank.
        CollectiveError: a rank is lost, which can tell nothing.
    """
    failure: Exception | None = None
    try:
        yield
    except CollectiveError:
        raise
    except Exception as caught:
        failure = caught
    said = "" if failure is None else _words(failure, error)
    mine = torch.frombuffer(bytearray(said.encode()[:WORDS].ljust(WORDS, b"\0")), dtype=torch.uint8)
    told = ranks.all_gather(mine.to(device)).view(-1, WORDS).tolist()
    words = {rank: bytes(row).rstrip(b"\0") for rank, row in zip(ranks.ranks, told, strict=True)}
    if failed := [rank for rank in words if words[rank]]:
        who = f"rank {', '.join(map(str, failed))} could not {doing}"
        raise error(f"{who}: {words[failed[0]].decode(errors='replace')}") from failure


def _words(failure: Exception, error: type[Exception]) -> str:
    """Return what a rank tells of a failure; of one that nobody expects, its type too."""
    name, message = type(failure).__name__, str(failure)
    expected = isinstance(failure, (error, ValueError, OSError, MemoryError))
    return message if expected and message else f"{name}: {message}" if message else name
