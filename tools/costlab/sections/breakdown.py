"""A step taken apart: its matrix products and its collectives, each run alone; or no collectives.

A step is run once under two watchers. One notes every matrix product and attention kernel that
PyTorch dispatches, with the very tensors it got; the other is the ledger. Both lists can then be
run again with nothing in between. What they take alone is not what they take within the step: there
caches are colder, and a collective that crosses beside a product costs less than its time, or,
where cores are few, slows the product down.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from shardlab.comm import Axis, Pending
from shardlab.comm.axis import Kind
from shardlab.proofs.ledger import Entry, Ledger

_PRODUCTS = frozenset({"aten::mm", "aten::addmm", "aten::addmm_", "aten::bmm", "aten::baddbmm"})
_ATTENTION = "aten::_scaled_dot_product"  # forward and backward of every kernel there is


class Products(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes matrix products and attention kernels while it is entered.

    Attributes:
        calls: (operator, its arguments), in order. The arguments are the step's own tensors.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls: list[tuple[Any, tuple[Any, ...], dict[str, Any]]] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Note `func`, and run it."""
        name = func._schema.name
        if name in _PRODUCTS or name.startswith(_ATTENTION):
            self.calls.append((func, args, dict(kwargs or {})))
        return func(*args, **(kwargs or {}))

    def replay(self) -> None:
        """Run all of them again, and nothing else."""
        with torch.no_grad():
            for func, args, kwargs in self.calls:
                func(*args, **kwargs)


def watched(step: Callable[[], object]) -> tuple[Products, list[Entry]]:
    """Run a step once; return its matrix work and its collectives."""
    products = Products()
    with Ledger() as ledger, products:
        step()
    return products, ledger.entries


def replay(
    axis: Axis, entries: Sequence[Entry], device: torch.device, *, elements: int | None = None
) -> Callable[[], None]:
    """Return what runs these collectives again, one after another, each waited for.

    Args:
        axis: over the ranks that the entries name.
        entries: all-reduces, all-gathers and reduce-scatters.
        device: where their tensors lie.
        elements: how many elements each rank brings a peer, instead of as many as there were: 1 is
            a message of 4 bytes in fp32, that costs latency and hardly anything else.

    Raises:
        ValueError: an entry is none of those.
    """
    calls = [_call(axis, entry, device, elements) for entry in entries]

    def again() -> None:
        for call in calls:
            call()

    return again


def _call(
    axis: Axis, entry: Entry, device: torch.device, elements: int | None
) -> Callable[[], object]:
    count = entry.payload // entry.dtype.itemsize  # all ranks' together, but of an all-reduce
    if entry.op == "all_reduce":
        x = torch.zeros(elements or count, dtype=entry.dtype, device=device)
        return lambda: axis.all_reduce(x, out=x)
    part = elements or count // axis.size
    whole = torch.zeros(part * axis.size, dtype=entry.dtype, device=device)
    shard = torch.zeros(part, dtype=entry.dtype, device=device)
    if entry.op == "all_gather":
        return lambda: axis.all_gather(shard, out=whole)
    if entry.op == "reduce_scatter":
        return lambda: axis.reduce_scatter(whole, out=shard)
    raise ValueError(
        f"a {entry.op} can't be run alone here: all_reduce, all_gather and reduce_scatter can"
    )


class SilentAxis(Axis):
    """Rank `rank` of `size`, alone: what a step costs when communication is free.

    It makes the shapes that the real one makes, by a copy within this rank: a gather is filled with
    this rank's own part, over and over, and a reduction returns this rank's own. The numbers are
    nonsense; the work around them is the same.

    Args:
        size: how many ranks it plays.
        rank: which of them this one is.
    """

    def __init__(self, size: int, rank: int) -> None:
        super().__init__(None, "silent", tuple(range(size)), "torch")
        self.rank = rank

    def start(self, kind: Kind, x: Tensor, *, out: Tensor | None = None, **_: Any) -> Pending:
        """Make the result of this rank's own."""
        out = x.new_empty(self._shape(kind, x)) if out is None else out
        if kind == "all_gather":
            out.view(self.size, *x.shape).copy_(x)
        elif kind == "reduce_scatter":
            out.copy_(x.view(self.size, -1)[self.rank].view(out.shape))
        else:
            out.copy_(x)
        return Pending(out)
