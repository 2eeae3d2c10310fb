"""`tools/bench fits`: its verdicts on published runs, what own runs change, and bad input."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from click.testing import CliRunner

from costlab.cli import bench
from costlab.layouts import memory, runs
from costlab.layouts.model import Model, Plan, layers_of_stages
from costlab.layouts.model_config import model_from
from costlab.layouts.stack_memory import (
    GIB,
    estimate,
    plan_of,
    published_ranks,
    usable_bytes,
    worst_rank,
)
from tests.docs.page import ROOT

LLAMA_8B = {
    "model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32, "rope_theta": 5e5,
    "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336,
    "vocab_size": 128256, "max_position_embeddings": 8192, "tie_word_embeddings": False,
}  # fmt: skip
TWO_STAGES = "--stages 2 --layers-of-stages"


WORDS = ("fits", "too close to say", "probably does not fit")


def fits(tmp_path: Path, options: str, config: dict[str, Any] = LLAMA_8B) -> Any:
    file = tmp_path / "config.json"
    file.write_text(json.dumps(config), "utf-8")
    arguments = ["fits", "--card", "H100", "--program", "megatron", "--config", str(file)]
    return CliRunner().invoke(bench, [*arguments, *options.split()])


@pytest.fixture(scope="module")
def published() -> list[Any]:
    return published_ranks()


@pytest.mark.parametrize(("source", "least"), [("bloom-prequel", 0.8), ("hagemann-2023", 0.6)])
def test_no_published_run_out_of_memory_fits_and_none_that_ran_does_not(
    published: list[Any], source: str, least: float
) -> None:
    verdicts: dict[bool, list[str]] = {True: [], False: []}
    for run, rank, _ in published:
        if run.source == source:
            verdict = estimate(rank).verdict(usable_bytes(run.card))
            verdicts[run.outcome == "oom"].append(verdict)
    out, ran = verdicts[True], verdicts[False]
    assert len(out) >= 6
    assert "fits" not in out
    assert "does not fit" not in ran
    assert ran.count("fits") >= least * len(ran)


def errors(rows: list[Any], count: int) -> float:
    draw, missed = np.random.default_rng(0), []
    for _ in range(100):
        order = draw.permutation(len(rows))
        own = [rows[index][1:] for index in order[:count]]
        for index in order[count:]:
            _, rank, measured = rows[index]
            missed.append(abs(estimate(rank, own).likely / measured - 1))
    return float(np.mean(missed))


def test_own_runs_bring_the_mean_error_down(published: list[Any]) -> None:
    bloom, titan = (
        [row for row in published if row[0].source == source and row[2]]
        for source in ("bloom-prequel", "torchtitan")
    )
    assert errors(bloom, 1) <= 0.08
    assert errors(bloom, 4) <= 0.06
    assert errors(titan, 1) <= 0.08
    assert errors(titan, 4) <= 0.06


@pytest.fixture(scope="module")
def missed_after_choosing(published: list[Any]) -> tuple[str, str]:
    """Return how far two kinds of estimate are off: by four other runs, and by another rule."""
    rows = [row for row in published if row[0].source == "torchtitan" and row[2]]
    several = [row for row in rows if row[0].stages > 1 and row[0].micro_batch > 1]
    others = [row for row in rows if row not in several]
    assert len(several) == 2
    draw, missed = np.random.default_rng(0), []
    for _ in range(400):
        own = [others[index][1:] for index in draw.permutation(len(others))[:4]]
        missed += [abs(estimate(rank, own).likely / measured - 1) for _, rank, measured in several]
    with patch.object(memory, "larger_of", lambda loss, made, _: (loss, made)):
        ranks = [worst_rank(*plan_of(run)) for run, _, _ in rows]
    summed = [
        abs(estimate(rank).likely / measured - 1)
        for rank, (_, _, measured) in zip(ranks, rows, strict=True)
    ]
    return f"{100 * np.mean(missed):.1f} %", f"{100 * np.mean(summed):.1f} %"


@pytest.mark.parametrize("page", ["bench.md", "bench.es.md"])
def test_the_bench_page_says_what_was_chosen_after_the_rows_were_read(
    missed_after_choosing: tuple[str, str], page: str
) -> None:
    text = (ROOT / "docs/reference" / page).read_text("utf-8").replace("\N{NO-BREAK SPACE}", " ")
    for share in missed_after_choosing:
        assert share in text
    ranks = [(run.card, worst_rank(*plan_of(run))) for run in runs.unseen() if not run.experts]
    verdicts = [estimate(rank).verdict(usable_bytes(card)) for card, rank in ranks]
    sentence = (
        r"(\d+) (?:rows|filas) (?:of|de) \[DGX Cloud\].*?: (\d+) .*?\*fits\*, (\d+) "
        r"\*too close to say\* (?:and|y) (\d+) \*probably does not fit\*"
    )
    words = re.search(sentence, " ".join(text.split()))
    counted = [verdicts.count(word) for word in WORDS]
    counts = [len(verdicts), *counted]
    assert words and [int(number) for number in words.groups()] == counts
    assert counts[0] == sum(counted)


@pytest.mark.parametrize("page", ["bench.md", "bench.es.md"])
def test_of_published_runs_that_probably_do_not_fit_most_ran_out_of_memory(
    published: list[Any], page: str
) -> None:
    outcomes = [
        run.outcome == "oom"
        for run, rank, _ in published
        if estimate(rank).verdict(usable_bytes(run.card)) == "probably does not fit"
    ]
    text = " ".join((ROOT / "docs/reference" / page).read_text("utf-8").split())
    words = re.search(
        r"(\d+) (?:published runs are called|ejecuciones publicadas reciben) "
        r"\*probably does not fit\*: (\d+) .*? (?:and|y) (\d+) ",
        text,
    )
    wanted = [len(outcomes), outcomes.count(True), outcomes.count(False)]
    assert words and [int(number) for number in words.groups()] == wanted
    assert wanted[1] > 3 * wanted[2]


def test_several_sequences_and_chunks_need_more_buffers_of_torchs_programs() -> None:
    model = Model(layers=8, hidden=64, heads=4, vocabulary=256, gated=True, bias=False)
    plan = Plan(tensor=2, stages=2, global_batch=4, sequence=128, zero=3, recompute="full",
                sequence_parallel=True, gathered_inputs=True)  # fmt: skip
    one, several = (
        memory.rank_lines(
            model, plan.changed(micro_batch=b, sequence=256 // b, global_batch=4 * b), 0
        )
        for b in (1, 2)
    )
    gathered = 2 * 256 * 64
    key = ("buffers", "of-backward")
    assert several[key] - one[key] == 5 * gathered  # two inputs, and three gradients
    two = memory.rank_lines(model, plan.changed(chunks=2), 0)["buffers", "sent"]
    live = memory.live_pieces(plan.changed(chunks=2), 0)
    assert two == 2 * (128 * 64 * 2 / 2) * (4 + live)


def test_fsdp_on_a_pipeline_keeps_a_stage_gathered_and_a_chunks_gradients() -> None:
    """As torchtitan does; its published rows differ by what is counted here."""
    model = Model(layers=8, hidden=64, heads=4, vocabulary=256, gated=True, bias=False, tied=False)
    plan = Plan(stages=4, data=2, zero=3, global_batch=8, sequence=64, gradient=4)
    layer, narrow = sum(memory.layer_parameters(model, plan, 0)), 64 * 64 * 2
    buffers = memory.rank_bytes(model, plan, 1)["buffers"]
    for changed, less in (
        (plan.changed(gathered=1), 2 * layer),
        (plan.changed(chunks=2), 4 * layer),
        (plan.changed(chunks=2, global_batch=16), 0),
    ):
        other = memory.rank_bytes(model, changed, 1)["buffers"]
        before, after = (
            each.chunks * (each.micro_batches + memory.live_pieces(each, 1))
            for each in (plan, changed)
        )
        assert buffers - other == less + (before - after) * narrow


def test_a_compiled_program_needs_less_for_its_layers_and_its_loss() -> None:
    model = Model(layers=2, hidden=64, heads=4, vocabulary=4096, gated=True, bias=False)
    eager = Plan(data=2, zero=3, global_batch=2, sequence=64, recompute="alternate", loss_copies=2)
    compiled = eager.changed(loss_copies=0, logits=2, compiled=True)
    first, second = (memory.rank_bytes(model, plan, 0) for plan in (eager, compiled))
    outputs, words = 2 * 64 * 64 * 2, 64 * 4096
    assert first["activations"] - second["activations"] == outputs
    assert first["logits"] - second["logits"] == 2 * words
    assert first["buffers"] > second["buffers"]


def test_the_fullest_stage_decides_and_a_change_is_named_as_it_is_typed(tmp_path: Path) -> None:
    result = fits(tmp_path, "--sequence 8192 --micro-batch 2 --output-format json")
    report = json.loads(result.stdout)
    assert report["verdict"] == "does not fit"
    found = report["nearest"][0]["change"]
    again = fits(tmp_path, f"--sequence 8192 --micro-batch 2 {found} --output-format json")
    second = json.loads(again.stdout)
    assert second["verdict"] == "fits"
    assert second["counted"] == report["nearest"][0]["counted"]
    assert second["high"] <= second["room"]


def test_measured_runs_move_the_estimate(tmp_path: Path) -> None:
    options = "--sequence 8192 --tensor 4 --zero 1 --output-format json"
    likely = [
        json.loads(fits(tmp_path, f"{options} {own}").stdout)["likely"] / GIB
        for own in ("", "--measured 45", "--measured 45 --measured tensor=8,gib=30")
    ]
    assert abs(likely[1] - 45) < abs(likely[0] - 45)
    assert likely[2] != likely[1]


def test_a_small_own_run_leaves_a_large_layouts_interval_as_narrow_as_without_it() -> None:
    """As on an H200: 10 GiB measured where 10 were counted, and a layout eight times as large."""
    small = {"weights": 2.0 * GIB, "gradients": 2 * GIB, "optimizer": 4 * GIB, "buffers": 2 * GIB}
    large = small | {"buffers": 70 * GIB}
    alone, own = estimate(large), estimate(large, [(small, 10 * GIB)])
    assert alone.low <= own.low and own.high <= alone.high
    assert estimate(large, [(small, 9 * GIB)]).low < alone.low  # less than all runs known before
    assert estimate(large, [(small, 17 * GIB)]).high > alone.high


def test_an_own_run_has_the_options_ranks_in_its_own_layout(tmp_path: Path) -> None:
    options = "--sequence 8192 --tensor 4 --zero 1 --output-format json"
    answer = json.loads(fits(tmp_path, f"{options} --measured tensor=8,gib=30").stdout)
    model = model_from(tmp_path, (), {})
    two, one = (
        Plan(tensor=tensor, data=8 // tensor, global_batch=8 // tensor, sequence=8192, zero=1,
             pad=128)
        for tensor in (4, 8)
    )  # fmt: skip
    own = [(worst_rank(model, one), 30 * GIB)]
    assert answer["likely"] == pytest.approx(estimate(worst_rank(model, two), own).likely)


def test_stages_needn_t_be_equal_and_interleaved_ones_have_every_pth_piece() -> None:
    model = Model(layers=8, hidden=64, heads=4, vocabulary=256)
    uneven = layers_of_stages(model, Plan(stages=3, layers=(1, 4, 3), global_batch=4))
    assert uneven == (((0,),), ((1, 2, 3, 4),), ((5, 6, 7),))
    pieces = layers_of_stages(model, Plan(stages=2, chunks=2, global_batch=4))
    assert pieces == (((0, 1), (4, 5)), ((2, 3), (6, 7)))


def test_with_uneven_stages_another_rank_than_the_first_may_be_the_worst() -> None:
    model = Model(layers=8, hidden=64, heads=4, vocabulary=256)
    plan = Plan(stages=2, layers=(1, 7), global_batch=2, sequence=64)
    assert memory.worst(memory.all_ranks(model, plan)) == 1


def test_experts_are_cut_over_their_own_ranks() -> None:
    model = Model(layers=2, hidden=64, heads=4, vocabulary=256, experts=8, bias=False)
    one, cut = (memory.parameters(model, Plan(data=8, global_batch=8, expert=e), 0) for e in (1, 4))
    assert one[0] == cut[0]
    assert one[1] == 4 * cut[1]


def test_zero_cuts_an_experts_state_over_the_ranks_that_hold_that_expert() -> None:
    model = Model(layers=2, hidden=64, heads=4, vocabulary=256, experts=8, bias=False)
    plan = Plan(data=8, global_batch=8, expert=4, zero=1)
    dense, experts = memory.parameters(model, plan, 0)
    assert memory.rank_bytes(model, plan, 0)["optimizer"] == 12 * (dense / 8 + experts / 2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--tensor 3 --ranks 3", "tensor = 3 does not divide 32 heads"),
        ("--tensor 3", "does not divide 8 ranks"),
        ("--stages 64 --ranks 64", "but the model has 32 layers"),
        ("--card H99", "'H99' is not one of 'A100-40'"),
        ("--hidden -1", "hidden = -1: choose a whole number from 1"),
        ("--hidden 99999999999", "at most 1,048,576"),
        ("--ranks 0", "ranks = 0: choose a whole number from 1"),
        ("--zero 4", "choose 0, 1, 2 or 3"),
        ("--recompute all", "'all' is not one of 'none', 'selective'"),
        ("--expert 2", "does not divide 0 experts"),
        (f"{TWO_STAGES} 30,1", "whose sum is 32"),
        (f"{TWO_STAGES} a,b", "write whole numbers"),
        (f"{TWO_STAGES} {'9' * 5000}", "write whole numbers"),
        ("--measured card=H200,gib=3", "with the names of options"),
        ("--measured tensor=2,tensor=4,gib=3", "each once"),
        ("--global-batch 3", "do not divide a global batch of 3"),
        ("--measured -3", "gib must be a number above 0"),
        ("--measured tensr=2,gib=3", "with the names of options"),
        ("--measured tensor=x,gib=3", "tensor: 'x' is not a valid integer"),
        ("--measured tensor=3,gib=3", "does not divide 8 ranks"),
        ("--measured 7", "weights, gradients and optimizer alone take 135 GiB of that layout"),
    ],
)
def test_an_impossible_plan_is_refused_in_a_sentence(
    tmp_path: Path, options: str, message: str
) -> None:
    result = fits(tmp_path, options)
    assert result.exit_code == 2
    assert message in result.output


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (LLAMA_8B | {"kv_lora_rank": 512}, "unknown keys 'kv_lora_rank'"),
        (LLAMA_8B | {"model_type": "deepseek_v3"}, "model_type 'deepseek_v3' is unknown"),
        (LLAMA_8B | {"model_type": ["llama"]}, "is unknown"),
        (LLAMA_8B | {"hidden_size": "4096"}, "is no whole number"),
        (LLAMA_8B | {"hidden_size": None}, "hidden_size is missing"),
        (LLAMA_8B | {"tie_word_embeddings": "no"}, "is neither true nor false"),
        (LLAMA_8B | {"model_type": "gpt2", "n_positions": "x"}, "n_positions = 'x' is no whole"),
        (LLAMA_8B | {"num_attention_heads": 24}, "24 heads do not divide hidden"),
        (LLAMA_8B | {"num_key_value_heads": 7}, "kv-heads = 7 does not divide 32 heads"),
    ],
)
def test_a_config_that_is_not_understood_is_refused_in_a_sentence(
    tmp_path: Path, config: dict[str, Any], message: str
) -> None:
    result = fits(tmp_path, "", config)
    assert result.exit_code == 2
    assert message in result.output


def test_an_unknown_key_can_be_accepted(tmp_path: Path) -> None:
    config = LLAMA_8B | {"new_key": 1}
    assert fits(tmp_path, "--ignore new_key --ranks 64 --tensor 8", config).exit_code == 0


def test_a_config_has_the_models_parameters(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps(LLAMA_8B), "utf-8")
    model = model_from(tmp_path, (), {})
    assert sum(memory.parameters(model, Plan(), 0)) == 8_030_261_248  # as its card says
    assert model.gated
    assert model.kv_heads == 8


def test_fsdp_cuts_weights_where_no_option_says_otherwise(tmp_path: Path) -> None:
    plain, cut, whole = (
        fits(tmp_path, f"--program fsdp {more}--output-format json").output
        for more in ("", "--zero 3 ", "--zero 0 ")
    )
    assert plain == cut != whole
