"""Lab 01: every grid has the losses of one process; the pages' tables are counted; faults are told.

Most grids run in the pool, where they cost milliseconds; what only torchrun can show (the launch,
the exit status, a checkpoint that goes from one world to another) is run with torchrun.
"""

from __future__ import annotations

import itertools
import math
import os
import signal
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from functools import cache
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from pages.programs import TRAIN, run, script
from pages.runs import lab_01
from shardlab.comm import Axis, World
from shardlab.data.writer import Writer
from shardlab.gpt.config import LLAMA
from shardlab.gpt.model import GPT
from shardlab.layers.sharding import whole_parameters
from tests.shardlab.pool import Pool, on_ranks
from tests.shardlab.reference import ReferenceGPT

Pools = Callable[[int], Pool]
# 70 words don't divide by 4 or 8, so the vocabulary is padded.
SMALL: dict[str, Any] = {
    "layers": 2, "hidden": 16, "heads": 8, "vocabulary": 70, "sequence": 8, "batch": 8,
    "microbatches": 1, "steps": 3, "lr": 1e-2, "dtype": "float64",
}  # fmt: skip
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
GRIDS = list(itertools.product((1, 2, 4, 8), repeat=3))


def losses_of(world: World, **settings: Any) -> list[float]:
    lab = script(TRAIN)
    losses: list[float] = lab.train(lab.Settings(**SMALL | settings), world)
    return losses


@cache
def plain_losses(
    layers: int = SMALL["layers"], kind: str = "gpt", clip: float = math.inf,
    rates: tuple[float, ...] = (1.0,) * SMALL["steps"],
) -> list[float]:  # fmt: skip
    """The same run, written without shardlab: one device, whole batches, torch's own layers.

    `rates` are the shares of the learning rate in each step.
    """
    lab = script(TRAIN)
    settings = lab.Settings(**SMALL | {"layers": layers, "model": kind})
    model = ReferenceGPT(
        layers=layers, vocab=SMALL["vocabulary"], ffn=settings.config.ffn_width,
        **(LLAMA if kind == "llama" else {}),
        **{n: SMALL[n] for n in ("hidden", "heads", "sequence")},
    )  # fmt: skip
    alone = GPT(settings.config, tensor=Axis.alone(), seed=settings.seed)
    model.load(whole_parameters(alone))
    optimizer = torch.optim.AdamW(model.parameters())
    grammar = import_module("text").Grammar(settings.vocabulary, seed=settings.seed)
    losses = []
    for step, rate in enumerate(rates):
        words, following = grammar.batch(step, settings.batch, settings.sequence)
        loss = model.loss(model(words), following)
        optimizer.zero_grad()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
        assert norm > clip or clip == math.inf
        optimizer.param_groups[0]["lr"] = rate * settings.lr
        optimizer.step()
        losses.append(loss.item())
    return losses


def runs_of(world: World, cases: list[dict[str, Any]]) -> list[list[float]]:
    return [losses_of(world, **case) for case in cases]


def off_by(losses: list[float], expected: list[float]) -> float:
    return max(abs(f - e) / abs(e) for f, e in zip(losses, expected, strict=True))


