"""The figure of whether a layout fits: the account and the bias of `tools/bench fits`."""

import tomllib
from collections.abc import Mapping
from dataclasses import asdict, fields
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from costlab.layouts import memory, runs, stack_memory
from costlab.layouts.fits import DEEPEST, SHOWN
from costlab.layouts.memory import TERMS
from costlab.layouts.model import ATTENTION, RECOMPUTE, Model, Plan, limits
from costlab.layouts.model_config import FAMILIES, IGNORED, PROGRAMS, SIZES
from sitelab.figures import embed
from sitelab.figures.embed import Figure, make_control, render_template

CARD = "H100"
PRESETS = tomllib.loads(Path(__file__).with_name("models.toml").read_text("utf-8"))
INITIAL = "175B"
LAYOUT = ("sequence", "micro_batch", "micro_batches", "tensor", "stages", "data")
FOLDED_LAYOUT = ("chunks", "context", "expert")
MODEL_FIELDS = tuple(field.name for field in fields(Model))
BYTES = ("weight", "gradient", "optimizer", "activation", "logits", "gathered", "pad",
         "loss_copies", "recompute_layers", "expert_tensor", "compiled", "whole_logits",
         "gathered_inputs", "unfused_norms")  # fmt: skip
OF_LAYOUT = ("recompute_layers", "expert_tensor")  # of `BYTES`: no program decides them
STATISTICS = ("norm-statistics", "final-norm-statistics")


def read_plan(at: Mapping[str, Any]) -> tuple[Model, Plan]:
    """Return the model and the plan of the figure's settings.

    Raises:
        LayoutError: they are impossible.
    """
    model = Model(**{name: at[name] for name in MODEL_FIELDS})
    names = {field.name for field in fields(Plan)} - {"layers"}
    layers = tuple(map(int, filter(None, at["layers_of_stages"].split(","))))
    batch = at["micro_batches"] * at["micro_batch"] * at["data"]
    settings = {name: at[name] for name in names & at.keys()}
    return model, Plan(**settings, layers=layers, global_batch=batch)


@cache
def load_presets() -> dict[str, dict[str, Any]]:
    """Return the settings of each model in the list, with a layout."""
    plan = asdict(Plan()) | {"micro_batches": 1, "layers_of_stages": ""}
    del plan["global_batch"], plan["layers"]
    empty = asdict(Model(layers=1, hidden=1, heads=1, vocabulary=1))
    empty |= {name: 0 for name in MODEL_FIELDS if limits(name)[0] == 0}
    return {
        name: plan | empty | {"program": preset["program"]} | PROGRAMS[preset["program"]]
        | FAMILIES.get(preset.get("family"), {}) | preset["model"] | preset["plan"]
        for name, preset in PRESETS.items()
    }  # fmt: skip


def measure_spread() -> dict[str, float]:
    """Return between which multiples of the likely bytes 80 % of the published runs were."""
    rows = [(held, measured) for _, held, measured in stack_memory.published_ranks() if measured]
    shares = [measured / stack_memory.estimate(held).likely for held, measured in rows]
    low, high = np.quantile(shares, (0.1, 0.9))
    return {"runs": len(shares), "low": float(low), "high": float(high)}


SPREAD = cache(measure_spread)


def make_figure(words: dict[str, str], root: Path) -> Figure:
    """Return the memory of one model's fullest rank, and the data for any other model."""
    words = words | {"label-spread": words["label-spread"].format(runs=SPREAD()["runs"])}
    return Figure(_render(load_presets()[INITIAL], words), _collect_data(words))


def _collect_data(words: dict[str, str]) -> dict[str, Any]:
    empty = {name: load_presets()["tutor"][name] for name in MODEL_FIELDS} | {"positions": 0}
    plain = asdict(Plan())
    habits = {name: plain[name] for name in BYTES if name not in OF_LAYOUT}
    return {
        "terms": {name: [term._asdict() for term in several] for name, several in TERMS.items()},
        "kinds": memory.KINDS,
        "models": load_presets(),
        "empty": empty,
        "programs": {name: habits | settings for name, settings in PROGRAMS.items()},
        "config": {"sizes": SIZES, "families": FAMILIES, "ignored": sorted(IGNORED)},
        "cards": {card: stack_memory.usable_bytes(card) for card in runs.CARDS},
        "bias": {"guess": stack_memory.GUESS, "bounds": stack_memory.BOUNDS,
                 "state": stack_memory.STATE, "spread": stack_memory.SPREAD,
                 "residual": stack_memory.RESIDUAL, "deviations": stack_memory.DEVIATIONS},
        "search": {"deepest": DEEPEST, "shown": SHOWN},
        "spread": SPREAD(),
        "controls": _make_controls(words),
        "folds": [words[name] for name in ("paste", "own", "nearest")],
    }  # fmt: skip


