"""The memory of a rank of the first pipeline stage: weights, gradients, optimizer, activations.

Activations follow Korthikanti et al. (arXiv 2205.05198, section 4, table 2), tensor by tensor, for
the first stage of 1F1B, which holds most of them. State follows ZeRO (arXiv 1910.02054, section
3.1). Every term is a monomial in the letters below, so that a page can show each term, and its
script can insert other numbers.

Letters: l layers of a stage, h hidden, a heads, s sequence, b micro-batch, v vocabulary, e experts
of a layer, k of them a token; of a Llama also f, the width of the feed-forward network, g, the
columns of the keys, and d, those of a head.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import NamedTuple

RECOMPUTE = ("none", "selective", "full")
MASK, FULL = 1, 4  # bytes of an element, whatever the recipe


class Recipe(NamedTuple):
    """Bytes of an element of activations, and of a parameter's weight, gradient, optimizer."""

    activation: int
    weight: int
    gradient: int
    optimizer: int


RECIPES = {
    "bf16": Recipe(2, 2, 4, 12),  # Megatron's: gradients summed in fp32, master weights, moments
    "fp32": Recipe(4, 4, 4, 8),
}


class Term(NamedTuple):
    """Elements of one kind: `number` times the product of the dimensions in `of`.

    Attributes:
        key: the term's name, which pages translate.
        number: the factor of the product.
        of: the letters of the product, such as "sbh".
        cut: whether the tensor ranks share it: "always", with "sequence" parallelism only, or
            "never"; or "expert" if the expert ranks do.
        width: bytes of an element; 0 for the recipe's.

    """

    key: str
    number: int
    of: str
    cut: str = "always"
    width: int = 0


# The terms of a layer, in the order of its forward. Selective recomputation recomputes CORE.
ATTENTION = (
    Term("norm-inputs", 2, "sbh", "sequence"),
    Term("qkv-input", 1, "sbh", "sequence"),
    Term("query-key", 2, "sbh"),
    Term("value", 1, "sbh"),
    Term("projection-input", 1, "sbh"),
    Term("attention-mask", 1, "sbh", "sequence", MASK),
)
DENSE = (
    Term("fc1-input", 1, "sbh", "sequence"),
    Term("gelu-input", 4, "sbh"),
    Term("fc2-input", 4, "sbh"),
    Term("mlp-mask", 1, "sbh", "sequence", MASK),
)
LAYER = (*ATTENTION, *DENSE)
# Instead of DENSE: the rows of a rank's experts under an even load, each expert 4h wide.
EXPERTS = (
    Term("router-input", 1, "sbh", "sequence", FULL),
    Term("expert-rows", 1, "ksbh", "sequence"),
    Term("expert-gelu-input", 4, "ksbh", "sequence"),
    Term("expert-gelu", 4, "ksbh", "sequence"),
    Term("expert-fc2-input", 4, "ksbh", "sequence"),
    Term("mlp-mask", 1, "sbh", "sequence", MASK),
)
CORE = (
    Term("softmax", 1, "assb"),
    Term("softmax-mask", 1, "assb", width=MASK),
    Term("softmax-dropped", 1, "assb"),
)
CHECKPOINT = Term("layer-inputs", 1, "sbh", "sequence")
# Once a micro-batch, not once a layer: FIRST after the embedding; LAST if there is one stage only.
FIRST = (Term("embedding-mask", 1, "sbh", "sequence", MASK),)
LAST = (
    Term("final-norm-input", 1, "sbh", "sequence"),
    Term("head-input", 1, "sbh", "sequence"),
    Term("logits", 1, "sbv", width=FULL),
)
PARAMETERS = (
    Term("attention-weights", 4, "lhh"),
    Term("attention-cut-biases", 3, "lh"),
    Term("attention-whole", 5, "lh", "never"),
    Term("word-embedding", 1, "vh"),
    Term("positions", 1, "sh", "never"),
)
DENSE_PARAMETERS = (
    Term("feed-forward-weights", 8, "lhh"),
    Term("feed-forward-cut-bias", 4, "lh"),
    Term("feed-forward-whole", 1, "lh", "never"),
)
EXPERT_PARAMETERS = (
    Term("router", 1, "elh", "never"),
    Term("router-bias", 1, "el", "never"),
    Term("expert-weights", 8, "elhh", "expert"),
    Term("expert-biases", 5, "elh", "expert"),
)
# A Llama's layer, without dropout. A norm's input and its statistics are kept, no mask.
LLAMA_ATTENTION = (
    Term("norm-inputs", 2, "sbh", "sequence"),
    Term("qkv-input", 1, "sbh", "sequence"),
    Term("query", 1, "sbh"),
    Term("key-value", 2, "sbg"),
    Term("rope-table", 1, "sd", "never"),
    Term("projection-input", 1, "sbh"),
)
GATED = (
    Term("fc1-input", 1, "sbh", "sequence"),
    Term("gate-and-up", 2, "sbf"),
    Term("silu-of-gate", 1, "sbf"),
    Term("fc2-input", 1, "sbf"),
)
LLAMA_CORE = (Term("softmax", 1, "assb"),)
LLAMA_PARAMETERS = (
    Term("attention-weights", 2, "lhh"),
    Term("key-value-weights", 2, "lgh"),
    Term("norms", 2, "lh", "never"),
    Term("word-embedding", 1, "vh"),
    Term("feed-forward-weights", 3, "lfh"),
)
LLAMA_LAST = (Term("final-norm", 1, "h", "never"), Term("head", 1, "vh"))
FINAL_NORM = Term("final-norm", 2, "h", "never")


