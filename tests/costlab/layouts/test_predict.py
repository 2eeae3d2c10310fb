"""`tools/bench predict`: what it prints, what own runs change, what it refuses."""

import json
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner, Result

from costlab.cli import bench
from costlab.layouts.model_config import FACTS
from costlab.layouts.predict import flops_per_token, predict, rank
from costlab.layouts.runs import Run

LLAMA = Run(
    card="H100", ranks=64, layers=80, hidden=8192, ffn=28672, heads=64, kv_heads=8, gated=True,
    vocabulary=128256, sequence=8192, global_batch=128, stack="megatron-core", tensor=4, stages=8,
)  # fmt: skip
NAMED = ("card", "ranks", "layers", "hidden", "ffn", "heads", "kv_heads", "vocabulary", "sequence",
         "global_batch", "stack", "tensor", "stages")  # fmt: skip


def ask(*more: str, without: tuple[str, ...] = ()) -> Result:
    words = [
        f"--{name.replace('_', '-')}={getattr(LLAMA, name)}"
        for name in NAMED if name not in without
    ]  # fmt: skip
    return CliRunner().invoke(bench, ["predict", "--gated", "--zero=1", *words, *more])


def test_terms_add_up_to_the_step_inside_its_interval() -> None:
    done = ask("--output-format", "json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.output)
    assert sum(found["terms"].values()) == pytest.approx(found["seconds"])
    assert found["low"] < found["seconds"] < found["high"]
    assert found["dominating"] == max(found["terms"], key=found["terms"].get) == "products"
    assert 0.3 < found["mfu"] < 0.7
    layer = 8192 * (2 * 128 * (64 + 8) + 3 * 28672)
    assert flops_per_token(LLAMA) == 6 * (80 * layer + 8192 * 128256) + 6 * 80 * 8192 * 8192
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
    done = ask("--search", "--output-format", "json", without=("tensor", "stages"))
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
    run = ["--card=H100", "--ranks=64", "--stack=megatron-core", "--global-batch=128", "--zero=1"]
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


def test_a_named_setting_of_a_layout_stays_in_a_search() -> None:
    named = ask("--search", "--output-format=json", without=("stages",))
    assert {layout["run"]["tensor"] for layout in json.loads(named.output)} == {4}


def test_fits_and_predict_have_the_same_options_of_a_model_and_a_plan() -> None:
    """But --measured, whose number has another unit."""
    first, second = (
        {option.name: option.to_info_dict() for option in bench.commands[name].params}
        for name in ("fits", "predict")
    )
    names = {"card", "config", "ignore", "output_format", *FACTS["options"]["model"],
             *FACTS["options"]["plan"]}  # fmt: skip
    names = {name.partition("/")[0].replace("-", "_") for name in names}
    assert names == first.keys() & second.keys() - {"measured"}
    assert [first[name] for name in sorted(names)] == [second[name] for name in sorted(names)]


@pytest.mark.parametrize(
    "wrong",
    ["--tensor=3", "--stages=64", "--hidden=0", "--ranks=1" + 30 * "0", "--chunks=0", "--expert=2",
     "--card=H99", "--recompute=all", "--measured=nan", "--measured=tensor=x", "--heads=31",
     "--top-k=2", "--config=nowhere.json", "--norm=x", "--stages=5", "--context=3"],
)  # fmt: skip
def test_fits_and_predict_refuse_the_same_in_the_same_words(wrong: str) -> None:
    words = ["--card=H100", "--ranks=8", "--layers=32", "--hidden=4096", "--heads=32",
             "--vocabulary=128256"]  # fmt: skip
    answers = [
        CliRunner().invoke(bench, [*command.split(), *words, wrong])
        for command in ("fits --program=megatron", "predict --stack=megatron-core")
    ]
    first, second = (done.output.splitlines()[-1].replace("gib", "seconds") for done in answers)
    assert [done.exit_code for done in answers] == [2, 2]
    assert first == second


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--stages=64", "--chunks=2", "--tensor=1"], "128 pieces of a pipeline"),
        (["--stack=x"], "'x' is not one of 'megatron'"),
        (["--dtype=fp7"], "'fp7' is not one of 'fp16'"),
        (["--card=A100-80", "--dtype=fp8"], "A100-80 has no fp8"),
        (["--top-k=2"], "top-k = 2 of 0 experts"),
        (["--experts=8", "--top-k=9"], "top-k = 9 of 8 experts"),
        (["--experts=8", "--top-k=0"], "top-k = 0: choose a whole number from 1"),
        (
            ["--experts=8", "--top-k=2", "--expert=16"],
            "expert × expert-tensor = 16 ranks do not divide",
        ),
        (["--measured=tensor=4"], "seconds must be a number above 0"),
        (["--measured=tensor=4,seconds=nan"], "seconds must be a number above 0"),
        (["--measured=nonsense"], "seconds: 'nonsense' is not a valid float"),
        (
            ["--search", "--card=A100-40", "--ranks=8", "--global-batch=8", "--stages=1"],
            "no layout of 8 A100-40",
        ),
        (["--network=nan"], "network = nan: choose Gbit/s from 0"),
        (["--recompute=alternate"], "choose --zero 3"),
        (["--search", "--tensor=3"], "tensor × stages × context = 24 does not divide 64"),
        (["--search", "--global-batch=3"], "do not divide a global batch of 3"),
    ],
)
def test_what_predict_alone_asks_is_refused_in_a_sentence(more: list[str], message: str) -> None:
    done = ask(*more)
    assert done.exit_code == 2, done.output
    assert message in done.output
    assert "Traceback" not in done.output


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ("{", "this is no config.json"),
        ('{"model_type": "llama", "hidden_size": 8}', "num_hidden_layers is missing"),
        (
            '{"model_type": "qwen2_moe", "num_experts": 8, "hidden_size": 8, "vocab_size": 8,'
            ' "shared_expert_intermediate_size": 8, "num_hidden_layers": 8,'
            ' "num_attention_heads": 8}',
            "layers with shared experts",
        ),
    ],
)
def test_a_config_that_says_too_little_is_refused(
    tmp_path: Path, config: str, message: str
) -> None:
    path = tmp_path / "config.json"
    path.write_text(config)
    run = ["--card=H100", "--ranks=8", "--stack=fsdp", "--global-batch=8", "--sequence=8"]
    done = CliRunner().invoke(bench, ["predict", *run, f"--config={path}"])
    assert done.exit_code == 2, done.output
    assert message in done.output
    done = ask(without=("stack",))  # it has no default
    assert (done.exit_code, "--stack" in done.output) == (2, True)
