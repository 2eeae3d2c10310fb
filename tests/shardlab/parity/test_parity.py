"""`python -m shardlab.parity`: right models are equal, planted faults are named with their fix."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pages.blocks import LANGUAGES, ROOT
from shardlab.parity import session
from shardlab.parity.__main__ import main
from shardlab.parity.case import SENTENCES, Case, ParityError, list_cases, make_case
from shardlab.parity.session import Result, Session
from shardlab.parity.subject import Subject
from tests.limits import LIMIT
from tests.shardlab import own_llama
from tests.shardlab.parity import faults
from tests.shardlab.pool import Pool

Pools = Callable[[int], Pool]


def session_of(pool: Pools, name: str, path: str = faults.__file__) -> Session:
    return Session(Subject(path, name), steps=2, limit=LIMIT, pools=pool)


def prove(parity: Session, count: int = 8) -> Result:
    """The first case that fails, as small as can be; or the last one."""
    cases = list_cases(parity.subject.supports, count=count, ranks=4, rows=8, seed=0)
    for case in cases:
        result = parity.run(case)
        if result.finding:
            return parity.explain(result, time.monotonic() + LIMIT)
    return result


FAULTS = [  # with the sentence that must be said, by its name, and what it must hold
    ("partial_norm", "gradient", "layers.1.norm2.weight", "parts-tensor", ""),
    ("tied_ends", "gradient", "embedding.weight", "parts-pipeline", ""),
    ("unmarked_experts", "gradient", "layers.1.mlp.experts.3.fc2.weight", "averaged-experts", ""),
    ("label_smoothing", "loss", "", "own-part", ""),
    ("wrong_positions", "loss", "", "context", ""),
    ("rotated_by_own_rows", "loss", "", "sequence_parallel", ""),
    ("mean_of_means", "loss", "", "plain", ""),
    ("unmarked_weight", "shape", "layers.1.q.weight", "unmarked", "Sharding(axis, 0, 16, padded)"),
    ("double_scaling", "loss", "", "scaled-loss", "by the 2 data ranks by the model"),
    ("bias_before_the_sum", "loss", "", "tensor", ""),
    ("missing_f", "gradient", "norm.weight", "parts-tensor", ""),
    ("renumbered_stage", "shape", "layers.2.norm1.weight", "missing", ""),
    ("summed_twice", "gradient", "norm.weight", "summed-again", "each of the 2 tensor ranks"),
    ("divided_twice", "gradient", "norm.weight", "divided-again", "by the 2 tensor ranks"),
    ("expert_scaled", "gradient", "layers.1.mlp.experts.3.fc2.weight", "scaled-expert", ""),
    ("negated_backward", "gradient", "norm.weight", "backward", ""),
    ("marked_as_an_expert", "gradient", "final_norm.weight", "parts", "each of the data ranks"),
    ("frozen_on_the_grid", "gradient", "norm.weight", "frozen", ""),
    ("stages_in_another_order", "loss", "", "pipeline", ""),
    ("named_otherwise", "shape", "extra", "renamed", ""),
    ("marked_and_whole", "shape", "norm.weight", "marked-whole", "dim 0 of length 16"),
    (
        "marked_along_another_dim", "shape", "layers.0.o.weight", "marked",
        "cuts dim 0 of length 16; sharding.mark(p, Sharding(axis, 1, 16, padded))",
    ),
    ("tied_copy_counted_twice", "norm", "", "norm", ""),
    ("later_steps_differ", "weight", "loss 1", "later", ""),
    ("raises_on_the_grid", "error", "", "raised", ""),
    ("tied_on_one_stage", "error", "", "collectives", ""),
]  # fmt: skip


def pattern(kind: str, name: str) -> str:
    """A regular expression of a sentence with any values in it."""
    sentence = re.escape(
        " ".join(SENTENCES[kind][name].split()).replace("{{", "{").replace("}}", "}")
    )
    return re.sub(r"\\\{\w.*?\\\}", ".*", sentence)


@pytest.mark.parametrize(
    ("name", "quantity", "parameter", "sentence", "words"), FAULTS, ids=lambda x: str(x)[:26]
)
def test_a_planted_fault_is_named(
    pool: Pools, name: str, quantity: str, parameter: str, sentence: str, words: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(session, "train_alone", faults.train_unchecked)  # right alone
    finding = prove(session_of(pool, name)).finding
    assert finding
    assert (finding.quantity, finding.name) == (quantity, parameter), finding
    assert re.fullmatch(pattern("cause", sentence), finding.cause), finding
    assert words in finding.cause
    assert name != "double_scaling" or finding.what.startswith("the loss is 0.50 times that of")


REFUSED = [
    ("dropout_under_recomputation", "derivative", "the backward of layers.0.down.weight isn't"),
    ("frozen_lora", "reentrant", "no gradient reaches layers.0.lora_a"),
    ("remembers", "state", ""),
    ("draws", "draws", ""),
    ("returns_a_dict", "output", "returns a dict"),
    ("moves_a_buffer", "buffer", "the buffer mean"),
    ("has_a_parameter_that_nothing_uses", "unused", "depend on unused: freeze"),
    ("narrow", "narrow", "embedding.weight is float32"),
    ("has_no_number_as_loss", "infinite", "batch(0) is nan"),
    ("has_many_losses", "loss", ""),
    ("has_no_loss", "no-loss", ""),
    ("trains_nothing", "nothing-trains", ""),
    ("builds_another_each_time", "builds", ""),
    ("has_a_list_as_batch", "batch", ""),
    ("no_module", "no-module", "no_module returned a dict"),
    ("absent", "no-attribute", "has no absent: write a function that returns a module"),
]


@pytest.mark.parametrize(("name", "sentence", "words"), REFUSED)
def test_a_model_that_can_not_be_compared_is_told_why(
    pool: Pools, name: str, sentence: str, words: str
) -> None:
    with pytest.raises(ParityError) as refused:
        session_of(pool, name).run(Case())
    assert re.fullmatch(pattern("refused", sentence), str(refused.value)), refused.value
    assert words in str(refused.value)


def test_a_pipeline_without_hidden_shape_is_told_to_write_it(pool: Pools) -> None:
    finding = session_of(pool, "has_no_hidden_shape").run(Case(pipeline=2)).finding
    assert finding
    assert re.fullmatch(f"rank . raised: {pattern('refused', 'hidden-shape')}", finding.what)


RIGHT = [
    (faults, "has_a_buffer", 3), (faults, "experts", 4), (faults, "sums", 4),
    (faults, "dense", 6), (own_llama, "build", 8),
    *(pytest.param(*of, marks=pytest.mark.ci)
      for of in ((faults, "dense", 16), (own_llama, "build", 20))),
]  # fmt: skip


@pytest.mark.parametrize(("file", "name", "count"), RIGHT)
def test_a_right_model_is_equal(pool: Pools, file: Any, name: str, count: int) -> None:
    session = session_of(pool, name, file.__file__)
    cases = list_cases(session.subject.supports, count=count, ranks=4, rows=8, seed=0)
    assert len(cases) > 1
    for case in cases:
        result = session.run(case)
        assert not result.finding, (str(case), result.finding)
        assert len(result.differences) > 50
        assert max(result.differences.values()) < 1e-11, str(case)


def test_cases_are_the_simplest_first_and_all_different() -> None:
    supports = own_llama.SUPPORTS
    cases = list_cases(supports, count=40, ranks=4, rows=8, seed=0)
    assert len({*cases}) == len(cases) == 40
    assert [*map(str, cases[:3])] == ["one rank", "tensor 2", "data 2"]
    assert max(case.ranks for case in cases) == 4
    for name, values in supports.items():
        seen = {c.__dict__.get(name, dict(c.options).get(name)) for c in cases}
        assert seen == {*values}, name


def test_a_case_is_made_again_from_what_is_printed() -> None:
    case = list_cases(own_llama.SUPPORTS, count=40, ranks=4, rows=8, seed=1)[-1]
    assert make_case(json.loads(json.dumps(case.changes())), own_llama.SUPPORTS) == case


@pytest.mark.ci
def test_the_command_proves_a_model_and_names_a_fault_with_its_command(
    capsys: pytest.CaptureFixture[str],
) -> None:
    model = f"{own_llama.__file__}:build"
    assert main([model, "--case", '{"tensor": 2}', "--steps", "1"]) == 0
    assert "1 of 1 compositions equal one process in fp64" in capsys.readouterr().out
    model = f"{faults.__file__}:missing_f"
    assert main([model]) == 1
    printed = capsys.readouterr().out
    assert f"again: python -m shardlab.parity {model} --case '{{\"tensor\": 2}}'" in printed
    assert main([model, "--case", '{"tensor": 2}', "--json"]) == 1
    [result] = json.loads(capsys.readouterr().out)["results"]
    assert result["finding"]["name"] == "norm.weight"


OWN = f"{own_llama.__file__}:build"
BAD = [
    (["nothing.py:build"], "no-file", "'nothing.py:build' is no file"),
    ([OWN, "--case", "{"], "json", "(Expecting property name"),
    ([OWN, "--case", "[]"], "json", 'no JSON object: give {"tensor": 2}'),
    ([OWN, "--case", '{"tensr": 2}'], "unknown", "'tensr'; choose from context, data"),
    ([OWN, "--case", '{"schedule": "zb"}'], "value", "'zb' doesn't exist: choose '1f1b', 'gpipe'"),
    ([OWN, "--steps", "0"], "option", "--steps 0"),
    ([f"{faults.__file__}:three", "--ranks", "2"], "no-case", "at most 2 ranks"),
]
FILES = [
    ("def build(): pass", "no-attribute", "has no SUPPORTS: write a dict"),
    ("SUPPORTS = {'tensor': 2}", "no-list", "SUPPORTS['tensor'] is no list"),
    ("SUPPORTS = {'fsdp': []}", "no-list", "SUPPORTS['fsdp'] is no list"),
    ("SUPPORTS = {'data': [0]}", "value", "data = 0 doesn't exist: choose a whole number from 1"),
    ("SUPPORTS = {'fsdp': ['FULL']}", "value", "choose '', 'FULL_SHARD'"),
    ("SUPPORTS = {}", "no-supports", ""),
    ("import nothing_at_all", "import", "can't be imported: ModuleNotFoundError"),
]


@pytest.mark.parametrize(("arguments", "sentence", "words"), BAD)
def test_what_can_not_be_read_is_said(
    capsys: pytest.CaptureFixture[str], arguments: list[str], sentence: str, words: str
) -> None:
    assert main(arguments) == 2
    printed = capsys.readouterr().err
    assert re.fullmatch(rf"shardlab.parity: error: {pattern('refused', sentence)}\n", printed)
    assert words in printed


@pytest.mark.parametrize(("text", "sentence", "words"), FILES)
def test_a_file_without_what_is_needed_is_told_what_to_write(
    tmp_path: Path, text: str, sentence: str, words: str
) -> None:
    file = tmp_path / "model.py"
    file.write_text(text)
    with pytest.raises(ParityError) as refused:
        assert Subject(str(file), "build").supports
    assert re.fullmatch(pattern("refused", sentence), str(refused.value)), refused.value
    assert words in str(refused.value)


def test_a_file_may_import_the_module_beside_it(tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("SUPPORTS = {'tensor': [1, 2]}")
    (tmp_path / "model.py").write_text("from beside import SUPPORTS\ndef build(): pass")
    assert Subject(str(tmp_path / "model.py"), "build").supports == {"tensor": [1, 2]}


def test_each_sentence_is_reached_by_a_fault_or_by_bad_input() -> None:
    assert {sentence for *_, sentence, _ in FAULTS} == SENTENCES["cause"].keys()
    reached = {sentence for *_, sentence, _ in [*REFUSED, *BAD, *FILES]} | {"hidden-shape"}
    assert reached == SENTENCES["refused"].keys()


@pytest.mark.ci
@pytest.mark.parametrize("language", LANGUAGES)
def test_the_page_s_model_is_equal_as_the_page_prints(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], language: str
) -> None:
    page = ROOT / "docs" / "reference" / f"parity{'' if language == 'en' else f'.{language}'}.md"
    text = page.read_text("utf-8")
    file = tmp_path / "my_model.py"
    file.write_text(text.split("```python\n")[1].split("```")[0], "utf-8")
    assert main([f"{file}:build"]) == 0
    printed = capsys.readouterr().out.removeprefix(f"{tmp_path}/")
    assert printed.split("; the largest")[0] in text
