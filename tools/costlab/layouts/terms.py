"""The tensors that a layer and a loss keep for backward, each with the letters of its size.

Of a plain layer with dropout the terms are those of Korthikanti et al. (arXiv 2205.05198, section
4, table 2), and what norms and fused attention keep for each row.

Letters: S tokens of a sequence, s those of a context rank, b micro-batch, h hidden, a heads,
q columns of the queries, g of the keys, f width of the feed-forward network, x of the shared
experts, y of an expert, e experts, k of them a token, v vocabulary.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import NamedTuple

from costlab.layouts.model import Model, Plan


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
TERMS: dict[str, tuple[Term, ...]] = {
    name: tuple(Term(*row) for row in rows)
    for name, rows in tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8")).items()
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
