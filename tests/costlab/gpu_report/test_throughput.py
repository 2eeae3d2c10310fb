"""The GPT's line gives the memory that a step adds to the memory held between steps."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from costlab.gpu_report import throughput
from costlab.layouts.stack_memory import worst_rank
from shardlab.comm import Axis
from shardlab.gpt.model import GPT

GIB = 1 << 30


def test_the_peak_is_counted_from_what_is_held_once_the_optimizer_has_its_state(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A card's account, kept by hand: the processor does the work."""
    config = replace(throughput.MODELS["cpu"], layers=1, hidden=16, heads=1, vocab=64)
    model = GPT(config, tensor=Axis.alone(), device=torch.device("cpu"))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    begun: list[int] = []
    monkeypatch.setattr(throughput, "wait", lambda _: None)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda: 3 * GIB * bool(optimizer.state))
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda: begun.append(1))
    words_BS = torch.arange(2 * 32).view(2, -1)
    seconds, resting_bytes = throughput.timed(model, optimizer, words_BS, "cuda")
    assert resting_bytes == 3 * GIB and begun == [1] and len(seconds) == throughput.STEPS - 3


def test_the_line_says_the_peak_and_what_of_it_is_the_steps_own() -> None:
    line = throughput.memory(3 * GIB, 5 * GIB)
    assert "peak memory 5.0 GiB: 3.0 between steps" in line and "2.0 of a step's own" in line


def test_the_models_of_the_memory_cases_have_the_parameters_that_fits_counts() -> None:
    """As they are drawn on the device: `to_empty` had untied embeddings that were counted once."""
    for kind in throughput.KINDS.values():
        config = throughput.configured(kind, 64, "cpu")
        model = throughput.draw_model(config, torch.device("cpu"))
        sizes, plan = throughput.described(config, 2, 64)
        parameters = sum(p.numel() for p in model.parameters())
        assert worst_rank(sizes, plan)["weights"] == 2 * parameters
    with pytest.raises(ValueError, match="to_empty unties them"):
        throughput.draw_model(replace(config, tie_embeddings=True), torch.device("cpu"))
