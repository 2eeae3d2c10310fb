"""What a rank of the first pipeline stage must hold: weights, gradients, optimizer, activations.

Activations by Korthikanti et al. (arXiv 2205.05198, section 4, table 2), tensor by tensor, with the
first stage of 1F1B, which holds most of them. State by ZeRO (arXiv 1910.02054, section 3.1). Every
term is a monomial in the letters below, so that a reader is shown each, and a script in a page can
put in other numbers.

Letters: l layers of a stage, h hidden, a heads, s sequence, b micro-batch, v vocabulary.
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
        key: what it is; a page has words for it.
        number: how many times the product.
        of: letters, "sbh".
        cut: over the tensor ranks: "always", with "sequence" parallelism only, or "never".
        width: bytes of an element; 0 for the recipe's.

    """

    key: str
    number: int
    of: str
    cut: str = "always"
    width: int = 0


# A layer's, in the order of its forward. Selective recomputation makes CORE anew in backward.
LAYER = (
    Term("norm-inputs", 2, "sbh", "sequence"),
    Term("qkv-input", 1, "sbh", "sequence"),
    Term("query-key", 2, "sbh"),
    Term("value", 1, "sbh"),
    Term("projection-input", 1, "sbh"),
    Term("attention-mask", 1, "sbh", "sequence", MASK),
    Term("fc1-input", 1, "sbh", "sequence"),
    Term("gelu-input", 4, "sbh"),
    Term("fc2-input", 4, "sbh"),
    Term("mlp-mask", 1, "sbh", "sequence", MASK),
)
CORE = (
    Term("softmax", 1, "assb"),
    Term("softmax-mask", 1, "assb", width=MASK),
    Term("softmax-dropped", 1, "assb"),
)
CHECKPOINT = Term("layer-inputs", 1, "sbh", "sequence")
# Once a micro-batch, not once a layer: after the embedding; and where the last stage is the first.
FIRST = (Term("embedding-mask", 1, "sbh", "sequence", MASK),)
LAST = (
    Term("final-norm-input", 1, "sbh", "sequence"),
    Term("head-input", 1, "sbh", "sequence"),
    Term("logits", 1, "sbv", width=FULL),
)
PARAMETERS = (
    Term("layer-weights", 12, "lhh"),
    Term("layer-cut-biases", 7, "lh"),
    Term("layer-whole", 6, "lh", "never"),
    Term("word-embedding", 1, "vh"),
    Term("positions", 1, "sh", "never"),
)
FINAL_NORM = Term("final-norm", 2, "h", "never")


@dataclass(frozen=True, kw_only=True)
class Model:
    """A GPT with a feed-forward of 4h, learned positions and a tied head."""

    layers: int
    hidden: int
    heads: int
    sequence: int
    vocabulary: int


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How it is trained: the grid, the micro-batches, and what is saved of memory.

    Attributes:
        micro_batch: sequences of one.
        micro_batches: in a step; 1F1B's first stage holds min(stages, micro_batches) at once.
        zero: 1 cuts the optimizer's state over the data ranks, 2 gradients too, 3 weights too.
        recompute: of `RECOMPUTE`.
        recipe: of `RECIPES`.

    """

    tensor: int = 1
    stages: int = 1
    data: int = 1
    micro_batch: int = 1
    micro_batches: int = 1
    sequence_parallel: bool = False
    recompute: str = "none"
    zero: int = 0
    recipe: str = "bf16"


class Held(NamedTuple):
    """One line of the account: what kind of memory, which term, how many bytes on a rank."""

    kind: str
    key: str
    bytes: float


def account(model: Model, plan: Plan) -> list[Held]:
    """Return every line of what a rank of the first stage holds."""
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
    }


def elements(term: Term, model: Model, plan: Plan) -> float:
    """Return how many of a term's elements a tensor rank holds."""
    letters = _letters(model, plan)
    cut = term.cut == "always" or (term.cut == "sequence" and plan.sequence_parallel)
    return term.number * prod(letters[letter] for letter in term.of) / (plan.tensor if cut else 1)


def _state(model: Model, plan: Plan) -> Iterator[Held]:
    terms = (*PARAMETERS, *((FINAL_NORM,) if plan.stages == 1 else ()))
    recipe = RECIPES[plan.recipe]
    for stage, kind in ((3, "weight"), (2, "gradient"), (1, "optimizer")):
        share = plan.data if plan.zero >= stage else 1
        for term in terms:
            width = getattr(recipe, kind)
            yield Held(kind, term.key, width * elements(term, model, plan) / share)


def _activations(model: Model, plan: Plan) -> Iterator[Held]:
    live = min(plan.stages, plan.micro_batches)
    layers = live * model.layers / plan.stages
    kept, again = {
        "none": ((*LAYER, *CORE), ()),
        "selective": (LAYER, CORE),
        "full": ((CHECKPOINT,), (*LAYER, *CORE)),
    }[plan.recompute]
    once = (*FIRST, *(LAST if plan.stages == 1 else ()))
    of = RECIPES[plan.recipe].activation

    def held(term: Term, times: float) -> float:
        return (term.width or of) * elements(term, model, plan) * times

    yield from (Held("activation", term.key, held(term, layers)) for term in kept)
    if again:  # what backward makes anew, of one layer at a time
        yield Held("activation", "recomputed", sum(held(term, 1) for term in again))
    yield from (Held("activation", term.key, held(term, live)) for term in once)
