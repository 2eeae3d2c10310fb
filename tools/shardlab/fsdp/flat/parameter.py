"""A unit's parameters as one flat tensor: a shard that lives, a whole all-gathered and freed.

Dimension key: F elements of the flat parameter with padding, f = F / n those of one rank's shard.

`shard_f` is the only copy that lasts: an `nn.Parameter` of the model's dtype that any torch
optimizer updates, one tensor for a whole unit. `full_F` is gathered into and freed again, and the
module's own parameters ("leaves") are views of it for ever: to unshard is one all-gather and no
other copy, to reshard is to free one storage.

Three traps, and how they are avoided:
- Autograd keeps views of `full_F` (a matmul saves the transposed weight) beyond forward. They hold
  its storage, so the storage must stay the same object: its *memory* goes and returns with
  `untyped_storage().resize_`, and what autograd kept is right again when backward reads it.
- Gathering writes to `full_F` between forward and backward, which would make autograd refuse what
  it saved. A view made by `leaf.data = …` has a version counter of its own, so it does not notice.
  What autograd can't notice, `changed` does: the shard's counter against that of the last gather.
- A freed leaf must not be read: `ShardedParameter` stands in its place while it is.

PyTorch: `FlatParamHandle` (fsdp/_flat_param.py), whose parameters are autograd views of the flat
one, so that backward writes a whole flat gradient and slices it; FSDP2 shards every parameter by
itself (`FSDPParam`) and copies all of them in and out around each collective.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from shardlab.comm import Axis, Pending
from shardlab.fsdp.flat.layout import FlatLayout
from shardlab.layers.init import read_elements


class FlatParameter:
    """Parameters of one unit with one dtype that train together, or are frozen together.

    Args:
        name: for errors.
        named: the parameters by their full names; they become views of the flat one.
        axis: along which it is cut (n ranks).
        dtype: that the parameters compute in.
        device: where to put those that are on meta; this rank draws of each its part alone.

    Attributes:
        leaves: the parameters.
        shard_f: what this rank keeps, [f], in the parameters' own dtype.
        full_F: all of it, [F] in `dtype`; without memory while sharded.

    Raises:
        ValueError: the parameters' devices differ.
    """

    def __init__(
        self, name: str, named: Sequence[tuple[str, nn.Parameter]], axis: Axis, dtype: torch.dtype,
        device: torch.device | None = None,
    ) -> None:  # fmt: skip
        self.name = name
        self.axis = axis
        self.leaves = [leaf for _, leaf in named]
        self.layout = FlatLayout.of({name: leaf.shape for name, leaf in named}, axis.size)
        self._places = [
            (shape, torch.empty(shape, device="meta").stride(), offset)
            for shape, offset in zip(self.layout.shapes, self.layout.offsets, strict=True)
        ]
        if devices := {str(leaf.device) for leaf in self.leaves} - {str(self.leaves[0].device)}:
            raise ValueError(
                f"{self.name} lies flat in one tensor, so its parameters share one device: some "
                f"are on {self.leaves[0].device}, others on {', '.join(sorted(devices))}"
            )
        shard_f = self._own(self.leaves[0].device if device is None else device)
        self._trains = self.leaves[0].requires_grad
        self.shard_f = nn.Parameter(shard_f, self._trains)
        # One rank that computes in its own dtype has its shard for a whole: nothing ever moves.
        self.is_whole = axis.size == 1 and dtype == shard_f.dtype
        self.full_F = shard_f
        if not self.is_whole:
            self.full_F = torch.empty(self.layout.numel, dtype=dtype, device=shard_f.device)
        self._bytes = self.full_F.nbytes
        self._pending: Pending | None = None
        self._gathered_version = -1
        for number, leaf in enumerate(self.leaves):
            leaf.grad = None
            _put(leaf, self.view(self.full_F, number))
        self.free()

    @property
    def version(self) -> int:
        """How often the shard was written to, as far as its version counter knows.

        torch's fused optimizers don't move the counter (seen in 2.13), nor do writes to `.data`.
        """
        return self.shard_f._version

    @property
    def changed(self) -> bool:
        """Whether the shard was written to since it was last gathered."""
        return not self.is_whole and self.version != self._gathered_version

    def view(self, flat_F: Tensor, number: int) -> Tensor:
        """Return the place of parameter `number` in `flat_F`, in its own shape."""
        return flat_F.as_strided(*self._places[number])

    def start_gather(self) -> None:
        """Give `full_F` memory and start to fill it."""
        self._gathered_version = self.version
        if self.is_whole:
            return
        self.full_F.untyped_storage().resize_(self._bytes)
        mine_f = self.shard_f.detach().to(self.full_F.dtype)
        self.axis.agree(f"gather {self.name}")
        self._pending = self.axis.start("all_gather", mine_f, out=self.full_F)

    def finish_gather(self) -> None:
        """Wait until `full_F` is filled; let the leaves want a gradient if the shard does.

        Raises:
            RuntimeError: the shard was frozen when it was made, and now wants one.
        """
        if self._pending is not None:
            self._pending.wait()
            self._pending = None
        if self.leaves[0].requires_grad != self.shard_f.requires_grad:
            if not self._trains:
                raise RuntimeError(
                    f"{self.name} was frozen when FSDP was made and is not now: nothing would "
                    "reduce its gradient; make FSDP first, and freeze the shard after"
                )
            for leaf in self.leaves:
                leaf.requires_grad_(self.shard_f.requires_grad)

    def free(self) -> None:
        """Give the memory of `full_F` back; views of it, autograd's too, must not be read now."""
        if not self.is_whole:
            self.full_F.untyped_storage().resize_(0)

    def _own(self, device: torch.device) -> Tensor:
        """Return this rank's piece [f] of the leaves, as they are or are drawn now."""
        own_f = torch.zeros(self.layout.shard_numel, dtype=self.leaves[0].dtype, device=device)
        for number, start, stop, offset in self.layout.pieces(self.axis.rank):
            own_f[start:stop] = read_elements(self.leaves[number], offset, offset + stop - start)
        return own_f


def _put(leaf: nn.Parameter, view: Tensor) -> None:
    """Make `leaf` a view; one on meta becomes another tensor, with the same marks."""
    if leaf.is_meta:
        real = nn.Parameter(view.new_empty(0), leaf.requires_grad)
        real.__dict__.update({name: mark for name, mark in leaf.__dict__.items() if name != "rows"})
        # Whoever holds the leaf, tied modules too, goes on holding it.
        torch.utils.swap_tensors(leaf, real)  # type: ignore[no-untyped-call]
    leaf.data = view
