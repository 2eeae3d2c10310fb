"""What a sharded step holds in memory: counted as it runs, and by arithmetic.

With P parameters in fp32 and AdamW, a replica keeps 16·P bytes: parameter, gradient and two
moments; FSDP over n ranks keeps 16·P/n. On top of it FSDP has the parameters that are whole at the
moment: the root's, the running unit's and one fetched ahead. The most is alive either when backward
begins, with every activation and as yet no gradient, or when it ends, the other way round.

`largest` is the largest model that a card holds, replicated, and sharded over n. The models are a
family: blocks of 12·H² parameters, one for each 128 of the hidden size H, as in GPT-3's larger
ones, and a vocabulary of 51,200. Their state in fp32 under AdamW, and what is whole at the moment,
have to fit; activations come on top, and depend on the batch.
"""

import gc
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

from costlab.implementations.fsdp import Training, Wrap
from costlab.record.names import Name
from costlab.record.result import Metric
from costlab.sections.metrics import derived
from shardlab.comm import World

FP32 = 4
WARMING = 64  # hidden size of a model that only warms the device up


@dataclass(frozen=True)
class Footprint:
    """Bytes on one rank.

    Attributes:
        peak: the most at any moment of a step.
        state: after backward: parameters, gradients, moments, and buckets where there are some.
        activations: what forward left alive for backward, but for parameters.
    """

    peak: int
    state: int
    activations: int


@dataclass(frozen=True)
class Model:
    """What the arithmetic needs of a model.

    Attributes:
        parameters: of all of it.
        root: of what is in no block.
        block: of one block.
    """

    parameters: int
    root: int
    block: int


class LiveBytes(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """How many bytes of tensors this process holds: CUDA's allocator can say so, the CPU's can't.

    Every storage that an operator returns while this is entered is followed until it is freed; it
    may be entered again. What a kernel allocates for itself, and gloo's buffers, are not seen.

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


def measured(world: World, wrap: Wrap, hidden: int) -> Footprint:
    """A second step's footprint, AdamW's moments being there; on CUDA its allocator's.

    What lies in reference cycles until the collector comes by is no state, and is collected first.
    """
    if world.device.type == "cuda":
        # cuBLAS keeps a workspace from its first product on: it is no state of the model's.
        Training(world, wrap, WARMING).step()
    live = Allocated(world.device) if world.device.type == "cuda" else LiveBytes()
    with live:
        training = Training(world, wrap, hidden)
        training.step()
        before = _settled(live)
        live.reset()
        loss = training.loss()
        activations = live.now - before
        loss.backward()  # type: ignore[no-untyped-call]
        state = _settled(live)
        training.finish()
        return Footprint(live.peak, state, activations)


class Allocated:
    """What CUDA's allocator has given since this was made, as LiveBytes says it of the CPU."""

    def __init__(self, device: torch.device) -> None:
        self._device, self._before = device, torch.cuda.memory_allocated(device)

    def __enter__(self) -> None:
        """Nothing: the allocator always counts."""

    def __exit__(self, *_: object) -> None:
        """Nothing."""

    @property
    def now(self) -> int:
        """Bytes held at this moment."""
        return torch.cuda.memory_allocated(self._device) - self._before

    @property
    def peak(self) -> int:
        """The most since `reset`."""
        return torch.cuda.max_memory_allocated(self._device) - self._before

    def reset(self) -> None:
        """Measure a new peak from here on."""
        torch.cuda.reset_peak_memory_stats(self._device)


def _settled(live: LiveBytes | Allocated) -> int:
    """Return the bytes that stay: gloo's threads let go of what they sent after its wait."""
    gc.collect()
    least = live.now
    for _ in range(50):
        time.sleep(0.002)
        least = min(least, live.now)
    return least


def sharded(model: Model, ranks: int) -> int:
    """Bytes of state on each rank of FSDP; over one, those of a replica, DDP's buckets apart."""
    return 4 * FP32 * model.parameters // ranks


def sharded_peak(model: Model, ranks: int, activations: int) -> int:
    """The most that FSDP holds in a step that leaves `activations` bytes for its backward."""
    whole = FP32 * (model.root + 2 * model.block)
    begins = sharded(model, ranks) * 3 // 4 + whole + activations
    reducing = FP32 * (model.root + model.block)
    ends = sharded(model, ranks) + whole + reducing
    return max(begins, ends)


CARDS = {"24GiB": 24 << 30, "80GiB": 80 << 30}
RANKS = 8
VOCAB = 51_200
STEP = 128


def family(hidden: int) -> Model:
    """The model of one hidden size."""
    layers, block, root = hidden // STEP, 12 * hidden * hidden, VOCAB * hidden
    return Model(layers * block + root, root, block)


def largest(fits: Callable[[Model], bool]) -> Model:
    """The largest of the family that fits; no parameters at all if none does."""
    best, hidden = Model(0, 0, 0), STEP
    while fits(model := family(hidden)):
        best, hidden = model, hidden + STEP
    return best


def largest_models() -> Iterator[Metric]:
    """`fsdp.largest.replicated.80GiB`, `fsdp.largest.sharded-8.80GiB` …: parameters."""
    for card, size in CARDS.items():
        ways: dict[str, Callable[[Model], int]] = {
            "replicated": lambda model: sharded(model, 1),
            f"sharded-{RANKS}": lambda model: sharded_peak(model, RANKS, 0),
        }
        for name, bytes_of in ways.items():
            model = largest(lambda model, measure=bytes_of, size=size: measure(model) <= size)  # type: ignore[misc]
            yield derived(
                Name("fsdp", "largest", of=name, card=card), model.parameters, "parameters",
                "modelled", bytes=bytes_of(model), without="activations",
            )  # fmt: skip