@dataclass(frozen=True, kw_only=True)
class Model:
    """A GPT with a feed-forward of 4h, learned positions and a tied head.

    With `experts` above 0, each layer has so many experts of width 4h instead of the feed-forward.
    With `ffn` it is a Llama instead: a gated feed-forward of that width, `groups` of keys and
    values, rotary positions, RMS norms, no biases, an untied head and no dropout.
    """

    layers: int
    hidden: int
    heads: int
    sequence: int
    vocabulary: int
    experts: int = 0
    top_k: int = 2
    ffn: int = 0
    groups: int = 0


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How the model is trained: the grid, the micro-batches, and what saves memory.

    Attributes:
        micro_batch: sequences of a micro-batch.
        micro_batches: micro-batches of a step; see `live_micro_batches`.
        chunks: chunks of a stage, interleaved; 1 is plain 1F1B.
        context: ranks that share each sequence; they share every activation and no parameter.
        expert: ranks that share a layer's experts, out of tensor × context × data. Each expert is
            whole on its rank, as shardlab requires with biases.
        zero: 1 shards the optimizer's state over data × context, and an expert's state over the
            ranks that hold that expert; 2 shards gradients too, 3 weights too.
        recompute: one of `RECOMPUTE`.
        recipe: one of `RECIPES`.

    """

    tensor: int = 1
    stages: int = 1
    data: int = 1
    micro_batch: int = 1
    micro_batches: int = 1
    chunks: int = 1
    context: int = 1
    expert: int = 1
    sequence_parallel: bool = False
    recompute: str = "none"
    zero: int = 0
    recipe: str = "bf16"


class MemoryLine(NamedTuple):
    """One line of the account: the kind of memory, the term's key, and its bytes on a rank."""

    kind: str
    key: str
    bytes: float


def account(model: Model, plan: Plan) -> list[MemoryLine]:
    """Return all lines of the memory that a rank of the first stage holds."""
    return [*_state(model, plan), *_activations(model, plan)]


def total(model: Model, plan: Plan, kind: str | None = None) -> float:
    """Return the bytes of one kind, or of all."""
    return sum(line.bytes for line in account(model, plan) if kind in (None, line.kind))


def _letters(model: Model, plan: Plan) -> Mapping[str, float]:
    return {
        "l": model.layers / plan.stages,
        "h": model.hidden,
        "a": model.heads,
        "s": model.sequence,
        "b": plan.micro_batch,
        "v": model.vocabulary,
        "e": model.experts,
        "k": model.top_k,
        "f": model.ffn,
        "g": model.hidden * model.groups / model.heads,
        "d": model.hidden / model.heads,
    }


def elements(term: Term, model: Model, plan: Plan) -> float:
    """Return the number of a term's elements that a tensor rank, or an expert rank, holds."""
    letters = _letters(model, plan)
    of_sequence = plan.tensor if plan.sequence_parallel else 1
    cuts = {"always": plan.tensor, "sequence": of_sequence, "expert": plan.expert, "never": 1}
    return term.number * prod(letters[letter] for letter in term.of) / cuts[term.cut]


def live_micro_batches(plan: Plan) -> tuple[float, int]:
    """Return the micro-batches whose activations the first stage holds, and those of its chunk 0.

    1F1B: min(m, p) for both. Interleaved in groups of min(m, p): 2(p − 1) + (v − 1) · group + 1
    chunks, where a micro-batch has v chunks, and two groups' micro-batches of chunk 0.
    """
    m, p, v = plan.micro_batches, plan.stages, plan.chunks
    if v == 1 or p == 1:
        return min(m, p), min(m, p)
    return min(m * v, 2 * (p - 1) + (v - 1) * min(m, p) + 1) / v, min(m, 2 * p)


def _state(model: Model, plan: Plan) -> Iterator[MemoryLine]:
    of_layers = EXPERT_PARAMETERS if model.experts else DENSE_PARAMETERS
    terms = (*PARAMETERS, *of_layers, *((FINAL_NORM,) if plan.stages == 1 else ()))
    if model.ffn:
        terms = (*LLAMA_PARAMETERS, *(LLAMA_LAST if plan.stages == 1 else ()))
    replicas = plan.data * plan.context
    recipe = RECIPES[plan.recipe]
    for stage, kind in ((3, "weight"), (2, "gradient"), (1, "optimizer")):
        for term in terms:
            copies = plan.tensor * replicas / plan.expert if term.cut == "expert" else replicas
            share = copies if plan.zero >= stage else 1
            width = getattr(recipe, kind)
            yield MemoryLine(kind, term.key, width * elements(term, model, plan) / share)


def _activations(model: Model, plan: Plan) -> Iterator[MemoryLine]:
    live, first = live_micro_batches(plan)
    layers = live * model.layers / plan.stages
    layer: tuple[Term, ...] = (*ATTENTION, *(EXPERTS if model.experts else DENSE))
    core: tuple[Term, ...] = CORE
    first_once: tuple[Term, ...] = FIRST
    if model.ffn:
        layer, core, first_once = (*LLAMA_ATTENTION, *GATED), LLAMA_CORE, ()
    saved, recomputed = {
        "none": ((*layer, *core), ()),
        "selective": (layer, core),
        "full": ((CHECKPOINT,), (*layer, *core)),
    }[plan.recompute]
    once = (*first_once, *(LAST if plan.stages == 1 else ()))
    itemsize = RECIPES[plan.recipe].activation

    def count_bytes(term: Term, times: float) -> float:
        return (term.width or itemsize) * elements(term, model, plan) * times / plan.context

    yield from (MemoryLine("activation", term.key, count_bytes(term, layers)) for term in saved)
    if recomputed:  # what backward recomputes, one layer at a time
        yield MemoryLine(
            "activation", "recomputed", sum(count_bytes(term, 1) for term in recomputed)
        )
    yield from (MemoryLine("activation", term.key, count_bytes(term, first)) for term in once)
