"""A model and a plan of training: what memory is computed from.

Both know nothing of torch. Each refuses impossible sizes when it is made; `check` refuses a plan
that cannot cut its model.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import lru_cache, partial
from itertools import accumulate, pairwise

from shardlab.grid import rules

RECOMPUTE = ("none", "selective", "alternate", "full")
ATTENTION = ("fused", "unfused")
LARGEST = {"layers": 10_000, "hidden": 1 << 20, "vocabulary": 1 << 24, "sequence": 1 << 27}
LARGEST_COUNT = 1 << 24  # of anything else
MAY_BE_0 = ("kv_heads", "head_size", "ffn", "experts", "expert_ffn", "shared_ffn", "dense_layers",
            "positions", "zero", "recompute_layers", "optimizer", "loss_copies")  # fmt: skip


class LayoutError(ValueError):
    """A model or plan is impossible; the message says what to change."""


refuse = partial(rules.refuse, error=LayoutError)


def limits(name: str) -> tuple[int, int]:
    """Return the least and the largest whole number that a setting of a model or plan may be."""
    return int(name not in MAY_BE_0), LARGEST.get(name, LARGEST_COUNT)


def _check_counts(settings: object) -> None:
    for field in fields(settings):  # type: ignore[arg-type]
        value, name = getattr(settings, field.name), field.name
        if isinstance(value, bool) or not isinstance(value, int):
            continue
        least, largest = limits(name)
        option = name.replace("_", "-")
        refuse(
            (value < least, f"{option} = {value}: choose a whole number from {least}"),
            (value > largest, f"{option} = {value:,}: at most {largest:,} are supported"),
        )


@dataclass(frozen=True, kw_only=True)
class Model:
    """A decoder-only transformer, as GPT-2, Llama, Qwen or Mixtral.

    Attributes:
        layers: blocks.
        hidden: the width between blocks.
        heads: attention heads.
        kv_heads: groups of keys and values; 0 for one a head.
        head_size: columns of a head; 0 for hidden / heads.
        ffn: width of the feed-forward network; 0 for 4 · hidden.
        vocabulary: words, before padding.
        gated: the feed-forward network, and each expert, has a gate.
        tied: the head uses the word embedding's weight.
        experts: experts of a layer of experts; 0 for a dense model.
        top_k: experts that a token visits.
        expert_ffn: width of an expert; 0 for `ffn`.
        shared_ffn: width of the experts that every token visits, together; 0 for none.
        shared_gate: a linear of width 1 weighs what the shared experts return.
        dense_layers: layers from the first on that have the dense network instead of experts.
        positions: learned positions; 0 for rotary or none.
        norm: "layer", with a bias, or "rms".
        bias: linears have one.
        qkv_bias: the linear of queries, keys and values has one, whatever `bias` says.
        qk_norm: a norm of head_size each for queries and keys.
        embedding_norm: a norm follows the embedding, as in BLOOM.
        dropout: masks are kept.

    """

    layers: int
    hidden: int
    heads: int
    vocabulary: int
    kv_heads: int = 0
    head_size: int = 0
    ffn: int = 0
    gated: bool = False
    tied: bool = True
    experts: int = 0
    top_k: int = 2
    expert_ffn: int = 0
    shared_ffn: int = 0
    shared_gate: bool = False
    dense_layers: int = 0
    positions: int = 0
    norm: str = "layer"
    bias: bool = True
    qkv_bias: bool = False
    qk_norm: bool = False
    embedding_norm: bool = False
    dropout: bool = False

    def __post_init__(self) -> None:
        """Fill in what is left to its default, and refuse impossible sizes."""
        _check_counts(self)
        refuse(
            (not self.head_size and self.hidden % self.heads,
             f"{self.heads} heads do not divide hidden = {self.hidden}; choose heads that do, or "
             "name head-size"),
            (self.heads % (self.kv_heads or self.heads),
             f"kv-heads = {self.kv_heads} does not divide {self.heads} heads"),
            (self.experts and self.top_k > self.experts,
             f"top-k = {self.top_k} of {self.experts} experts: choose at most {self.experts}"),
            (self.dense_layers > self.layers,
             f"dense-layers = {self.dense_layers} of {self.layers} layers"),
            (self.norm not in ("layer", "rms"), f"norm = {self.norm!r}: choose layer or rms"),
        )  # fmt: skip
        defaults = {"kv_heads": self.heads, "head_size": self.hidden // self.heads,
                    "ffn": 4 * self.hidden}  # fmt: skip
        for name, value in defaults.items():
            object.__setattr__(self, name, getattr(self, name) or value)
        object.__setattr__(self, "expert_ffn", self.expert_ffn or self.ffn)

    @property
    def query(self) -> int:
        """Columns of all queries."""
        return self.heads * self.head_size

    @property
    def key(self) -> int:
        """Columns of all keys, and as many of values."""
        return self.kv_heads * self.head_size

    def has_experts(self, layer: int) -> bool:
        """Whether a layer, counted from 0, has experts instead of the dense network."""
        return bool(self.experts) and layer >= self.dense_layers


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How a model is trained.

    Attributes:
        tensor, stages, data, context: ranks along these axes; their product is the world.
        chunks: pieces of a stage, interleaved ("virtual stages"); 1 is plain 1F1B.
        expert: ranks that share a layer's experts; expert_tensor: that share each expert; their
            product divides tensor × context × data.
        sequence_parallel: the tensor ranks share the tokens between linears.
        micro_batch: sequences of a micro-batch on a data rank.
        sequence: tokens of a sequence.
        global_batch: sequences of a step, on all data ranks.
        recompute: one of `RECOMPUTE`; "selective" runs the core of attention again, "alternate"
            every second product too, as torchtitan's selective option does.
        recompute_layers: with "full", layers of a stage that are recomputed; 0 for all.
        attention: "fused" keeps queries, keys, values, output and a sum for each row; "unfused"
            keeps the scores.
        zero: sharded over data × context: 1 the optimizer's state, 2 gradients too, 3 weights too.
        activation, weight, gradient, optimizer: bytes of an element; a parameter's optimizer
            state, master weight among it.
        logits: bytes of an element of the logits that the loss keeps.
        layers: layers of each piece of a stage, in the model's order; () for equal pieces.
        pad: the vocabulary is padded to a multiple of pad × tensor.
        gathered: bytes of an element of a weight that FSDP has gathered.
        loss_copies: copies as wide as the logits that the loss has in addition to those it keeps:
            0 compiled, 1 fused, 2 eager.
        compiled: a compiler drops what a recomputed layer would keep without needing it.
        whole_logits: the loss gathers the logits of all tensor ranks.
        gathered_inputs: under sequence parallelism, linears keep their gathered input.
        unfused_norms: a norm keeps its rows in fp32, and those that its weight scales.

    """

    tensor: int = 1
    stages: int = 1
    data: int = 1
    context: int = 1
    chunks: int = 1
    expert: int = 1
    expert_tensor: int = 1
    sequence_parallel: bool = False
    micro_batch: int = 1
    sequence: int = 2048
    global_batch: int = 1
    recompute: str = "none"
    recompute_layers: int = 0
    attention: str = "fused"
    zero: int = 0
    activation: int = 2
    weight: int = 2
    gradient: int = 4
    optimizer: int = 12
    logits: int = 4
    layers: tuple[int, ...] = ()
    pad: int = 1
    gathered: int = 2
    loss_copies: int = 1
    compiled: bool = False
    whole_logits: bool = False
    gathered_inputs: bool = False
    unfused_norms: bool = False

    def __post_init__(self) -> None:
        """Refuse impossible sizes."""
        _check_counts(self)
        share = self.tensor * self.context * self.data
        experts, samples = self.expert * self.expert_tensor, self.micro_batch * self.data
        refuse(
            (self.zero > 3, f"zero = {self.zero}: choose 0, 1, 2 or 3"),
            (self.recompute not in RECOMPUTE,
             f"recompute = {self.recompute!r}: choose {', '.join(RECOMPUTE)}"),
            (self.attention not in ATTENTION,
             f"attention = {self.attention!r}: choose {' or '.join(ATTENTION)}"),
            (share % experts,
             f"expert × expert-tensor = {experts} ranks do not divide tensor × context × data = "
             f"{share}"),
            (self.global_batch % samples,
             f"micro-batch × data = {samples} sequences do not divide a global batch of "
             f"{self.global_batch}"),
            (self.sequence % (2 * self.context) and self.context > 1,
             f"2 × context = {2 * self.context} does not divide a sequence of {self.sequence}"),
            (self.sequence_parallel and self.sequence // self.context % self.tensor,
             f"tensor = {self.tensor} does not divide the {self.sequence // self.context} tokens "
             "of a context rank, which sequence parallelism cuts"),
            (self.chunks > 1 and self.stages == 1,
             f"chunks = {self.chunks} need two stages or more"),
        )  # fmt: skip

    @property
    def ranks(self) -> int:
        """Cards of the whole run."""
        return self.tensor * self.stages * self.data * self.context

    @property
    def micro_batches(self) -> int:
        """Micro-batches of a step, on each data rank."""
        return self.global_batch // (self.micro_batch * self.data)

    def changed(self, **settings: object) -> Plan:
        """Return the plan with other settings; raises LayoutError if they are impossible."""
        return replace(self, **settings)  # type: ignore[arg-type]


