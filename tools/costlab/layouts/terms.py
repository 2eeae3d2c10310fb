"""The tensors that a layer and a loss keep for backward, each with the letters of its size.

Of a plain layer with dropout the terms are those of Korthikanti et al. (arXiv 2205.05198, section
4, table 2), and what norms and fused attention keep for each row.

Letters: S tokens of a sequence, s those of a context rank, b micro-batch, h hidden, a heads,
q columns of the queries, g of the keys, f width of the feed-forward network, x of the shared
experts, y of an expert, e experts, k of them a token, v vocabulary.
"""

from __future__ import annotations

from typing import NamedTuple

from costlab.layouts.model import Model, Plan

MASK, FULL = 1, 4  # bytes of an element, whatever the program


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
ATTENTION = (
    Term("norm-inputs", 2, "sbh", "sequence"),
    Term("qkv-input", 1, "sbh", "sequence"),
    Term("query", 1, "sbq"),
    Term("key-value", 2, "sbg", "groups"),
    Term("projection-input", 1, "sbq"),
)
# The core of unfused attention, without dropout and with; selective recomputation recomputes it.
SCORES = (Term("softmax", 1, "aSsb"),)
CORE = (
    *SCORES,
    Term("softmax-mask", 1, "aSsb", width=MASK),
    Term("softmax-dropped", 1, "aSsb"),
)
REPEATED = Term("key-value", 2, "sbq")  # unfused attention repeats those of each group
CHECKPOINT = Term("layer-inputs", 1, "sbh", "sequence")
# Once a micro-batch: FIRST after the embedding, LAST on the last stage.
FIRST = Term("embedding-mask", 1, "sbh", "sequence", MASK)
LAST = (
    Term("final-norm-input", 1, "sbh", "sequence"),
    Term("head-input", 1, "sbh", "sequence"),
    Term("logits", 1, "sbv", width=FULL),
)
FUSED = (Term("row-sums", 1, "sba", width=STATISTICS),)
PLAIN = (
    Term("fc1-input", 1, "sbh", "sequence"),
    Term("gelu-input", 1, "sbf"),
    Term("fc2-input", 1, "sbf"),
)
GATED = (
    Term("fc1-input", 1, "sbh", "sequence"),
    Term("gate-and-up", 2, "sbf"),
    Term("silu-of-gate", 1, "sbf"),
    Term("fc2-input", 1, "sbf"),
)
# An expert's rows are on the ranks that share the experts: its k rows a token, over expert-tensor.
EXPERTS = (
    Term("router-input", 1, "sbh", "sequence"),
    Term("router-probabilities", 1, "sbe", "sequence", FULL),
    Term("expert-rows", 1, "ksbh", "rows"),
)
# Megatron and shardlab multiply by the router's probability before fc2, so they keep both factors.
PLAIN_EXPERT, GATED_EXPERT = (
    (*(term._replace(of="ksby", cut="expert") for term in network[1:]),
     Term("unweighted", 1, "ksby", "expert"))
    for network in (PLAIN, GATED)
)  # fmt: skip
TOKENS = Term("token-numbers", 1, "sb", "never", 8)
# Of a gated layer's seven products, every second output is kept; and what attention returns.
ALTERNATE = (
    CHECKPOINT,
    Term("query", 1, "sbq"),
    Term("value", 1, "sbg", "groups"),
    Term("projection-input", 1, "sbq"),
    Term("gate", 1, "sbf"),
    Term("fc2-output", 1, "sbh", "sequence"),
)
# Backward through a feed-forward network on tensor ranks: the gradient of its output, gathered,
# and those of its input from both products; and of what is inside.
BACKWARD = (
    Term("gathered-gradients", 3, "sbh", "never"),
    Term("inner-gradients", 3, "sbf"),
)
# DTensor gathers the second dimension: with several sequences, each gathered tensor is copied into
# the order of its tokens. The two inputs of a layer's products are gathered, and three gradients.
COPIED = (Term("gathered-inputs", 2, "sbh", "never"), BACKWARD[0])
MASKS = Term("dropout-masks", 2, "sbh", "sequence", MASK)
NORMS_IN_FP32 = Term("norms-in-fp32", 2, "sbh", "sequence", FULL)


def kept_terms(model: Model, plan: Plan, has_experts: bool) -> tuple[list[Term], list[Term]]:
    """Return what a layer keeps of a micro-batch, and what backward makes again."""
    network = [*(GATED if model.gated else PLAIN)]
    if has_experts:
        shared = network[1:] if model.shared_ffn else []
        network = [*EXPERTS, *(GATED_EXPERT if model.gated else PLAIN_EXPERT),
                   *(term._replace(of=term.of.replace("f", "x")) for term in shared)]  # fmt: skip
    layer = [*ATTENTION, norm_statistics("norm-statistics", 2, model), *network]
    layer += [MASKS] * model.dropout + [NORMS_IN_FP32] * plan.unfused_norms
    if plan.gathered_inputs:
        whole = ("qkv-input", "fc1-input")
        layer = [term._replace(cut="never") if term.key in whole else term for term in layer]
    core, again = [*FUSED], plan.recompute
    if plan.attention == "unfused":
        layer = [REPEATED if term.key == "key-value" else term for term in layer]
        core = [*(CORE if model.dropout else SCORES)]
    if again in ("full", "alternate"):
        saved = [CHECKPOINT] if again == "full" else [*ALTERNATE, *FUSED]
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
