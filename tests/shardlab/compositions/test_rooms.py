"""Each room of the museum shows its fault, and the numbers that the museum's page prints."""

from __future__ import annotations

import math
from typing import Any

import pytest

from pages.museum import LAB, Numbers, program, recorded
from pages.programs import script
from shardlab.comm import World

ALIKE = {"rel": 1e-5, "abs": 1e-9}  # between machines: sums in fp32 come in another order
CHANGED = (
    "the source has fixed this, or the fault is another one: `python -m pages museum --record`, "
    "and set `fixed` in rooms.toml"
)


def show(world: World, names: list[str]) -> list[Numbers]:
    rooms: list[Numbers] = script(LAB / "museum.py").show(world, names)
    return rooms


def measured(pool: Any, name: str) -> Numbers:
    """Run a room and compare it with the record; return its numbers."""

    def run(size: int, _: Any, names: list[str]) -> list[list[Numbers]]:
        return pool(size).run(show, names)

    numbers: Numbers = program().measure([name], run)[name]
    assert numbers == pytest.approx(recorded()[name], **ALIKE), CHANGED
    return numbers


def demand_datasets() -> None:
    """Skip the test where Megatron's wheel has no datasets."""
    from tests.shardlab.data import megatron_data  # noqa: F401


def test_a_strided_gradient_comes_back_as_it_was(pool: Any) -> None:
    numbers = measured(pool, "strided-reduce")
    assert numbers["megatron"] > 0.5
    assert numbers["ours"] == 0


def test_a_smoothed_loss_differs_from_rank_to_rank(pool: Any) -> None:
    numbers = measured(pool, "label-smoothing")
    assert numbers["rank 0"] < numbers["right"] - 0.05
    assert numbers["rank 1"] > numbers["right"] + 0.1


def test_gathered_logits_are_taken_for_shards_and_the_loss_grows_by_log_two(pool: Any) -> None:
    numbers = measured(pool, "gathered-logits")
    assert numbers["off"] == pytest.approx(math.log(2), abs=1e-6)
    assert numbers["gradient"] > 0.1


def test_the_norm_leaves_out_the_sinks_of_all_heads_but_the_first_ranks(pool: Any) -> None:
    numbers = measured(pool, "attention-sink-norm")
    assert numbers["ratio"] == pytest.approx((30 / 204) ** 0.5)


def test_a_norm_that_nobody_marked_keeps_the_gradient_of_its_own_tokens(pool: Any) -> None:
    numbers = measured(pool, "norms-under-sequence-parallelism")
    assert numbers["unmarked"] > 0.1
    assert numbers["marked"] < 1e-6


def test_at_one_expert_rank_experts_are_reduced_over_the_dense_groups(pool: Any) -> None:
    numbers = measured(pool, "expert-gradients")
    assert all(numbers[layout] > 0.5 for layout in ("tp2 etp1", "tp1 etp2"))
    assert all(numbers[layout] < 1e-12 for layout in ("dp2", "ep2", "tp2 etp2", "tp2 ep2"))


def test_the_norm_leaves_out_the_experts_of_every_tensor_rank_but_one(pool: Any) -> None:
    numbers = measured(pool, "expert-norm")
    assert numbers["initialized"] == pytest.approx(numbers["right"])
    assert numbers["ratio"] == pytest.approx(0.5**0.5)


def test_the_larger_the_micro_batch_the_smaller_the_sequence_loss(pool: Any) -> None:
    numbers = measured(pool, "auxiliary-loss-batch")
    assert numbers["ratio"] == pytest.approx(0.5)
    assert numbers["off the line"] < 1e-6


def test_the_more_tensor_ranks_the_smaller_the_auxiliary_loss(pool: Any) -> None:
    numbers = measured(pool, "auxiliary-loss-tensor")
    assert numbers["ratio"] == pytest.approx(0.5)
    assert numbers["off the line"] < 1e-6


def test_an_expert_left_out_of_the_average_has_a_gradient_too_large_by_the_ranks(pool: Any) -> None:
    numbers = measured(pool, "experts-beside-ddp")
    assert numbers["ratio"] == pytest.approx(2)
    assert numbers["off the line"] < 1e-12


def test_a_lone_token_counts_half_where_its_sequence_is_cut_in_two(pool: Any) -> None:
    numbers = measured(pool, "context-masked")
    assert numbers["by default, ratio"] == pytest.approx(0.5)
    assert numbers["per token"] < 1e-12
    assert numbers["ours"] < 1e-12


def test_sinks_that_an_attention_swallows_change_nothing(pool: Any) -> None:
    numbers = measured(pool, "dropped-sinks")
    assert numbers["swallowed"] > 0.1
    assert numbers["without any"] < 1e-12
    assert numbers["refused"]


def test_a_mean_of_means_weighs_a_lone_token_as_much_as_seven(pool: Any) -> None:
    numbers = measured(pool, "unequal-tokens")
    assert numbers["by default"] > 0.1
    assert numbers["per token"] < 1e-12


def test_gloo_writes_into_a_strided_tensor_as_though_it_were_contiguous(pool: Any) -> None:
    numbers = measured(pool, "strided-gloo")
    assert all(wrong > 0 for wrong in numbers.values())


def test_an_average_of_norms_is_no_norm(pool: Any) -> None:
    assert measured(pool, "averaged-norm")["ratio"] == pytest.approx(0.661, abs=1e-3)


def test_a_no_sync_that_does_nothing_leaves_the_last_micro_batch_alone(pool: Any) -> None:
    numbers = measured(pool, "last-micro-batch")
    assert numbers["inherited"] > 0.3
    assert all(numbers[name] < 1e-12 for name in ("from the last", "told", "ours"))


def test_tokens_of_a_corpus_that_is_gone_end_the_process() -> None:
    demand_datasets()
    assert measured(None, "closed-corpus")["signal"] == 11  # SIGSEGV


def test_a_token_too_large_is_read_as_another() -> None:
    demand_datasets()
    assert measured(None, "narrow-tokens")["read"] == 70_000 - 2**16


def test_a_rewritten_corpus_is_read_by_its_old_indices() -> None:
    demand_datasets()
    numbers = measured(None, "rewritten-corpus")
    assert numbers["rewritten"] == numbers["first"] != numbers["right"]


def test_a_bin_that_was_cut_opens_and_fails_at_a_sample() -> None:
    demand_datasets()
    numbers = measured(None, "cut-tokens")
    assert numbers["opened"] > numbers["readable"]


def test_a_count_in_single_precision_loses_a_sample() -> None:
    demand_datasets()
    numbers = measured(None, "counted-samples")
    assert numbers["right"] - numbers["counted"] == 1


def test_a_blend_with_a_cache_wants_a_process_group() -> None:
    demand_datasets()
    assert measured(None, "blend-alone") == {"without": 8.0, "with": 0.0}


def test_on_disks_that_are_not_shared_one_rank_raises_and_one_goes_on(pool: Any) -> None:
    demand_datasets()
    assert measured(pool, "unshared-disks") == {"rank 0": 24.0, "rank 1": 0.0}


def test_the_program_lists_the_rooms_runs_one_and_refuses_another_name(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert program().main([]) == 0
    listed = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert sorted(listed) == sorted(recorded())
    assert program().main(["averaged-norm"]) == 0
    printed = dict(line.split() for line in capsys.readouterr().out.splitlines()[1:])
    assert float(printed["ratio"]) == pytest.approx(0.661, abs=1e-3)
    assert program().main(["averaged-norms"]) == 2
    assert "no room 'averaged-norms'; choose" in capsys.readouterr().err