def data_ranks(ranks: int, tensor: int, stages: int, context: int) -> int:
    """Return the data-parallel ranks; raises LayoutError if the other axes don't divide all."""
    axes = {"ranks": ranks, "tensor": tensor, "stages": stages, "context": context}
    refuse(*((size < 1, f"{axis} = {size}: choose a whole number from 1")
             for axis, size in axes.items()))  # fmt: skip
    grid = tensor * stages * context
    refuse((ranks % grid, f"tensor × stages × context = {grid} does not divide {ranks} ranks"))
    return ranks // grid


def pieces_with_ends(layers: int, pieces: int) -> tuple[int, ...]:
    """Return the layers of each piece of a pipeline, if the embedding and the head count as two.

    () if the layers alone can be cut into equal pieces, or if this doesn't cut them either.
    """
    if pieces < 1 or layers % pieces == 0 or (layers + 2) % pieces:
        return ()
    each = (layers + 2) // pieces
    return (each - 1, *(each,) * (pieces - 2), each - 1)


@lru_cache(64)
def layers_of_stages(model: Model, plan: Plan) -> tuple[tuple[tuple[int, ...], ...], ...]:
    """Return the layers of each chunk of each stage, counted from 0."""
    pieces = plan.stages * plan.chunks
    counts = plan.layers or (model.layers // pieces,) * pieces
    bounds = (0, *accumulate(counts))
    layers = [tuple(range(*pair)) for pair in pairwise(bounds)]
    return tuple(tuple(layers[stage :: plan.stages]) for stage in range(plan.stages))


def check(model: Model, plan: Plan) -> None:
    """Refuse a plan that cannot cut this model.

    Raises:
        LayoutError: says which size doesn't divide what.
    """
    pieces, t = plan.stages * plan.chunks, plan.tensor
    refuse(
        (pieces > model.layers,
         f"{pieces} pieces of a pipeline (stages × chunks), but the model has {model.layers} "
         "layers: choose fewer stages"),
        (not plan.layers and model.layers % pieces,
         f"stages × chunks = {pieces} do not divide {model.layers} layers: choose a divisor, or "
         "name the layers of each stage"),
        (plan.layers and (len(plan.layers) != pieces or sum(plan.layers) != model.layers
                          or min(plan.layers) < 1),
         f"layers of stages {','.join(map(str, plan.layers))}: name {pieces} numbers from 1 "
         f"whose sum is {model.layers}"),
        (model.heads % t, f"tensor = {t} does not divide {model.heads} heads"),
        (max(t, model.kv_heads) % min(t, model.kv_heads),
         f"tensor = {t} does not divide {model.kv_heads} groups of keys and values"),
        (model.ffn % t, f"tensor = {t} does not divide the feed-forward width {model.ffn}"),
        (model.experts % plan.expert if model.experts else plan.expert * plan.expert_tensor > 1,
         f"expert = {plan.expert} does not divide {model.experts} experts"),
        (model.experts and model.expert_ffn % plan.expert_tensor,
         f"expert-tensor = {plan.expert_tensor} does not divide an expert's width "
         f"{model.expert_ffn}"),
        (model.shared_ffn % t,
         f"tensor = {t} does not divide the shared experts' width {model.shared_ffn}"),
        (model.positions and plan.sequence > model.positions,
         f"a sequence of {plan.sequence} tokens, but the model has {model.positions} learned "
         "positions"),
        (plan.chunks > 1 and plan.micro_batches % plan.stages,
         f"interleaved chunks need micro-batches ({plan.micro_batches}) that {plan.stages} stages "
         "divide"),
    )  # fmt: skip
