"""`tools/bench predict`: what it prints, what own runs change, what it refuses."""

import json
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner, Result

from costlab.cli import bench
from costlab.layouts.predict import predict, rank
from costlab.layouts.runs import Run

LLAMA = Run(
    card="H100", ranks=64, layers=80, hidden=8192, ffn=28672, heads=64, kv_heads=8, gated=True,
    vocabulary=128256, sequence=8192, global_batch=128, stack="megatron-core", tensor=4, stages=8,
)  # fmt: skip
NAMED = ("card", "ranks", "layers", "hidden", "ffn", "heads", "kv_heads", "vocabulary", "sequence",
         "global_batch", "stack", "tensor", "stages")  # fmt: skip


def ask(*more: str, without: str = "") -> Result:
    words = [
        f"--{name.replace('_', '-')}={getattr(LLAMA, name)}" for name in NAMED if name != without
    ]
    return CliRunner().invoke(bench, ["predict", "--gated", *words, *more])


def test_terms_add_up_to_the_step_inside_its_interval() -> None:
    done = ask("--output-format", "json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.output)
    assert sum(found["terms"].values()) == pytest.approx(found["seconds"])
    assert found["low"] < found["seconds"] < found["high"]
    assert found["dominating"] == max(found["terms"], key=found["terms"].get) == "products"
    assert 0.3 < found["mfu"] < 0.7
    assert "own runs: 0" in ask().output


def test_own_runs_move_the_prediction_to_them_and_narrow_its_interval() -> None:
    plain = predict([LLAMA])[0]
    own = msgspec.structs.replace(LLAMA, tensor=8, stages=4, seconds=20.0)
    assert own.seconds > predict([own])[0].seconds
    once = predict([LLAMA], [own])[0]
    often = predict([LLAMA], [own] * 8)[0]
    assert plain.seconds < once.seconds < often.seconds
    assert often.high / often.low < plain.high / plain.low
    assert predict([own], [own] * 8)[0].seconds == pytest.approx(20, rel=0.02)


def test_a_search_ranks_what_fits_fastest_first() -> None:
    done = ask("--search", "--output-format", "json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.output)
    seconds = [layout["seconds"] for layout in found]
    assert len(found) > 5
    assert seconds == sorted(seconds)
    assert max(layout["gb"] for layout in found) <= 80 * 1.024**3
    again = json.loads(ask("--tensor", str(found[0]["run"]["tensor"]),
                           "--stages", str(found[0]["run"]["stages"]),
                           "--micro-batch", str(found[0]["run"]["micro_batch"]),
                           "--recompute", found[0]["run"]["recompute"],
                           "--output-format", "json").output)  # fmt: skip
    assert again["seconds"] == pytest.approx(seconds[0])


def test_a_config_names_the_model(tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    config.write_text(json.dumps({
        "model_type": "llama", "num_hidden_layers": 80, "hidden_size": 8192, "vocab_size": 128256,
        "intermediate_size": 28672, "num_attention_heads": 64, "num_key_value_heads": 8,
        "rope_theta": 5e5, "strange": 1,
    }))  # fmt: skip
    run = ["--card=H100", "--ranks=64", "--stack=megatron-core", "--global-batch=128"]
    run += ["--tensor=4", "--stages=8", "--sequence=8192", "--output-format=json"]
    refused = CliRunner().invoke(bench, ["predict", f"--config={config}", *run])
    assert refused.exit_code == 2
    assert "unknown keys 'strange'" in refused.output
    done = CliRunner().invoke(bench, ["predict", f"--config={config}", "--ignore=strange", *run])
    assert done.exit_code == 0, done.output
    assert json.loads(done.output) == json.loads(ask("--output-format=json").output)


EXPERTS = msgspec.structs.replace(LLAMA, experts=8, top_k=2, expert=8, tensor=1, ffn=14336)


def test_a_model_with_experts_has_its_own_wider_interval() -> None:
    dense, sparse = predict([LLAMA])[0], predict([EXPERTS])[0]
    assert sparse.high / sparse.seconds > 1.2 * dense.high / dense.seconds
    done = ask("--experts=8", "--top-k=2", "--expert=8", "--tensor=1", "--ffn=14336",
               "--output-format=json")  # fmt: skip
    assert json.loads(done.output)["seconds"] == pytest.approx(sparse.seconds)


def test_a_search_cuts_experts_over_ranks_and_counts_their_memory() -> None:
    run = msgspec.structs.replace(EXPERTS, layers=16, hidden=4096, heads=32, tensor=1, stages=1)
    ranked = rank(run)
    assert {layout.run["expert"] for layout in ranked} == {1, 2, 4, 8}
    gb = {layout.run["expert"]: layout.gb for layout in ranked
          if (layout.run["tensor"], layout.run["stages"], layout.run["micro_batch"],
              layout.run["recompute"]) == (1, 8, 1, "full")}  # fmt: skip
    assert gb[1] > gb[8]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--tensor=3"], "3 x stages"),
        (["--tensor=3", "--ranks=48", "--stages=8"], "must divide 64 heads"),
        (["--stages=64", "--chunks=2", "--tensor=1"], "64 stages x 2 chunks are more than 80"),
        (["--card=H90"], "--card 'H90' is unknown; choose A100-40"),
        (["--stack=x"], "--stack 'x' is unknown; choose megatron"),
        (["--dtype=fp7"], "--dtype 'fp7' is unknown"),
        (["--card=A100-80", "--dtype=fp8"], "A100-80 has no fp8"),
        (["--global-batch=0"], "--global-batch is 0; it must be from 1"),
        (["--layers=-1"], "layers = -1: choose a whole number from 1"),
        (["--hidden=99999999999"], "hidden = 99,999,999,999: at most"),
        (["--global-batch=7"], "a batch of 7 is not a whole number of micro-batches"),
        (["--zero=4"], "--zero 4 is unknown; choose 0, 1, 2, 3"),
        (["--top-k=2"], "--top-k 2 of 0 experts"),
        (["--experts=8", "--top-k=9"], "top_k = 9 of 8 experts"),
        (["--experts=8", "--top-k=0"], "top_k = 0: choose a whole number from 1"),
        (["--experts=8", "--top-k=2", "--expert=16"], "--expert 16 must divide 8 experts"),
        (["--expert=2"], "--expert 2 must divide 0 experts"),
        (["--measured=tensor=4"], "needs seconds=NUMBER"),
        (["--measured=tensor=4,seconds=nan"], "needs seconds=NUMBER"),
        (["--measured=nonsense"], "write NAME=VALUE"),
        (["--measured=tensor=x,seconds=3"], "Expected `int`"),
        (["--search", "--card=A100-40", "--ranks=8", "--global-batch=8"], "no layout of 8 A100-40"),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(more: list[str], said: str) -> None:
    done = ask(*more)
    assert done.exit_code == 2, done.output
    assert said.replace("3 x stages", "tensor x stages x context = 24") in done.output
    assert "Traceback" not in done.output


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ("{", "this is no config.json"),
        ('{"model_type": "strange", "hidden_size": 8}', "model_type 'strange' is unknown"),
        ('{"model_type": "llama", "hidden_size": "wide"}', "is no whole number"),
        ('{"model_type": "llama", "hidden_size": 8}', "num_hidden_layers is missing"),
        (
            '{"model_type": "qwen2_moe", "num_experts": 8, "hidden_size": 8, "vocab_size": 8,'
            ' "shared_expert_intermediate_size": 8, "num_hidden_layers": 8,'
            ' "num_attention_heads": 8}',
            "layers with shared experts",
        ),
    ],
)
def test_a_config_that_says_too_little_is_refused(tmp_path: Path, config: str, said: str) -> None:
    path = tmp_path / "config.json"
    path.write_text(config)
    run = ["--card=H100", "--ranks=8", "--stack=fsdp", "--global-batch=8", "--sequence=8"]
    done = CliRunner().invoke(bench, ["predict", *run, f"--config={path}"])
    assert done.exit_code == 2, done.output
    assert said in done.output


def test_the_stack_has_no_default() -> None:
    done = ask(without="stack")
    assert done.exit_code == 2
    assert "--stack" in done.output
