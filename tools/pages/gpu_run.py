"""The page on GPUs: the tables of the runs, from docs/measured/h100.json and h200.json."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pages.blocks import LANGUAGES, MEASURED, fill_blocks, in_language, read_words, table

HIDDEN, RANKS = (1024, 2048, 4096, 8192), (2, 4, 8)
WORDS = read_words("gpu-run")


def render() -> Iterator[tuple[Path, str]]:
    """Yield the page in each language."""
    run = json.loads((MEASURED / "h100.json").read_text("utf-8"))
    held = json.loads((MEASURED / "h200.json").read_text("utf-8"))["metrics"]
    values = {metric["id"]: metric for metric in run["metrics"]}
    for language in LANGUAGES:
        words = WORDS[language]
        path = in_language("docs/reference/gpus", language)
        blocks = {
            "measured: h100 stages": _stages(run["stages"], words),
            "measured: h100 products": _products(values, words),
            "measured: h100 copies": _copies(values, words),
            "measured: h200 memory": _memory(held, words),
        }
        yield path, fill_blocks(path, blocks)


def _stages(stages: dict[str, Any], words: dict[str, Any]) -> str:
    rows = []
    for name, stage in stages.items():
        checks = [row["ok"] for row in stage["rows"] if row["ok"] is not None]
        counts = [stage.get("checks", len(checks)), stage.get("wrong", checks.count(False))]
        state = words[stage["state"]]
        rows.append([name, state, stage["seconds"], *counts, f"`{stage['commit'][:10]}`"])
    return table(words["stages"], "<<>>><", [[str(cell) for cell in row] for row in rows])


def _products(values: dict[str, Any], words: dict[str, Any]) -> str:
    hidden, flops, graphed = words["products"]
    head = [hidden, flops, *(f"TP = {n}" for n in RANKS), *(f"{graphed} {n}" for n in RANKS)]
    rows = []
    for size in HIDDEN:
        ids = [f"gpu.h{size}.tp{n}.bf16.efficiency" for n in RANKS]
        shares = [values[name] for name in [*ids, *(f"{name}.graphed" for name in ids)]]
        rate = values[f"gpu.h{size}.tp1.bf16.efficiency"]["flops"] / 1e12
        rows.append([str(size), f"{rate:.0f}", *map(_share, shares)])
    return table(head, ">" * len(head), rows)


def _copies(values: dict[str, Any], words: dict[str, Any]) -> str:
    rows = []
    for size in HIDDEN:
        shares = [values[f"gpu.h{size}.hidden-copy.{of}"] for of in ("host", "device")]
        rows.append([str(size), *(_share(share, words["to"]) for share in shares)])
    return table(words["copies"], ">>>", rows)


def _memory(metrics: list[dict[str, Any]], words: dict[str, Any]) -> str:
    rows = []
    for metric in metrics:
        model, batch, tokens = re.findall(r"gpt|llama|\d+", metric["id"])
        numbers = [words["none"]] * 3
        if metric["value"]:
            over = metric["counted"] / metric["value"] - 1
            numbers = [f"{metric['value']:.2f}", f"{metric['held']:.2f}", f"{over * 100:+.1f} %"]
        peak, holds, over = numbers
        model = {"gpt": "GPT", "llama": "Llama"}[model]
        counted = f"{metric['counted']:.2f}"
        tokens = f"{int(tokens):,}".replace(",", words["thousands"])
        rows.append([model, f"{batch} × {tokens}", counted, peak, holds, over])
    return table(words["memory"], "<>>>>>", rows)


def _share(metric: dict[str, Any], to: str = "–") -> str:
    """Return a median and its interval."""
    text = f"{metric['value']:.2f} ({metric['low']:.2f}{to}{metric['high']:.2f})"
    return text.replace("-", "−")