def _make_controls(words: dict[str, str]) -> list[Any]:
    settings = load_presets()[INITIAL]

    def control(name: str, **more: Any) -> Any:
        value = settings[name]
        if isinstance(value, bool):
            return make_control("tick", name, words, value, **more)
        least, most = limits(name)
        return make_control("number", name, words, value, least=least, most=most, step=1, **more)

    def choice(name: str, options: Any, at: Any, **more: Any) -> Any:
        return make_control("choice", name, words, at, options, **more)

    more, sizes, habits = ({"fold": words[f"fold-{name}"]} for name in ("more", "sizes", "bytes"))
    of_model = [name for name in MODEL_FIELDS if name != "norm"]
    return [
        choice("model", PRESETS, INITIAL),
        choice("card", runs.CARDS, CARD),
        choice("program", PROGRAMS, settings["program"]),
        *(control(name) for name in LAYOUT),
        choice("zero", range(4), settings["zero"]),
        control("sequence_parallel"),
        choice("recompute", RECOMPUTE, settings["recompute"]),
        choice("attention", ATTENTION, settings["attention"]),
        *(control(name, **more) for name in FOLDED_LAYOUT),
        *(control(name, **sizes) for name in of_model),
        choice("norm", ("layer", "rms"), settings["norm"], **sizes),
        *(control(name, **habits) for name in BYTES),
        make_control("text", "layers_of_stages", words, "", pattern=r"\d+(,\d+)*", **habits),
    ]


def answer(at: Mapping[str, Any], words: dict[str, str]) -> dict[str, str]:
    """Return the sentences of the figure for settings that are possible."""
    size = embed.format_bytes
    model, plan, worst = _find_worst(at)
    need = stack_memory.estimate(memory.rank_bytes(model, plan, worst))
    room, spread = _room(at), SPREAD()
    likely = need.likely
    return {
        "verdict": words[judge(need, room)],
        "usable": size(room),
        "room": f"{at.get('card', CARD)}: {size(room)}",
        "rank": words["of-stage"].format(stage=worst, stages=plan.stages, ranks=plan.ranks),
        "added": size(likely - need.counted),
        "likely": size(likely),
        "spread": f"{size(spread['low'] * likely)} – {size(spread['high'] * likely)}",
        "bounds": words["bounds"].format(low=size(need.low), high=size(need.high)),
    }


def judge(need: stack_memory.Estimate, room: float) -> str:
    """Return the key of the verdict on a card with `room` bytes."""
    return {"fits": "fits", "does not fit": "not-fits", "probably does not fit": "probably-not",
            "too close to say": "too-close"}[need.verdict(room)]  # fmt: skip


def _find_worst(at: Mapping[str, Any]) -> tuple[Model, Plan, int]:
    """Return the model, the plan, and the stage whose rank holds most."""
    model, plan = read_plan(at)
    return model, plan, memory.worst(memory.all_ranks(model, plan))


def _room(at: Mapping[str, Any]) -> float:
    return stack_memory.usable_bytes(at.get("card", CARD))


def count_lines(at: Mapping[str, Any]) -> dict[str, float]:
    """Return what the fullest rank holds, by the row of the table."""
    lines = memory.rank_lines(*_find_worst(at))
    return {f"{kind}/{key}": count for (kind, key), count in lines.items()}


def _render(at: Mapping[str, Any], words: dict[str, str]) -> str:
    lines = count_lines(at)
    products: dict[str, list[str]] = {}
    for name, several in TERMS.items():
        for term in several if name not in ("backward", "copied", "repeated") else ():
            of = term.of.replace("Ss", "s²")
            products.setdefault(term.key, []).append(f"{term.number} {of}".removeprefix("1 "))
    rows = [(kind, key) for kind in memory.KINDS[:3] for key in ("shared", "experts")]
    rows += [("activations", key) for key in (*products, *STATISTICS) if key != "logits"]
    rows += [("logits", "logits")]
    rows += [("buffers", key) for key in ("of-loss", "of-backward", "sent")]
    sums = {
        kind: sum(count for key, count in lines.items() if key.startswith(f"{kind}/"))
        for kind in memory.KINDS
    }
    need = stack_memory.estimate(memory.rank_bytes(*_find_worst(at)))
    described_rows = []
    for kind, key in rows:
        why = words[f"why-{kind}" if key in ("shared", "experts") else f"why-{key}"]
        product = ", ".join(dict.fromkeys(products.get(key, ())))
        described_rows.append((kind, key, _describe(kind, key, words), product, why))
    return render_template(
        "memory", words, sums=sums, whole=sum(sums.values()), added=need.likely - need.counted,
        room=_room(at), need=need, verdict=judge(need, _room(at)), scale=max(need.high, _room(at)),
        lines=lines, size=embed.format_bytes, answers=answer(at, words), rows=described_rows,
    )  # fmt: skip


def _describe(kind: str, key: str, words: dict[str, str]) -> str:
    name = words.get(f"kind-{kind}", words.get(kind, ""))
    if key == "experts":
        return words["of-experts"].format(what=name)
    return name if key in ("shared", "logits") else words[key]
