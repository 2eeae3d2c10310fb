"""How many bytes of tensors a process holds, at each moment, and at most.

CUDA's allocator can say so; the CPU's can't. So here every storage that an operator returns is
followed until it is freed. What a kernel allocates for itself, and gloo's buffers, are not seen.
"""

import weakref
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter


class LiveBytes(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Follows tensors made while it is entered; may be entered again.

    Attributes:
        peak: the most bytes that were alive at the end of an operator, since `reset`.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.peak = 0
        self._storages: dict[int, weakref.ref[torch.UntypedStorage]] = {}

    @property
    def now(self) -> int:
        """Bytes alive at this moment."""
        alive = [reference() for reference in list(self._storages.values())]
        return sum(storage.nbytes() for storage in alive if storage is not None)

    def reset(self) -> None:
        """Measure a new peak from here on."""
        self.peak = self.now

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Run `func` and follow what it made."""
        result = func(*args, **(kwargs or {}))
        for value in tree_iter(result):
            if isinstance(value, Tensor):
                self._follow(value.untyped_storage())
        self.peak = max(self.peak, self.now)
        return result

    def _follow(self, storage: torch.UntypedStorage) -> None:
        key = storage._cdata
        if key not in self._storages:
            # Forgotten at once: its address may be used again.
            self._storages[key] = weakref.ref(storage, lambda _: self._storages.pop(key))
