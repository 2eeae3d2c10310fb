"""The bytes that each rank of a run holds, by kind; the worst rank is the one that decides.

Weights, gradients, optimizer and saved activations are exact: tests hold them equal to what
shardlab's, megatron-core's and transformers' models hold. Transient buffers are what the programs
of the published runs need at least. What a stack adds to them is in `stack_memory`.

What a layer and a loss keep for backward are the terms of terms.toml. Of a plain layer with dropout
they are those of Korthikanti et al. (arXiv 2205.05198, section 4, table 2), and what norms and
fused attention keep for each row. Their letters: S tokens of a sequence, s those of a context rank,
b micro-batch, h hidden, a heads, q columns of the queries, g of the keys, f width of the
feed-forward network, x of the shared experts, y of an expert, e experts, k of them a token,
v vocabulary.
"""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Sequence
from math import prod
from pathlib import Path
from typing import NamedTuple

from costlab.layouts.model import Model, Plan, layers_of_stages


class Term(NamedTuple):
    """Elements of one kind: `number` times the product of the dimensions in `of`.

    Attributes:
        key: the term's name, which pages translate.
        number: the factor of the product.
        of: the letters of the product, such as "sbh".
        cut: which ranks share it; see `memory.term_bytes`.
        width: bytes of an element; 0 for the plan's.

    """

    key: str
    number: int
    of: str
    cut: str = "always"
    width: int = 0


STATISTICS = 4  # bytes of a row's sum in attention, a norm's mean or deviation
_FILE = Path(__file__).with_name("terms.toml")
TERMS: dict[str, tuple[Term, ...]] = {
    name: tuple(Term(*row) for row in rows)
    for name, rows in tomllib.loads(_FILE.read_text("utf-8")).items()
}
(CHECKPOINT,), (REPEATED,) = TERMS["checkpoint"], TERMS["repeated"]


def kept_terms(model: Model, plan: Plan, has_experts: bool) -> tuple[list[Term], list[Term]]:
    """Return what a layer keeps of a micro-batch, and what backward makes again."""
    kind = "gated" if model.gated else "plain"
    network = [*TERMS[kind]]
    if has_experts:
        shared = network[1:] if model.shared_ffn else []
        network = [*TERMS["experts"], *TERMS[f"{kind}Expert"],
                   *(term._replace(of=term.of.replace("f", "x")) for term in shared)]  # fmt: skip
    layer = [*TERMS["attention"], norm_statistics("norm-statistics", 2, model), *network]
    layer += TERMS["masks"] * model.dropout + TERMS["unfusedNorms"] * plan.unfused_norms
    if plan.gathered_inputs:
        whole = ("qkv-input", "fc1-input")
        layer = [term._replace(cut="never") if term.key in whole else term for term in layer]
    core, again = [*TERMS["fused"]], plan.recompute
    if plan.attention == "unfused":
        layer = [REPEATED if term.key == "key-value" else term for term in layer]
        core = [*TERMS["core" if model.dropout else "scores"]]
    if again in ("full", "alternate"):
        saved = [CHECKPOINT] if again == "full" else [*TERMS["alternate"], *TERMS["fused"]]
        if plan.compiled:
            saved = [term for term in saved if term.key != "fc2-output"]
        return saved, [*layer, *core]
    if again == "selective" and plan.attention == "unfused":
        return layer, core
    return [*layer, *core], []


def norm_statistics(key: str, norms: int, model: Model) -> Term:
    """Return what norms keep for each of their rows: a mean, if they have one, and a deviation."""
    each = 2 if model.norm == "layer" else 1
    return Term(key, norms * each, "sb", "sequence", STATISTICS)


KINDS = ("weights", "gradients", "optimizer", "activations", "logits", "buffers")


