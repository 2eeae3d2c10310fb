"""Lab 01: what runs print, the groups of eight ranks, a step's bytes, the bubbles of schedules."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Iterator
from contextlib import redirect_stdout
from functools import cache
from pathlib import Path
from typing import Any

from pages.blocks import LANGUAGES, fence, fill_blocks, lab_page, read_words, solution_page, table
from pages.programs import TRAIN, script
from pages.ranks import run_on_ranks
from shardlab.comm import World
from shardlab.grid.layout import Layout
from shardlab.pipeline.action import Exchange
from shardlab.pipeline.schedule import by_name
from shardlab.proofs.ledger import Ledger
from shardlab.proofs.schedules.timeline import bubble, peak_live, simulate

LAB = "01-three-d"
WORDS = read_words("lab-01")
EIGHT = [
    Layout(tensor=2, data=2, pipeline=2, order=order)
    for order in ("tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp")
]


def groups(layout: Layout, token: str) -> str:
    """Return the groups of an axis."""
    return " ".join(str(group).replace(" ", "") for group in layout.groups(token))


def groups_table(language: str) -> str:
    """Return the table of groups in both orders of axes."""
    words = WORDS[language]
    rows = [
        [words["of"].format(words.get(axis, axis)), *(groups(layout, token) for layout in EIGHT)]
        for axis, token in (("tensor", "tp"), ("data", "dp"), ("pipeline", "pp"))
    ]
    return table(words["groups"], "<<<", rows)


COUNTED: dict[str, dict[str, Any]] = {
    "tp": {"tp": 2},
    "sp": {"tp": 2, "sequence_parallel": True, "fused": True},
    "dp": {"dp": 2},
    "pp": {"pp": 2},
    "3d": {"tp": 2, "pp": 2, "dp": 2},
}


def counted(world: World, settings: dict[str, Any]) -> tuple[int, list[Any]] | None:
    """A step of the tutor, the second, as the first rank of each stage counts it."""
    lab = script(TRAIN)
    trainer = lab.Trainer(lab.Settings(**settings), world)
    trainer.step(0)  # in the first step data ranks also agree on the order of their buckets
    with Ledger() as ledger:
        trainer.step(1)
    if not trainer.speaks:
        return None
    return trainer.grid.pipeline.rank, ledger.entries


@cache
def counts_of() -> dict[tuple[str, int], list[Any]]:
    """Every counted run's entries, by run and stage; what only serves the eyes is left out."""
    entries_by_stage = {}
    for name, settings in COUNTED.items():
        ranks = math.prod(settings.get(axis, 1) for axis in ("tp", "pp", "dp"))
        for answer in run_on_ranks(ranks, counted, settings):
            if answer is not None:
                stage, entries = answer
                entries_by_stage[name, stage] = [e for e in entries if e.phase != "report"]
    return entries_by_stage


def counts_table(counts: dict[tuple[str, int], list[Any]], language: str) -> str:
    """Return the table of what each axis sends in a step."""
    words, rows = WORDS[language], []
    for (name, stage), entries in counts.items():
        if (name, stage) == ("pp", 1):
            continue  # stage 0's mirror image
        for axis, op in dict.fromkeys((e.axis, e.op) for e in entries):
            if axis == "tensor-pipeline":
                continue  # the gradient norm, 8 bytes: in the text
            same = [e for e in entries if (e.axis, e.op) == (axis, op)]
            sizes = [size(sum(getattr(e, of) for e in same), words) for of in ("payload", "wire")]
            where = [words[name], str(stage), words.get(axis, axis), op.replace("_", "-")]
            rows.append([*where, calls(same, words), *sizes])
    return table(words["counts"], "<><<<>>", rows)


def calls(same: list[Any], words: dict[str, Any]) -> str:
    """Say how often, and when; messages go both ways outside of autograd, so they are a number."""
    if same[0].op in ("send", "recv"):
        return str(words["messages"]).format(len(same))
    phases = ("forward", "backward", "after backward")
    counts = {phase: sum(e.phase == phase for e in same) for phase in phases}
    return ", ".join(words[name].format(number) for name, number in counts.items() if number)


