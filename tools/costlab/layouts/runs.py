"""A run of training: model, machine, plan and stack; and the runs that others published."""

from __future__ import annotations

import csv
import tomllib
from pathlib import Path
from typing import Any

import msgspec

PUBLISHED = Path(__file__).with_name("published.csv")
SOURCES = Path(__file__).with_name("sources.toml")
MOST = 10**9  # of a count in a run; more is a typing error
REQUIRED = ("ranks", "layers", "hidden", "ffn", "heads", "vocabulary", "sequence", "global_batch")
COUNTS = (*REQUIRED, "kv_heads", "tensor", "stages", "chunks", "context", "micro_batch")
RECOMPUTE = ("none", "selective", "full")
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
        ffn: width of the feed-forward layer; with `gated` it has two products into that width.
        kv_heads: heads of keys and values.
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


def check(run: Run) -> None:
    """Raise ValueError, one sentence, for a run that can't be or that nothing here knows."""
    for name in COUNTS:
        value = getattr(run, name)
        if not 0 < value < MOST:
            raise ValueError(f"{_flag(name)} is {value}; it must be from 1 to {MOST - 1:,}")
    if not 0 <= run.zero <= 3 or run.network < 0 or run.head_size < 0:
        raise ValueError("--zero must be 0, 1, 2 or 3; --network and --head-size not negative")
    for name, choices in (("card", CARDS), ("stack", STACKS), ("recompute", RECOMPUTE),
                          ("dtype", BITS)):  # fmt: skip
        if getattr(run, name) not in choices:
            known = ", ".join(choices)
            raise ValueError(f"{_flag(name)} {getattr(run, name)!r} is unknown; choose {known}")
    if BITS[run.dtype] not in CARDS[run.card].flops:
        raise ValueError(f"{run.card} has no {run.dtype}: its data sheet names no such rate")
    if run.experts:
        raise ValueError("the model has experts; step times are fitted for dense models only")
    grid = run.tensor * run.stages * run.context
    share = f"tensor x stages x context = {grid}"
    if run.ranks % grid:
        raise ValueError(f"{share} does not divide {run.ranks} ranks")
    if run.global_batch % (run.data * run.micro_batch):
        raise ValueError(
            f"a batch of {run.global_batch} is not a whole number of micro-batches: {run.data} "
            f"data-parallel ranks x {run.micro_batch} sequences"
        )
    if run.heads % run.tensor or run.heads % run.kv_heads:
        raise ValueError(f"--tensor {run.tensor} and --kv-heads {run.kv_heads} must divide "
                         f"{run.heads} heads")  # fmt: skip
    if run.stages * run.chunks > run.layers + 2:  # some stacks count embedding and head, too
        raise ValueError(f"{run.stages} stages x {run.chunks} chunks are more than "
                         f"{run.layers} layers")  # fmt: skip
    if run.sequence % run.context:
        raise ValueError(f"--context {run.context} does not divide {run.sequence} tokens")


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def read_config(path: Path) -> dict[str, Any]:
    """Return a model from its config.json, by the names of Run.

    Raises:
        ValueError: the file is no such config, or its kind of model is unknown.
    """
    try:
        config = msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
    except msgspec.MsgspecError as fault:
        raise ValueError(f"{path}: this is no config.json: {fault}") from None
    model = {}
    for name, theirs in FACTS["config"].items():
        value = next((config[key] for key in theirs if config.get(key) is not None), None)
        if value is None:
            continue
        if not isinstance(value, int) or isinstance(value, bool):
            raise ValueError(f"{path}: {theirs[0]} must be a whole number, not {value!r}")
        model[name] = value
    kind, gated = str(config.get("model_type")), FACTS["gated"]
    if kind not in gated and not model.get("experts"):
        raise ValueError(f"{path}: the model_type {kind!r} is unknown; name its sizes as options")
    model["gated"] = gated.get(kind, True)
    if "hidden" in model:
        model.setdefault("ffn", 4 * model["hidden"])
    return model


def published() -> list[Run]:
    """Return all published runs, as their tables have them; those out of memory, too."""
    with PUBLISHED.open(encoding="utf-8", newline="") as file:
        rows = [{name: text for name, text in row.items() if text} for row in csv.DictReader(file)]
    return msgspec.convert(rows, list[Run], strict=False)


def timed() -> list[Run]:
    """Return the published runs that a step time can be predicted for."""
    return [run for run in published() if run.outcome == "ran" and not run.experts]


def sources() -> dict[str, dict[str, Any]]:
    """Return where each source was published."""
    return tomllib.loads(SOURCES.read_text("utf-8"))
