"""What written code sends, as it sends it, and which memory it holds."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._pytree import tree_leaves

from shardlab.proofs.ledger import Ledger


class Watch(Ledger):
    """A ledger that says what is sent before it is, and knows which memory is still held.

    Args:
        tell: called with op and bytes of each collective that this rank enters, before it waits.

    Attributes:
        before_send: called after `tell`.
    """

    def __init__(self, tell: Callable[[str, int], None] = lambda op, payload: None) -> None:
        super().__init__()
        self._tell = tell
        self.before_send: Callable[[], object] = lambda: None
        self._seen: dict[int, StorageWeakRef] = {}

    def note(
        self, op: str, payload: int, ranks: Sequence[int], axis: str, dtype: torch.dtype
    ) -> None:
        """Tell, then add an entry."""
        if op not in ("send", "recv"):  # which are not alike on two ranks
            self._tell(op, payload)
            self.before_send()
        super().note(op, payload, ranks, axis, dtype)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Remember the memory of what `func` returns, without holding it."""
        result = super().__torch_dispatch__(func, types, args, kwargs)
        self.remember(leaf for leaf in tree_leaves(result) if isinstance(leaf, Tensor))
        return result

    def remember(self, tensors: Iterable[Tensor]) -> None:
        """Have `held` count these."""
        for tensor in tensors:
            if tensor.device.type == "cpu":
                storage = tensor.untyped_storage()
                self._seen.setdefault(storage._cdata, StorageWeakRef(storage))

    def stored_bytes(self, but: Iterable[Tensor | None] = ()) -> int:
        """Return the bytes of what was made while this watched and that somebody still holds."""
        gc.collect()
        excluded = {tensor.untyped_storage()._cdata for tensor in but if tensor is not None}
        addresses = [ref.cdata for at, ref in self._seen.items() if at not in excluded]
        storages = [torch.UntypedStorage._new_with_weak_ptr(cdata) for cdata in addresses]
        return sum(storage.nbytes() for storage in storages if storage is not None)

    def settle(self) -> None:
        """Wait until gloo, too, has let go of what was sent.

        Its one thread (`rank.py`) drops a message's memory before it takes the next, which is this.
        """
        self._tell("the grader's own all_reduce", 8)
        dist.all_reduce(torch.zeros(1).double())