def cases_of(ranks: int) -> list[dict[str, Any]]:
    """Every grid of so many ranks; of two ranks and of 2 x 2 x 2 with other settings, too."""
    cases: list[dict[str, Any]] = [
        {
            "tp": tp, "pp": pp, "dp": dp, "sequence_parallel": tp > 1,
            "microbatches": min(4, 8 // dp), "layers": max(2, pp),
            "link": "shared-memory" if ranks == 8 else "torch",
        }
        for tp, pp, dp in GRIDS
        if tp * pp * dp == ranks
    ]  # fmt: skip
    if ranks == 2:
        cases += [{"tp": 2}, {"pp": 2, "microbatches": 4, "schedule": "gpipe"}]
        cases.append({"pp": 2, "microbatches": 4, "schedule": "zb-h1"})
        cases.append({"dp": 2, "microbatches": 2, "fsdp": True})
        cases += [{"cp": 2, "cp_kind": kind} for kind in ("ring", "all-gather", "ulysses")]
        cases.append({"cp": 2, "fsdp": True})
        cases += [{"tp": 2, "sequence_parallel": True}, {"cp": 2}, {"pp": 2}, {"dp": 2}]
        cases[-4:] = [case | {"model": "llama"} for case in cases[-4:]]
    if ranks == 4:
        data_parallel = {"tp": 2, "dp": 2, "microbatches": 2, "fsdp": True}
        cases += [data_parallel, data_parallel | {"sequence_parallel": True, "fused": True}]
        cases += [{"cp": 4}, {"cp": 2, "tp": 2, "sequence_parallel": True, "cp_kind": "ulysses"}]
        cases += [{"cp": 2, "pp": 2, "microbatches": 4}, {"cp": 2, "dp": 2, "order": "tp-pp-dp"}]
        cases.append({"tp": 2, "cp": 2, "sequence_parallel": True, "model": "llama"})
        cases.append({"pp": 2, "dp": 2, "schedule": "zb-h1", "model": "llama", "microbatches": 4})
    if ranks == 8:
        both = {"tp": 2, "pp": 2, "dp": 2, "microbatches": 4}
        cases.append(both | {"order": "tp-pp-dp", "schedule": "gpipe"})
        cases.append(both | {"sequence_parallel": True})
    return cases


@pytest.mark.parametrize("ranks", [1, 2, pytest.param(4, marks=pytest.mark.ci), 8])
def test_the_losses_of_any_grid_are_those_of_plain_torch_on_one_device(
    pool: Pools, ranks: int
) -> None:
    cases, wrong = cases_of(ranks), []
    for rank, results in enumerate(pool(ranks).run(runs_of, cases)):
        for case, losses in zip(cases, results, strict=True):
            expected = plain_losses(case.get("layers", SMALL["layers"]), case.get("model", "gpt"))
            assert expected[-1] < expected[0] - 0.005  # it moves: equal losses mean equal training
            if losses and not off_by(losses, expected) <= 1e-12:
                wrong.append(f"rank {rank}, {case}: off by {off_by(losses, expected):.1e}")
    assert not wrong, "\n".join(wrong)


@pytest.fixture
def corpus(tmp_path: Path) -> str:
    """A corpus of 40 documents, each of which counts up from somewhere: worth learning."""
    with Writer(tmp_path / "corpus", np.uint16) as writer:
        for begin in range(40):
            writer.add((begin + np.arange(20)) % 60)
    return str(tmp_path / "corpus")


@pytest.mark.parametrize("ranks", [2, pytest.param(4, marks=pytest.mark.ci)])
def test_a_corpus_trains_alike_on_any_grid(pool: Pools, corpus: str, ranks: int) -> None:
    cases = [
        case | {"data": corpus, "layers": 2, "steps": 4}
        for case in cases_of(ranks)
        if case.get("pp", 1) <= 2 and "model" not in case
    ][:: 3 if ranks == 2 else 1]
    [[expected]] = pool(1).run(runs_of, [{"data": corpus, "layers": 2, "steps": 4}])
    assert expected[-1] < expected[0] - 0.005
    for results in pool(ranks).run(runs_of, cases):
        for losses in results:
            assert not losses or off_by(losses, expected) <= 1e-12


def resumed(world: World, corpus: str, folder: str, axis: str) -> tuple[list[float], list[float]]:
    settings = {"data": corpus, axis: 2, "layers": 1}
    whole = losses_of(world, **settings, steps=4)
    first = losses_of(world, **settings, steps=2, save=folder)
    return whole, first + losses_of(world, **settings, steps=2, load=folder)


@pytest.mark.parametrize("axis", ["dp", "cp"])
def test_a_run_that_goes_on_reads_what_comes_next(
    pool: Pools, corpus: str, tmp_path: Path, axis: str
) -> None:
    for whole, halves in pool(2).run(resumed, corpus, str(tmp_path / "checkpoint"), axis):
        assert off_by(halves, whole) <= 1e-12


def cut_short(world: World, folder: str) -> tuple[list[float], list[float], list[float]]:
    """A run of five steps that dies in its fourth; what it goes on with; what is left to do."""
    lab, settings = script(TRAIN), {"dp": 2, "layers": 1, "save": folder, "save_every": 2}
    settings |= {"resume": True, "steps": 5}
    step = lab.Trainer.step

    def dies(trainer: Any, number: int) -> Any:
        if number == 3:
            raise KeyboardInterrupt
        return step(trainer, number)

    lab.Trainer.step = dies
    try:
        with pytest.raises(KeyboardInterrupt):
            losses_of(world, **settings)
    finally:
        lab.Trainer.step = step
    goes_on, done = (losses_of(world, **settings) for _ in range(2))
    return losses_of(world, dp=2, layers=1, steps=5), goes_on, done


def test_a_run_that_was_cut_short_goes_on_from_its_last_checkpoint(
    pool: Pools, tmp_path: Path
) -> None:
    for whole, goes_on, done in pool(2).run(cut_short, str(tmp_path / "checkpoint")):
        assert off_by(goes_on, whole[2:]) <= 1e-12  # steps 2, 3 and 4
        assert done == []


@on_ranks(2)
def test_a_corpus_that_does_not_fit_the_run_is_refused_on_every_rank(
    world: World, corpus: str
) -> None:
    messages = []
    for wrong in ({"vocabulary": 58}, {"steps": 13}, {"sequence": 900}, {"data": "missing"}):
        with pytest.raises(script(TRAIN).Refused) as refused:
            losses_of(world, **{"data": corpus, "layers": 1, "dp": 2} | wrong)
        messages.append(str(refused.value))
    vocabulary, steps, short, missing = messages
    assert vocabulary.endswith("holds token 58, and --vocabulary is 58: choose 59 or more")
    assert steps.startswith("13 steps, and one epoch of the corpus is enough for 12: choose")
    assert "40 sequences from 0 on hold 800 tokens; samples of 900 need 901" in short
    assert missing.startswith("missing.idx cannot be read: No such file or directory; give")


def list_folder_refusals(world: World, file: str) -> list[str]:
    messages = []
    for wrong in ({"save": f"{file}/below"}, {"losses": f"{file}/losses"}):
        with pytest.raises(script(TRAIN).Refused) as refused:
            losses_of(world, dp=2, **wrong)
        messages.append(str(refused.value))
    return messages


def test_a_place_that_cannot_be_written_is_found_before_the_first_step(
    pool: Pools, tmp_path: Path
) -> None:
    file = tmp_path / "file"
    file.write_text("")
    for save, losses in pool(2).run(list_folder_refusals, str(file)):
        assert save.startswith(f"a rank can't write to {file}/below: choose another place")
        assert losses.startswith(f"a rank can't write to {file}/losses: choose")


# ---------------------------------------------------------------------- what only torchrun shows


def run_forked(folder: str, *arguments: str) -> None:
    """Run the program as torchrun's agent does, but in a fork, which has imported all."""
    sys.argv = ["train.py", *arguments]
    with Path(folder, f"rank-{os.environ['RANK']}").open("w") as out, redirect_stdout(out):
        assert script(TRAIN).main() == 0


def saved_and_loaded(forked: bool) -> tuple[str, list[float]]:
    """A step on two ranks, which save, and two on one, which loads: a print and all losses."""
    small = [f"--{k.replace('_', '-')}={v}" for k, v in SMALL.items() if k != "microbatches"]
    with TemporaryDirectory() as name:
        first, checkpoint = (Path(name, n) for n in ("first", "checkpoint"))
        arguments = (
            *small, "--tp=1", "--pp=2", "--dp=1", "--steps=1", "--check", f"--losses={first}",
            f"--save={checkpoint}", "--cpu", "--schedule=gpipe",
        )  # fmt: skip
        if forked:
            place = {"rdzv_backend": "c10d", "rdzv_endpoint": "localhost:0"}
            agent = LaunchConfig(1, 1, 2, start_method="forkserver", max_restarts=0, **place)
            # torch's agent leaves its handlers, which would take a later test's Ctrl-C.
            handlers = {number: signal.getsignal(number) for number in SIGNALS}
            elastic_launch(agent, run_forked)(name, *arguments)
            for number, handler in handlers.items():
                signal.signal(number, handler)
            printed = "".join(Path(name, f"rank-{rank}").read_text("utf-8") for rank in range(2))
        else:
            printed = run(TRAIN, *arguments, ranks=2)
        losses = [float(line) for line in first.read_text().split()]
        # Two steps: the first one's loss knows only the loaded weights, the second's the moments.
        with World.join(store=dist.HashStore(), rank=0, size=1, backend="gloo") as world:
            losses += losses_of(world, microbatches=2, steps=2, load=str(checkpoint))
    return printed, losses


def test_two_ranks_save_and_one_other_goes_on_as_it_would_alone() -> None:
    printed, losses = saved_and_loaded(forked=True)
    assert "tensor 1 x pipeline 2 x data 1 = 2 ranks on cpu over gloo; gpipe" in printed
    assert "as the first rank of stage 1 counts it" in printed
    assert off_by(losses, plain_losses()) <= 1e-12


@pytest.mark.ci
def test_torchrun_starts_the_same_run() -> None:
    printed, losses = saved_and_loaded(forked=False)
    assert "as the first rank of stage 1 counts it" in printed
    assert off_by(losses, plain_losses()) <= 1e-12


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--tp=2", "--pp=2"], "needs 4 ranks, but the world has 2: launch with torchrun"),
        (["--tp=2", "--heads=3"], "tensor axis of size 2 does not divide 3 heads"),
        (["--pp=2", "--batch=3"], "2 micro-batches do not divide the 3 sequences"),
        (["--tp=2", "--fsdp"], "--dp is 1: choose --dp 2 or more"),
        (["--dp=2", "--resume"], "--resume and --save-every go with --save: name the"),
        (["--dp=2", "--save-every=-1"], "save_every is -1; choose 0 (at the end) or more"),
        (["--dp=2", "--save=a", "--resume", "--load=b"], "--load from elsewhere: choose one"),
        (["--cp=2", "--sequence=2"], "4 equal chunks, two a rank; 2 tokens don't form them"),
        (["--cp=2", "--heads=1", "--cp-kind=ulysses"], "does not divide 1 heads of a tensor rank"),
        (["--cp=2", "--experts=3", "--ep=3"], "does not divide 2 tensor, context and data ranks"),
        (["--schedule=zigzag", "--tp=2"], "invalid choice: 'zigzag'"),
        (["--schedule=interleaved", "--tp=2"], "needs at least 2 stages of at least 2 chunks"),
        (["--schedule=interleaved", "--pp=2", "--layers=2"], "does not divide 2 layers"),
        (
            ["--schedule=zb-h1", "--dp=2", "--fsdp"],
            "zb-h1 leaves them for later; choose --schedule 1f1b",
        ),
        (["--tp=2", "--warmup=9", "--decay=9"], "is down at a later one; choose --decay larger"),
        (["--tp=2", "--clip=0"], "give the most that the norm may be, or leave it"),
        (["--cp=2", "--dropout=.1"], "attention in pieces draws no masks; leave one of the two"),
        (["--tp=2", "--evaluate=0"], "evaluate is 0; choose 1 or more"),
        (["--tp=2", "--layers=0"], "layers is 0; choose 1 or more"),
        (["--tp=2", "--heads=0"], "heads is 0; choose 1 or more"),
        (["--tp=2", "--hidden=-128"], "hidden is -128; choose 1 or more"),
        (["--tp=2", "--sequence=0"], "sequence is 0; choose 1 or more"),
        (["--tp=2", "--vocabulary=32"], "the grammar uses 64 words; choose as many"),
        (["--tp=2", "--lr=-1"], "choose a rate of 0 or more"),
        (["--tp=2", "--dropout=1"], "choose 0 or more, and less than 1"),
        (["--dp=2", "--experts=1"], "give --experts 2 or more"),
        (["--gpus=2"], "unknown: --gpus=2"),
    ],
)
def test_a_run_that_cannot_be_is_refused_by_one_rank_with_status_2(
    arguments: list[str], says: str, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    lab = script(TRAIN)
    monkeypatch.setattr("sys.argv", ["train.py", *arguments])
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "0")
    assert lab.main() == 2
    assert says in capsys.readouterr().err
    monkeypatch.setenv("RANK", "1")
    assert lab.main() == 0
    assert capsys.readouterr() == ("", "")


# ---------------------------------------------------------------------- what the pages show


@pytest.mark.usefixtures("pages_on_pool")
def test_sequence_parallelism_sends_a_quarter_more_and_norms_are_eight_bytes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lab_01, "COUNTED", {n: lab_01.COUNTED[n] for n in ("tp", "sp", "pp")})
    counts = lab_01.counts_of.__wrapped__()
    sent = {name: sum(e.wire for e in entries) for (name, _), entries in counts.items()}
    assert 1.2 < sent["sp"] / sent["tp"] < 1.3
    norms = [e for entries in counts.values() for e in entries if e.axis == "tensor-pipeline"]
    assert norms and all((e.op, e.payload) == ("all_reduce", 8) for e in norms)
