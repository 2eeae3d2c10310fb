"""Replicas and stages counted: DDP's buckets, a pipeline's messages.

And Megatron's datasets, built by two ranks: who has them in the end, and who waits for whom.
"""

import errno
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from costlab.implementations import tutor
from costlab.record.result import Metric
from costlab.sections.metrics import counted
from shardlab.comm import Axis, World
from shardlab.gpt.block import Block
from shardlab.gpt.config import GPTConfig
from shardlab.gpt.model import GPT
from shardlab.pipeline.run import run
from shardlab.pipeline.schedule import by_name
from shardlab.proofs.ledger import Ledger

WIDTH, DEPTH = 32, 4
DOCUMENTS = [49, 50]  # tokens of each


def replicas(world: World) -> Iterator[Metric]:
    """PyTorch's own DDP, in its third step, when its buckets are settled: a model a size."""
    tokens, _ = tutor.batch(torch.device("cpu"))
    model = GPT(tutor.config(), tensor=Axis.alone())
    narrow = nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(DEPTH)))
    modules: list[tuple[str, nn.Module, Tensor]] = [
        ("tutor", model, tokens), ("narrow", narrow, torch.ones(2, WIDTH)),
    ]  # fmt: skip
    for name, module, x in modules:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # deprecations, of torch in torch
            wrapped = DistributedDataParallel(module)
        for _ in range(3):
            with Ledger() as ledger:
                wrapped(x).sum().backward()
        reduced = ledger.total("all_reduce")
        yield counted(f"ddp.{name}.all_reduce", reduced.count, bytes=reduced.payload)


def pipeline(world: World) -> Iterator[Metric]:
    """A message between two stages beside a tensor all-reduce, of the same micro-batch."""
    sequence, batch, hidden, microbatches = 8, 2, 16, 4
    config = GPTConfig(layers=2, hidden=hidden, heads=4, vocab=32, sequence=sequence)
    x = torch.ones(sequence, batch, hidden)
    stage = Block(config, "block", axis=Axis.alone())
    with Ledger() as piped:
        run(
            by_name("1f1b", world.size, microbatches), stage, [(x, x)] * microbatches,
            lambda y, _: y.square().mean(), axis=world.axis("pipeline", range(world.size)),
            shape=x.shape,
        )  # fmt: skip
    with Ledger() as tensor:
        Block(config, "block", axis=world.whole)(x.clone().requires_grad_()).sum().backward()
    sent, reduced = piped.total("send"), tensor.total("all_reduce")
    message = sent.payload / sent.count
    yield counted("pipeline.message", message, "B")
    yield counted("tensor.all-reduce", reduced.payload / reduced.count, "B")
    each = message / (reduced.payload / reduced.count)
    yield counted("pp-vs-tp.payload-ratio", each, "ratio")
    # A stage sends as much however many layers it has; a layer's all-reduces come again in each.
    step = sent.wire / (reduced.wire * microbatches)
    yield counted("pp-vs-tp.wire-ratio-a-layer", step, "ratio")


def datasets(world: World) -> Iterator[Metric]:
    """Ranks that have their samples, and barriers that one entered and the other did not.

    Nothing where its C++ isn't installed, which its wheel has for some Pythons only.
    """
    try:
        from costlab.implementations.megatron import datasets as core
    except ImportError:
        return

    class Full(core.GPTDataset):  # type: ignore[misc]
        """One whose first rank finds the disk full."""

        def __init__(self, *arguments: Any) -> None:
            if world.rank == 0:
                raise OSError(errno.ENOSPC, "No space left on device")
            super().__init__(*arguments)

    for name, kind, shared in (
        ("one-disk", core.GPTDataset, True), ("two-disks", core.GPTDataset, False),
        ("full-disk", Full, True),
    ):  # fmt: skip
        with TemporaryDirectory() as folder:
            disk = [folder]
            if shared:
                dist.broadcast_object_list(disk)
            corpus = Path(disk[0], "corpus")
            if world.rank == 0 or not shared:
                core.written(corpus, DOCUMENTS)
            settings = core.config(
                4, split="1", blend=([str(corpus)], None), path_to_cache=f"{disk[0]}/cache"
            )
            world.whole.barrier()
            done, entered = _built(
                lambda kind=kind, settings=settings: core.BlendedMegatronDatasetBuilder(  # type: ignore[misc]
                    kind, [8, 0, 0], lambda: True, settings
                ).build()
            )
            world.whole.barrier()
        both = world.whole.all_gather(torch.tensor([[int(done), entered]]))
        yield counted(f"datasets-megatron.{name}.ranks-done", int(both[:, 0].sum()))
        difference = int(both[:, 1].max() - both[:, 1].min())
        yield counted(f"datasets-megatron.{name}.barriers-apart", difference)


def _built(build: Callable[[], object]) -> tuple[bool, int]:
    """Build as a training script does: whether it came to an end, and how many barriers it met."""
    done = True
    with Ledger() as ledger:
        try:
            build()
        except Exception:  # whatever it says, this rank is without samples
            done = False
    entered = len(ledger.select("barrier"))
    if not done and not entered:
        dist.barrier()  # the one in which the others stand
    return done, entered
