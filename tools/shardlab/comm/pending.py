"""A collective that was started, and the errors of one that is refused or does not finish."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch.distributed as dist
from torch import Tensor

# Rows of an all-to-all: how many go to each rank, how many come from each; None: equal numbers.
Rows = tuple[list[int], list[int]] | None
Explain = Callable[[str, RuntimeError], None]


class CollectiveError(RuntimeError):
    """Raised when a collective is refused or does not finish; names it and the ranks."""


class PeerLostError(RuntimeError):
    """Raised by a link when a peer died, left or is late; an axis turns it into CollectiveError."""


def is_backend_error(error: RuntimeError) -> bool:
    """Return whether the backend raised `error` for a lost peer or connection.

    gloo has no exception class of its own; its messages name a file of its source.
    """
    return isinstance(error, dist.DistError | PeerLostError) or "gloo/" in str(error)


class Work(Protocol):
    """What a link's `start_…` returns: torch's Work, or any object with a `wait`."""

    def wait(self) -> object:
        """Block until done."""


@dataclass(eq=False, slots=True)
class Pending:
    """A collective that was started; keeps its buffers alive until `wait`.

    Args:
        result: the tensor that holds the result once the work is done.
        work: the link's work; None if it is done already.
        operation: the collective's name, for errors.
        explain: raises an error that names ranks in place of the backend's error.
        divisor: the number by which the result is divided, to make a mean of a sum.
        rounded: the tensor into which the result is rounded; None if the result is returned as is.
    """

    _result: Tensor
    _work: Work | None = None
    _operation: str = ""
    _explain: Explain | None = None
    _divisor: int = 1
    _rounded: Tensor | None = None

    def wait(self) -> Tensor:
        """Block until the result is there, on CUDA until the stream will have it; idempotent.

        Raises:
            CollectiveError: the collective did not finish; names the ranks that are missing.
        """
        if self._work is not None:
            work, self._work = self._work, None
            try:
                work.wait()
            except RuntimeError as error:
                if self._explain is not None:
                    self._explain(self._operation, error)
                raise
            if self._divisor != 1:
                self._result.div_(self._divisor)
            if self._rounded is not None:
                self._result = self._rounded.copy_(self._result)
        return self._result
