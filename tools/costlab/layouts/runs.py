"""A run of training: model, machine, plan and stack; and the runs that others published."""

from __future__ import annotations

import csv
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

PUBLISHED = Path(__file__).with_name("published.csv")
SOURCES = Path(__file__).with_name("sources.toml")
RECOMPUTE = ("none", "selective", "full")
# The fields of a run that are settings of `Model`, and those of `Plan`.
MODEL = ("layers", "hidden", "ffn", "heads", "kv_heads", "head_size", "vocabulary", "gated",
         "experts", "top_k")  # fmt: skip
LAYOUT = ("tensor", "stages", "chunks", "context", "expert", "zero", "micro_batch", "recompute")
BITS = {"fp16": 16, "bf16": 16, "fp8": 8, "mxfp8": 8, "nvfp4": 4}


class Card(msgspec.Struct, frozen=True):
    """What a data sheet says of a card.

    Args:
        family: cards of one family share the factors that are fitted.
        flops: dense operations a second by the bits of an operand, in 10¹².
        memory: bytes a second of its memory, in 10⁹.
        link: bytes a second in each direction to cards of its NVLink domain, in 10⁹.
        domain: cards that NVLink connects.
        network: Gbit a second and card that leave the domain, where a run names no other number.
        gb: its memory, in 10⁹ bytes.
    """

    family: str
    flops: dict[int, float]
    memory: float
    link: float
    domain: int
    network: float
    gb: float


class Stack(msgspec.Struct, frozen=True):
    """What a program does, as far as it changes the time of a step.

    Args:
        attention: flash, cudnn, softmax (scores in memory, one fused softmax) or eager.
        fused: pointwise operations are fused, by hand or by a compiler.
        overlap: the traffic of data parallelism runs behind computation.
        sequence_parallel: norms and dropouts are cut over the tensor axis.
        eager_host: Python launches each kernel; else fused kernels or graphs.
        blocking: each launch waits for its kernel (CUDA_LAUNCH_BLOCKING=1).
        async_tensor: tensor-parallel traffic overlaps the products.
        scatter: a stage sends each tensor rank's part alone to the next stage.
    """

    attention: str
    fused: bool = False
    overlap: bool = False
    sequence_parallel: bool = False
    eager_host: bool = True
    blocking: bool = False
    async_tensor: bool = False
    scatter: bool = False


FACTS = tomllib.loads(Path(__file__).with_name("facts.toml").read_text("utf-8"))
CARDS = msgspec.convert(FACTS["cards"], dict[str, Card], strict=False)
STACKS = msgspec.convert(FACTS["stacks"], dict[str, Stack])


class Run(msgspec.Struct, kw_only=True):
    """One run: a model, a machine, a plan, a stack; with its time where it was measured.

    Args:
        network: Gbit a second and card; 0 is the card's own.
        ffn: width of the feed-forward layer, or of an expert; with `gated` it has two products into
            that width.
        kv_heads: heads of keys and values.
        experts: of each layer; top_k: that a token visits; expert: ranks that share them.
        zero: what data-parallel ranks cut: 0 nothing, 1 optimizer, 2 and gradients, 3 all.
        global_batch: sequences of a step, over all ranks.
    """

    card: str
    ranks: int
    layers: int
    hidden: int
    ffn: int
    heads: int
    kv_heads: int
    vocabulary: int
    sequence: int
    global_batch: int
    stack: str
    network: float = 0
    head_size: int = 0
    gated: bool = False
    experts: int = 0
    top_k: int = 0
    expert: int = 1
    tensor: int = 1
    stages: int = 1
    chunks: int = 1
    context: int = 1
    zero: int = 1
    micro_batch: int = 1
    recompute: str = "none"
    dtype: str = "bf16"
    seconds: float = 0
    gb: float = 0
    outcome: str = "ran"
    model: str = ""
    source: str = ""
    place: str = ""

    @property
    def data(self) -> int:
        """Data-parallel ranks."""
        return self.ranks // (self.tensor * self.stages * self.context)

    @property
    def micro_batches(self) -> int:
        """Micro-batches of a rank in a step."""
        return self.global_batch // (self.data * self.micro_batch)


def published() -> list[Run]:
    """Return all published runs, as their tables have them; those out of memory, too."""
    with PUBLISHED.open(encoding="utf-8", newline="") as file:
        rows = [{name: text for name, text in row.items() if text} for row in csv.DictReader(file)]
    return msgspec.convert(rows, list[Run], strict=False)


def timed(experts: bool = False) -> list[Run]:
    """Return the runs that are fitted, of dense models or of models with experts."""
    ran = [run for run in published() if run.outcome == "ran" and bool(run.experts) == experts]
    return [run for run in ran if "unseen" not in sources()[run.source]]


def unseen() -> list[Run]:
    """Return the published runs that no fit has seen."""
    return [run for run in published() if "unseen" in sources()[run.source]]


@cache
def sources() -> dict[str, dict[str, Any]]:
    """Return where each source was published."""
    return tomllib.loads(SOURCES.read_text("utf-8"))
