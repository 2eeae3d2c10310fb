"""The figure of a rank's memory: one bar, and a table that says where each part comes from."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from shardlab.proofs.formulas import memory
from shardlab.proofs.formulas.memory import Model, Plan, Term
from sitelab.figures import controls, quantities
from sitelab.figures.shown import Figure, picture

KINDS = ("weight", "gradient", "optimizer", "activation")
# Korthikanti et al., table 3, on GPUs of 80 GB; and the workbook's own small model.
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
}
SHOWN = "175B"
ACTIVATIONS = (
    *memory.LAYER, *memory.EXPERTS[:-1], *memory.CORE,
    memory.CHECKPOINT, *memory.FIRST, *memory.LAST,
)  # fmt: skip


def figure(said: dict[str, str], root: Path) -> Figure:
    """Return the account of one model, and what a script needs for any other."""
    model, plan = MODELS[SHOWN]
    return Figure(_drawn(model, plan, said), _data(said))


def _data(said: dict[str, str]) -> dict[str, Any]:
    groups = {"attention": memory.ATTENTION, "dense": memory.DENSE, "experts": memory.EXPERTS}
    groups |= {"core": memory.CORE, "checkpoint": (memory.CHECKPOINT,)}
    groups |= {"first": memory.FIRST, "last": memory.LAST}
    groups |= {"parameters": memory.PARAMETERS, "finalNorm": (memory.FINAL_NORM,)}
    groups |= {"denseParameters": memory.DENSE_PARAMETERS}
    groups |= {"expertParameters": memory.EXPERT_PARAMETERS}
    return {
        "terms": {name: [term._asdict() for term in terms] for name, terms in groups.items()},
        "recipes": {name: recipe._asdict() for name, recipe in memory.RECIPES.items()},
        "models": {name: asdict(model) | asdict(plan) for name, (model, plan) in MODELS.items()},
        "controls": _controls(said),
    }


def _controls(said: dict[str, str]) -> list[Any]:
    model, plan = MODELS[SHOWN]
    sizes = asdict(model) | asdict(plan)
    names = [(name, said.get(f"model-{name}", name)) for name in MODELS]
    chosen = [controls.choice("model", said["model"], names, SHOWN)]
    dims = ("layers", "hidden", "heads", "sequence", "vocabulary", "micro_batch", "micro_batches")
    ranks = ("tensor", "context", "stages", "chunks", "data")
    experts = ("experts", "top_k", "expert")
    numbers = [
        controls.number(name, said[name], sizes[name], least=0 if name == "experts" else 1)
        for name in (*dims, *ranks, *experts)
    ]
    zero = [(stage, said[f"zero-{stage}"]) for stage in range(4)]
    recompute = [(one, said[f"recompute-{one}"]) for one in memory.RECOMPUTE]
    recipes = [(one, said[f"recipe-{one}"]) for one in memory.RECIPES]
    return [
        *chosen, *numbers,
        controls.tick("sequence_parallel", said["sequence_parallel"], plan.sequence_parallel),
        controls.choice("recompute", said["recompute"], recompute, plan.recompute),
        controls.choice("zero", said["zero"], zero, plan.zero),
        controls.choice("recipe", said["recipe"], recipes, plan.recipe),
    ]  # fmt: skip


def key(line: memory.MemoryLine) -> str:
    """Return the row that a line of the account is summed in."""
    if line.kind == "activation":
        return f"activation/{line.key}"
    return f"{line.kind}/{'experts' if line.key.startswith('expert') else 'state'}"


def _drawn(model: Model, plan: Plan, said: dict[str, str]) -> str:
    sums = {kind: memory.total(model, plan, kind) for kind in KINDS}
    lines: dict[str, float] = {}
    for line in memory.account(model, plan):
        lines[key(line)] = lines.get(key(line), 0) + line.bytes
    rows = [(kind, "state", "12 l h² + …", f"why-{kind}") for kind in KINDS[:3]]
    rows += [(kind, "experts", "8 e l h²/E", "why-experts") for kind in KINDS[:3]]
    rows += [("activation", term.key, _product(term), f"why-{term.key}") for term in ACTIVATIONS]
    rows.append(("activation", "recomputed", "", "why-recomputed"))
    told = [
        (kind, name, _what(kind, name, said), product, said[why])
        for kind, name, product, why in rows
    ]
    whole = sum(sums.values())
    return picture(
        "memory", said, sums=sums, whole=whole, lines=lines, rows=told, size=quantities.size
    )


def _what(kind: str, name: str, said: dict[str, str]) -> str:
    if name == "experts":
        return said["of-experts"].format(what=said[kind])
    return said[kind if name == "state" else name]


def _product(term: Term) -> str:
    """Return a term as it is written: 4 sbh/t; a dagger where only sequence parallelism cuts it."""
    letters = term.of.replace("ss", "s²")
    cut = {"always": "/t", "sequence": "/t†", "never": ""}[term.cut]
    return f"{term.number if term.number > 1 else ''} {letters}{cut}".strip()