def padded_words(model: Model, plan: Plan) -> int:
    """Return the words of the padded vocabulary, which the tensor ranks share equally."""
    multiple = plan.pad * plan.tensor
    return -(-model.vocabulary // multiple) * multiple


def term_bytes(term: Term, model: Model, plan: Plan) -> float:
    """Return the bytes of a term on a rank, of one layer and micro-batch."""
    size = {
        "S": plan.sequence, "s": plan.sequence / plan.context, "b": plan.micro_batch,
        "h": model.hidden, "a": model.heads, "q": model.query, "g": model.key, "f": model.ffn,
        "v": padded_words(model, plan), "k": model.top_k, "e": model.experts,
        "x": model.shared_ffn, "y": model.expert_ffn,
    }  # fmt: skip
    shared = plan.tensor if plan.sequence_parallel else 1
    # The ranks that share an expert all receive its rows, and each keeps its part of the columns.
    cut: dict[str, float] = {
        "always": plan.tensor, "sequence": shared, "never": 1, "expert": shared,
        "groups": min(plan.tensor, model.kv_heads), "rows": shared / plan.expert_tensor,
    }  # fmt: skip
    width = term.number * (term.width or plan.activation)
    return width * prod(size[letter] for letter in term.of) / cut[term.cut]


def layer_parameters(model: Model, plan: Plan, layer: int) -> tuple[int, int]:
    """Return a rank's parameters of a layer: those that all data ranks share, and its experts'."""
    h, t, up = model.hidden, plan.tensor, 1 + model.gated
    columns = (model.query + 2 * model.key * t // min(t, model.kv_heads)) // t
    dense = h * columns + model.query // t * h + 2 * h * (2 if model.norm == "layer" else 1)
    dense += columns * (model.bias or model.qkv_bias) + h * model.bias
    dense += 2 * model.head_size * model.qk_norm

    def pair(width: int, ranks: int) -> int:
        inner = width // ranks
        return (up + 1) * h * inner + (up * inner + h) * model.bias

    if not model.has_experts(layer):
        return dense + pair(model.ffn, t), 0
    dense += model.experts * (h + model.bias) + h * model.shared_gate
    if model.shared_ffn:
        dense += pair(model.shared_ffn, t)
    return dense, model.experts // plan.expert * pair(model.expert_ffn, plan.expert_tensor)


def parameters(model: Model, plan: Plan, stage: int) -> tuple[int, int]:
    """Return a rank's parameters of a stage: those that all data ranks share, and its experts'."""
    layers = [layer for chunk in layers_of_stages(model, plan)[stage] for layer in chunk]
    counts = [layer_parameters(model, plan, layer) for layer in layers]
    dense, experts = (sum(column) for column in zip(*counts, strict=True))
    words = padded_words(model, plan) // plan.tensor * model.hidden
    norm = model.hidden * (2 if model.norm == "layer" else 1)
    last = stage == plan.stages - 1
    if stage == 0:
        dense += words + model.positions * model.hidden + norm * model.embedding_norm
    if last:
        dense += norm + words * (not model.tied or plan.stages > 1)
    return dense, experts


def live_pieces(plan: Plan, stage: int) -> float:
    """Return how many micro-batches of a whole stage have activations alive at once."""
    m, p, v, left = plan.micro_batches, plan.stages, plan.chunks, plan.stages - stage
    if v == 1:
        return min(m, left)
    return min(m * v, 2 * (left - 1) + (v - 1) * min(m, p) + 1) / v


def _gathered_bytes(model: Model, plan: Plan, stage: int) -> tuple[float, float]:
    """Return what FSDP has gathered during the loss, and during a layer's backward."""
    layers = [layer for chunk in layers_of_stages(model, plan)[stage] for layer in chunk]
    counts = [sum(layer_parameters(model, plan, layer)) for layer in layers]
    outside = sum(parameters(model, plan, stage)) - sum(counts)
    if plan.stages > 1:  # a stage stays gathered, and its gradients until the last micro-batch
        # With no more micro-batches than stages, a chunk has all of its backward before the next.
        alive = plan.chunks if plan.micro_batches <= plan.stages else 1
        every: float = sum(counts) * plan.gathered + outside * plan.activation
        every += (sum(counts) + outside) * plan.gradient / alive
        return every, every
    # The embedding and the head stay gathered; so does the last layer. Then come two layers,
    # and gradients: the head's, and a layer's as it was computed and as it is reduced.
    root, layer = outside * plan.activation, max(counts)
    backward = layer * (2 * plan.gathered + plan.activation + plan.gradient)
    return root + layer * plan.gathered, 1.5 * root + backward


def _fsdp_buffers(
    model: Model, plan: Plan, stage: int, *, loss: float, repeated: float, logits: float
) -> tuple[float, float, float]:
    """Return what FSDP's loss and backward need in addition, and what it sends or receives."""
    output = logits * plan.activation / plan.logits
    gathered, backward = _gathered_bytes(model, plan, stage)
    # torch's loss over tensor ranks has one more copy than its eager loss.
    loss += gathered + logits * (plan.tensor > 1 < plan.loss_copies)
    repeated += backward + sum(term_bytes(term, model, plan) for term in TERMS["backward"])
    if plan.gathered_inputs and plan.sequence_parallel and plan.micro_batch > 1:
        repeated += sum(term_bytes(term, model, plan) for term in TERMS["copied"])
    if plan.context > 1:  # torch gathers the keys and values of all context ranks
        repeated += plan.context * term_bytes(REPEATED, model, plan)
    sent = 0.0
    if plan.stages > 1:  # each chunk has a buffer for the gradient of each micro-batch
        message = plan.chunks * term_bytes(CHECKPOINT, model, plan)
        sent = message * (plan.micro_batches + live_pieces(plan, stage))
        sent += (plan.micro_batches - 1) * output  # and keeps the outputs of all
    return (*larger_of(loss, repeated, logits), sent)


def larger_of(loss: float, repeated: float, logits: float) -> tuple[float, float]:
    """Return the larger buffer of FSDP's loss and of the layer that runs again after it.

    FSDP's programs have expandable segments, so one uses what the other had; runs of others needed
    their sum. The logits are counted beside them.
    """
    return (loss, 0.0) if loss > repeated - logits else (0.0, repeated - logits)


def _state_lines(model: Model, plan: Plan, stage: int) -> dict[tuple[str, str], float]:
    dense, experts = parameters(model, plan, stage)
    replicas = plan.data * plan.context
    copies = max(1, plan.tensor * replicas // (plan.expert * plan.expert_tensor))
    lines: dict[tuple[str, str], float] = {}
    for kind, width, least in (("weights", plan.weight, 3), ("gradients", plan.gradient, 2),
                               ("optimizer", plan.optimizer, 1)):  # fmt: skip
        shared = plan.zero >= least
        lines[kind, "shared"] = width * dense / (replicas if shared else 1)
        lines[kind, "experts"] = width * experts / (copies if shared else 1)
    return lines


def rank_lines(model: Model, plan: Plan, stage: int) -> dict[tuple[str, str], float]:
    """Return the bytes that a rank of a stage holds, by kind and by what holds them."""
    lines = _state_lines(model, plan, stage)

    def add(kind: str, term: Term, times: float = 1) -> None:
        key = (kind, term.key)
        lines[key] = lines.get(key, 0.0) + times * term_bytes(term, model, plan)

    layers = [layer for chunk in layers_of_stages(model, plan)[stage] for layer in chunk]
    live, first = live_pieces(plan, stage), min(plan.micro_batches, 2 * plan.stages)
    repeated, never = 0.0, plan.changed(recompute="none")
    recomputed = plan.recompute_layers or len(layers)
    alike = Counter(
        (place < recomputed, model.has_experts(layer)) for place, layer in enumerate(layers)
    )
    for (again, has_experts), number in alike.items():
        saved, again_terms = kept_terms(model, plan if again else never, has_experts)
        for term in saved:
            add("activations", term, live * number)
        repeated = max(repeated, sum(term_bytes(term, model, plan) for term in again_terms))
    if stage == 0:
        for term in TERMS["tokens"] + TERMS["first"] * model.dropout:
            add("activations", term, live if plan.chunks == 1 else first)
    logits = loss = 0.0
    if stage == plan.stages - 1:
        norm_input, head_input, scores = TERMS["last"]
        if plan.gathered_inputs:
            head_input = head_input._replace(cut="never")
        for term in (norm_input, head_input, norm_statistics("final-norm-statistics", 1, model)):
            add("activations", term)
        # The loss also has the head's own output, and a gradient as wide as the logits.
        scores = scores._replace(cut="never" if plan.whole_logits else "always", width=plan.logits)
        add("logits", scores)
        logits = lines["logits", "logits"]
        loss = logits * (plan.activation / plan.logits + plan.loss_copies)
    # An output and a gradient are sent or received.
    sent = 2 * term_bytes(CHECKPOINT, model, plan) * (plan.stages > 1)
    if plan.zero == 3:
        loss, repeated, sent = _fsdp_buffers(
            model, plan, stage, loss=loss, repeated=repeated, logits=logits
        )
    lines["buffers", "of-loss"], lines["buffers", "of-backward"] = loss, repeated
    lines["buffers", "sent"] = sent
    return lines


def rank_bytes(model: Model, plan: Plan, stage: int) -> dict[str, float]:
    """Return the bytes that a rank of a stage holds, by kind."""
    totals = dict.fromkeys(KINDS, 0.0)
    for (kind, _), count in rank_lines(model, plan, stage).items():
        totals[kind] += count
    return totals


def all_ranks(model: Model, plan: Plan) -> list[dict[str, float]]:
    """Return the bytes of a rank of each stage; the ranks of a stage hold the same."""
    return [rank_bytes(model, plan, stage) for stage in range(plan.stages)]


def worst(stages: Sequence[dict[str, float]]) -> int:
    """Return the stage whose ranks hold the most bytes."""
    return max(range(len(stages)), key=lambda stage: sum(stages[stage].values()))
