"""A collective under way, and what is raised of one that cannot be, or does not finish."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch.distributed as dist
from torch import Tensor

# Of an all-to-all: how many rows go to each rank, and how many come from each; None: equally many.
Rows = tuple[list[int], list[int]] | None
Explain = Callable[[str, RuntimeError], None]


class CollectiveError(RuntimeError):
    """A collective that did not finish, or was refused; names the ranks and the collective."""


class PeerLostError(RuntimeError):
    """What a link of ours says of a peer that died, left or is late, before it is explained."""


def says_backend(error: RuntimeError) -> bool:
    """Whether `error` tells of a peer or a wire, and not of a fault on this rank.

    gloo has no class for its errors; they name a place in its source.
    """
    return isinstance(error, dist.DistError | PeerLostError) or "gloo/" in str(error)


class Work(Protocol):
    """What a link hands back: torch's Work, or anything else that can be waited for."""

    def wait(self) -> object:
        """Block until done."""


@dataclass(eq=False, slots=True)
class Pending:
    """A collective under way; keeps its buffers alive until `wait`.

    Args:
        result: the tensor that holds the result once the work is done.
        work: what to wait for (None: done already).
        doing: the collective, for an error's words.
        explain: raises, in place of an error of the backend's, one that names ranks.
        divide: the number to divide the result by at the end (the mean of a sum).
        narrow: what the result is rounded into at last, if not itself.
    """

    _result: Tensor
    _work: Work | None = None
    _doing: str = ""
    _explain: Explain | None = None
    _divide: int = 1
    _narrow: Tensor | None = None

    def wait(self) -> Tensor:
        """Block until the result is there (on CUDA: until the stream will have it); idempotent.

        Raises:
            CollectiveError: the collective did not finish; names the ranks that are missing.
        """
        if self._work is not None:
            work, self._work = self._work, None
            try:
                work.wait()
            except RuntimeError as error:
                if self._explain is not None:
                    self._explain(self._doing, error)
                raise
            if self._divide != 1:
                self._result.div_(self._divide)
            if self._narrow is not None:
                self._result = self._narrow.copy_(self._result)
        return self._result
