"""The figure of ZeRO's stages: what of a model's state each of N data ranks holds."""

from pathlib import Path
from typing import Any

from costlab.layouts.model_config import PROGRAMS
from sitelab.figures import embed
from sitelab.figures.embed import Figure, make_control, render_template

# The kinds of state, each with the first stage that cuts it.
KINDS = {"weight": 3, "gradient": 2, "optimizer": 1}
STAGES = range(4)
RECIPES = ("shardlab", "deepspeed", "megatron")  # programs with the widths of each kind
RANKS = (1, 2, 4, 8, 16, 32, 64)
PARAMETERS = (940_800, 7 * 10**9, 70 * 10**9, 405 * 10**9)  # the first is the grammar tutor
INITIAL = {"recipe": "megatron", "ranks": 8, "parameters": 7 * 10**9}


def count_bytes(at: dict[str, Any], stage: int) -> dict[str, float]:
    """Return the bytes of each kind of state that a rank holds in a stage; 0 is replicas."""
    widths = PROGRAMS[at["recipe"]]
    return {
        kind: at["parameters"] * widths[kind] / (at["ranks"] if stage >= least else 1)
        for kind, least in KINDS.items()
    }


def format_answers(at: dict[str, Any]) -> dict[str, str]:
    """Return what a rank holds in each stage, as the figure writes it."""
    sums = (sum(count_bytes(at, stage).values()) for stage in STAGES)
    return {f"stage-{stage}": embed.format_bytes(size) for stage, size in enumerate(sums)}


def make_figure(words: dict[str, str], root: Path) -> Figure:
    """Return the bars of the four stages, and the data for other models and ranks."""
    whole = count_bytes(INITIAL, 0)
    shares = {kind: 100 * size / sum(whole.values()) for kind, size in whole.items()}
    percents = [
        {kind: 100 * size / whole[kind] for kind, size in count_bytes(INITIAL, stage).items()}
        for stage in STAGES
    ]
    html = render_template(
        "zero", words, shares=shares, held=percents, answers=format_answers(INITIAL),
        ranks=INITIAL["ranks"],
        sums={kind: embed.format_bytes(count) for kind, count in whole.items()},
    )  # fmt: skip
    choices = {"recipe": RECIPES, "parameters": PARAMETERS}
    controls = [
        make_control("slider", "ranks", words, INITIAL["ranks"],
                     options=[(count, str(count)) for count in RANKS]),
        *(make_control("choice", name, words, INITIAL[name],
                       options=[(value, words[f"{name}-{value}"]) for value in values])
          for name, values in choices.items()),
    ]  # fmt: skip
    widths = {name: {kind: PROGRAMS[name][kind] for kind in KINDS} for name in RECIPES}
    return Figure(html, {"widths": widths, "kinds": KINDS, "controls": controls})