def size(count: float, words: dict[str, Any]) -> str:
    """Return a number of bytes as the table has it."""
    if count < 1024:
        return f"{count:.0f} B"
    return f"{count / 1024:,.0f} KiB".replace(",", words["thousands"])


# Runs whose output the page shows. All grids have the same losses, so most take only two steps.
SHOWN: dict[str, dict[str, Any]] = {
    "eight": {"tp": 2, "pp": 2, "dp": 2},
    "four": {"tp": 2, "pp": 2, "steps": 2},
    "two": {"tp": 2, "steps": 2},
    "fsdp": {"dp": 2, "fsdp": True, "steps": 2},
    "tensor-fsdp": {"tp": 2, "dp": 2, "fsdp": True, "steps": 2},
    "options": {
        "pp": 2, "schedule": "interleaved", "clip": 1.0, "warmup": 10, "decay": 60, "evaluate": 20,
    },
}  # fmt: skip
SPEED = re.compile(r"[\d.,]+ ms +[\d,]+ tokens/s")


def printed(world: World, settings: dict[str, Any]) -> str:
    """Return what one rank prints in a run of the lab."""
    lab = script(TRAIN)
    with redirect_stdout(io.StringIO()) as output:
        lab.train(lab.Settings(**settings), world)
    return output.getvalue()


def output_of(settings: dict[str, Any]) -> tuple[str, str, str]:
    """Return a run's lines before the first step, of its steps, and of what stage 0 sent."""
    ranks = math.prod(settings.get(axis, 1) for axis in ("tp", "pp", "dp"))
    outputs = [text for text in run_on_ranks(ranks, printed, settings) if text]
    head, _, rest = outputs[-1].partition("\nstep")  # the last stage prints the losses
    steps = f"step{rest}".partition("\n\n")[0]
    sent = outputs[0].partition("the last step,")[1:]
    return head, SPEED.sub("… ms  … tokens/s", steps), "".join(sent).rstrip()


def outputs() -> dict[str, str]:
    """Return the blocks of output that the page shows."""
    shown = {name: output_of(settings) for name, settings in SHOWN.items()}
    blocks = {name: f"{head.splitlines()[0]}\n\n{sent}" for name, (head, _, sent) in shown.items()}
    head, steps, sent = shown["eight"]
    blocks["eight"] = f"{head}\n{steps}\n\n{sent}"
    blocks["options"] = shown["options"][1]
    return {name: fence(text) for name, text in blocks.items()}


# Stages, micro-batches, and what a forward, a backward without its weights, and those take.
EXERCISE = 4, 8, (2, 2, 2)


def bubbles_table(language: str) -> str:
    """Exercise 7, counted: a piece of the interleaved schedule is half a stage."""
    stages, count, (forward, backward, weight) = EXERCISE
    rows = []
    for kind in ("1f1b", "interleaved", "zb-h1"):
        schedule = by_name(kind, stages, count)
        share = 2 if kind == "interleaved" else 1
        splits_backward = kind == "zb-h1"
        time = simulate(
            schedule, forward=forward / share, weight=weight,
            backward=(backward if splits_backward else backward + weight) / share,
        )  # fmt: skip
        whole = max(span.end for stage in time for span in stage)
        idle = whole - count * (forward + backward + weight)
        sent = sum(len(a.sends) for stage in schedule for a in stage if isinstance(a, Exchange))
        live = " ".join(str(peak_live(stage)) for stage in schedule)
        rows.append([kind, f"{idle:.0f}", f"{bubble(time):.1%}", str(sent), live])
    return table(WORDS[language]["bubbles"], "<>>><", rows)


def render() -> Iterator[tuple[Path, str]]:
    """Yield the lab's page and its answers in each language."""
    counts, runs = counts_of(), outputs()
    for language in LANGUAGES:
        page, answers = lab_page(LAB, language), solution_page(LAB, language)
        blocks = {"groups": groups_table(language), "counts": counts_table(counts, language)}
        yield page, fill_blocks(page, blocks | runs)
        yield answers, fill_blocks(answers, {"bubbles": bubbles_table(language)})
