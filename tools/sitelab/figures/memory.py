"""The figure of a rank's memory: one bar, and a table with the origin of each part."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from shardlab.proofs.formulas import memory
from shardlab.proofs.formulas.memory import Model, Plan, Term
from sitelab.figures import quantities
from sitelab.figures.embed import Figure, make_control, render_template

KINDS = ("weight", "gradient", "optimizer", "activation")
# Korthikanti et al., table 3, on GPUs of 80 GB; the workbook's own small model; and Llamas, by
# their config.json, with layouts of our own.
MODELS = {
    "tutor": (
        Model(layers=4, hidden=128, heads=4, sequence=128, vocabulary=1024),
        Plan(micro_batch=4, recipe="fp32"),
    ),
    "22B": (
        Model(layers=48, hidden=6144, heads=64, sequence=2048, vocabulary=51200),
        Plan(tensor=8, micro_batch=4),
    ),
    "175B": (
        Model(layers=96, hidden=12288, heads=96, sequence=2048, vocabulary=51200),
        Plan(tensor=8, stages=8, micro_batches=64),
    ),
    "530B": (
        Model(layers=105, hidden=20480, heads=128, sequence=2048, vocabulary=51200),
        Plan(tensor=8, stages=35, micro_batches=280),
    ),
    "1T": (
        Model(layers=128, hidden=25600, heads=160, sequence=2048, vocabulary=51200),
        Plan(tensor=8, stages=64, micro_batches=512),
    ),
    "Llama 3 8B": (
        Model(layers=32, hidden=4096, heads=32, sequence=8192, vocabulary=128256, ffn=14336,
              groups=8),
        Plan(data=8, zero=3, recompute="selective"),
    ),
    "Llama 3 70B": (
        Model(layers=80, hidden=8192, heads=64, sequence=8192, vocabulary=128256, ffn=28672,
              groups=8),
        Plan(tensor=8, stages=4, micro_batches=16, sequence_parallel=True, recompute="selective"),
    ),
    "Llama 3.1 405B": (
        Model(layers=126, hidden=16384, heads=128, sequence=8192, vocabulary=128256, ffn=53248,
              groups=8),
        Plan(tensor=8, stages=9, data=8, micro_batches=18, sequence_parallel=True,
             recompute="selective", zero=1),
    ),
}  # fmt: skip
INITIAL = "175B"
MAY_BE_0 = ("experts", "ffn", "groups")
ACTIVATIONS = (
    *memory.LAYER, *memory.LLAMA_ATTENTION[2:5], *memory.GATED[1:], *memory.EXPERTS[:-1],
    *memory.CORE, memory.CHECKPOINT, *memory.FIRST, *memory.LAST,
)  # fmt: skip


def make_figure(words: dict[str, str], root: Path) -> Figure:
    """Return the memory account of one model, and the data for any other model."""
    model, plan = MODELS[INITIAL]
    return Figure(_render(model, plan, words), _collect_data(words))


def _collect_data(words: dict[str, str]) -> dict[str, Any]:
    groups = {"attention": memory.ATTENTION, "dense": memory.DENSE, "experts": memory.EXPERTS}
    groups |= {"core": memory.CORE, "checkpoint": (memory.CHECKPOINT,)}
    groups |= {"first": memory.FIRST, "last": memory.LAST}
    groups |= {"parameters": memory.PARAMETERS, "finalNorm": (memory.FINAL_NORM,)}
    groups |= {"denseParameters": memory.DENSE_PARAMETERS}
    groups |= {"expertParameters": memory.EXPERT_PARAMETERS}
    groups |= {"llamaAttention": memory.LLAMA_ATTENTION, "gated": memory.GATED}
    groups |= {"llamaCore": memory.LLAMA_CORE, "llamaLast": memory.LLAMA_LAST}
    groups |= {"llamaParameters": memory.LLAMA_PARAMETERS}
    return {
        "terms": {name: [term._asdict() for term in terms] for name, terms in groups.items()},
        "recipes": {name: recipe._asdict() for name, recipe in memory.RECIPES.items()},
        "models": {name: asdict(model) | asdict(plan) for name, (model, plan) in MODELS.items()},
        "controls": _make_controls(words),
    }


def _make_controls(words: dict[str, str]) -> list[Any]:
    model, plan = MODELS[INITIAL]
    sizes = asdict(model) | asdict(plan)
    names = [(name, words.get(f"model-{name}", name)) for name in MODELS]
    dims = ("layers", "hidden", "heads", "ffn", "groups", "sequence", "vocabulary")
    batch = ("micro_batch", "micro_batches")
    ranks = ("tensor", "context", "stages", "chunks", "data")
    experts = ("experts", "top_k", "expert")
    numbers = [
        make_control("number", name, words, sizes[name], least=int(name not in MAY_BE_0), step=1)
        for name in (*dims, *batch, *ranks, *experts)
    ]
    zero = [(stage, words[f"zero-{stage}"]) for stage in range(4)]
    recompute = [(option, words[f"recompute-{option}"]) for option in memory.RECOMPUTE]
    recipes = [(option, words[f"recipe-{option}"]) for option in memory.RECIPES]
    return [
        make_control("choice", "model", words, INITIAL, options=names),
        *numbers,
        make_control("tick", "sequence_parallel", words, plan.sequence_parallel),
        make_control("choice", "recompute", words, plan.recompute, options=recompute),
        make_control("choice", "zero", words, plan.zero, options=zero),
        make_control("choice", "recipe", words, plan.recipe, options=recipes),
    ]


def row_key(line: memory.MemoryLine, gated: bool = False) -> str:
    """Return the key of the row in which a line of the account is summed.

    Args:
        line: of the account.
        gated: whether the model is a Llama, some of whose terms have other products.
    """
    if line.kind == "activation":
        return f"activation/{_gated_key(line.key) if gated else line.key}"
    if gated:
        return f"{line.kind}/gated"
    return f"{line.kind}/{'experts' if line.key.startswith('expert') else 'state'}"


def _render(model: Model, plan: Plan, words: dict[str, str]) -> str:
    sums = {kind: memory.total(model, plan, kind) for kind in KINDS}
    lines: dict[str, float] = {}
    for line in memory.account(model, plan):
        lines[row_key(line)] = lines.get(row_key(line), 0) + line.bytes
    rows = [(kind, "state", "12 l h² + …", f"why-{kind}") for kind in KINDS[:3]]
    rows += [(kind, "experts", "8 e l h²/E", "why-experts") for kind in KINDS[:3]]
    rows += [(kind, "gated", "l(2h² + 2gh + 3fh) + …", f"why-gated-{kind}") for kind in KINDS[:3]]
    for term in ACTIVATIONS:
        key = _gated_key(term.key) if "f" in term.of else term.key
        rows.append(("activation", key, _format_term(term), f"why-{key}"))
    rows.append(("activation", "recomputed", "", "why-recomputed"))
    described_rows = [
        (kind, name, _describe_row(kind, name, words), product, words[why])
        for kind, name, product, why in rows
    ]
    whole = sum(sums.values())
    return render_template(
        "memory",
        words,
        sums=sums,
        whole=whole,
        lines=lines,
        rows=described_rows,
        size=quantities.format_bytes,
    )


def _describe_row(kind: str, name: str, words: dict[str, str]) -> str:
    if name == "experts":
        return words["of-experts"].format(what=words[kind])
    return words[kind if name in ("state", "gated") else name]


def _gated_key(key: str) -> str:
    return "gated-fc2-input" if key == "fc2-input" else key


def _format_term(term: Term) -> str:
    """Return a term such as 4 sbh/t; a dagger marks a cut by sequence parallelism only."""
    letters = term.of.replace("ss", "s²")
    cut = {"always": "/t", "sequence": "/t†", "never": ""}[term.cut]
    return f"{term.number if term.number > 1 else ''} {letters}{cut}".strip()
