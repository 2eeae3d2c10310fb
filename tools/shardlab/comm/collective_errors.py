"""Errors that every rank raises: if a step fails on one rank, it fails on all of them."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from shardlab.comm import Axis, CollectiveError

MESSAGE_BYTES = 512  # the length to which each rank's error message is cut or padded


@contextmanager
def raise_on_all_ranks(
    axis: Axis, device: torch.device, action: str, error: type[Exception]
) -> Iterator[None]:
    """Context manager: if one rank raises, every rank raises the same error.

    No rank then waits in the next collective for a rank that has failed. Every rank of `axis`
    must enter it, in the same order as its other collectives.

    Args:
        axis: the ranks that exchange their error messages, by an all-gather.
        device: the device of the tensors of that all-gather.
        action: what a rank failed to do, for the message: "write its shard" gives "rank 1 could
            not write its shard: …".
        error: the exception to raise.

    Raises:
        error: at least one rank raised an exception inside the block.
        CollectiveError: a rank was lost, so that no message can be exchanged.
    """
    failure: Exception | None = None
    try:
        yield
    except CollectiveError:
        raise
    except Exception as caught:
        failure = caught
    message = "" if failure is None else _describe(failure, error)
    padded = message.encode()[:MESSAGE_BYTES].ljust(MESSAGE_BYTES, b"\0")
    local = torch.frombuffer(bytearray(padded), dtype=torch.uint8)
    gathered = axis.all_gather(local.to(device)).view(-1, MESSAGE_BYTES).tolist()
    messages = {
        rank: bytes(row).rstrip(b"\0") for rank, row in zip(axis.ranks, gathered, strict=True)
    }
    if failed := [rank for rank in messages if messages[rank]]:
        prefix = f"rank {', '.join(map(str, failed))} could not {action}"
        raise error(f"{prefix}: {messages[failed[0]].decode(errors='replace')}") from failure


def _describe(failure: Exception, error: type[Exception]) -> str:
    """Return the message that a rank sends for its exception, with the type of unexpected ones."""
    name, message = type(failure).__name__, str(failure)
    expected = isinstance(failure, (error, ValueError, OSError, MemoryError))
    return message if expected and message else f"{name}: {message}" if message else name
