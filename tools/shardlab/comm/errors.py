"""What is raised of a collective that cannot be, or did not finish."""

from __future__ import annotations

import torch.distributed as dist


class CollectiveError(RuntimeError):
    """A collective that did not finish, or was refused; names the ranks and the collective."""


class PeerLostError(RuntimeError):
    """What a link of ours says of a peer that died, left or is late, before it is explained."""


def says_backend(error: RuntimeError) -> bool:
    """Whether `error` tells of a peer or a wire, and not of a fault on this rank.

    gloo has no class for its errors; they name a place in its source.
    """
    return isinstance(error, dist.DistError | PeerLostError) or "gloo/" in str(error)
