"""`python -m shardlab.parity`: right models are equal, planted faults are named with their fix."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pages.blocks import LANGUAGES, ROOT
from shardlab.parity.__main__ import main
from shardlab.parity.case import Case, list_cases, make_case
from shardlab.parity.session import Result, Session
from shardlab.parity.subject import ParityError, Subject
from tests.limits import LIMIT
from tests.shardlab import own_llama
from tests.shardlab.parity import faults
from tests.shardlab.pool import Pool

Pools = Callable[[int], Pool]


def session_of(pool: Pools, name: str, path: str = faults.__file__) -> Session:
    return Session(Subject(path, name), steps=2, limit=LIMIT, pools=pool)


def prove(session: Session, count: int = 8) -> Result:
    """The first case that fails, as small as can be; or the last one."""
    subject = session.subject
    cases = list_cases(subject.supports, count=count, ranks=4, rows=8, seed=0)
    for case in cases:
        result = session.run(case)
        if result.finding:
            return session.explain(result, time.monotonic() + LIMIT)
    return result


FAULTS = [
    ("partial_norm", "gradient", "layers.1.norm2.weight", "partial: each tensor rank has seen"),
    ("tied_ends", "gradient", "embedding.weight", "tied ends: two stages hold copies"),
    ("unmarked_experts", "gradient", "layers.3.mlp.experts.3.fc2.weight", "an expert's gradient"),
    ("label_smoothing", "loss", "", "a mean over the rank's own words (label smoothing"),
    ("wrong_positions", "loss", "", "wrong positions or a wrong mask under context"),
    ("rotated_by_own_rows", "loss", "", "positions (rope, a learned table) or a mask count from 0"),
    ("mean_of_means", "loss", "", "a mean of means"),
    ("unmarked_weight", "shape", "layers.1.q.weight", "an unmarked weight"),
    ("double_scaling", "loss", "", "double scaling: the loss is scaled by the 2 data ranks"),
    ("bias_before_the_sum", "loss", "", "a row-parallel bias is added once"),
    ("missing_f", "gradient", "norm.weight", "cross the axis with copy_to"),
    ("missing_g", "loss", "", "a sum over the tensor axis is missing"),
    ("renumbered_stage", "shape", "layers.2.norm1.weight", "the stages do not hold all"),
    ("summed_twice", "gradient", "norm.weight", "counted once on each of the 2 tensor ranks"),
    ("marked_bias", "shape", "norm.weight", "this rank has all of it: take sharding"),
    (
        "marked_along_another_dim",
        "shape",
        "layers.0.o.weight",
        "cuts dim 0 of length 16; sharding.mark(p, Sharding(axis, 1, 16",
    ),
    (
        "marked_with_another_length",
        "shape",
        "layers.0.o.weight",
        "dim 1 of length 32; sharding.mark(p, Sharding(axis, 1, 16",
    ),
    ("tied_on_one_stage", "error", "", "the ranks called different collectives, or one ended"),
]


@pytest.mark.parametrize(
    ("name", "quantity", "parameter", "cause"), FAULTS, ids=lambda x: str(x)[:20]
)
def test_a_planted_fault_is_named(
    pool: Pools, name: str, quantity: str, parameter: str, cause: str
) -> None:
    finding = prove(session_of(pool, name)).finding
    assert finding
    assert (finding.quantity, finding.name) == (quantity, parameter), finding
    assert cause in finding.cause, finding


REFUSED = [
    (
        "dropout_under_recomputation",
        "layers.0.down.weight isn't the derivative .* another dropout mask",
    ),
    ("frozen_lora", r"no gradient reaches layers.0.lora_a: .* below frozen parameters"),
    ("remembers", "the model keeps state between forwards: the loss of one batch is"),
    ("draws", "the model draws random numbers: with other seeds"),
    ("returns_a_dict", "the model returns a dict: return a tensor or a tuple"),
    ("moves_a_buffer", "a forward changes the buffer mean: a model that keeps state"),
    ("has_a_parameter_that_nothing_uses", "the loss does not depend on unused: freeze it"),
    ("narrow", "is float32: build the model in float64"),
    ("has_no_number_as_loss", r"the loss of batch\(0\) is nan in one process: start with smaller"),
    ("trains_nothing", "the model has no parameter that trains"),
    ("no_module", "no_module returned a dict: return a module"),
    ("missing", "has no missing: write a function that returns a module"),
]


@pytest.mark.parametrize(("name", "words"), REFUSED)
def test_a_model_that_can_not_be_compared_is_told_why(pool: Pools, name: str, words: str) -> None:
    with pytest.raises(ParityError, match=words):
        session_of(pool, name).run(Case())


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
    assert [*map(str, cases[:3])] == ["one rank", "tensor 2", "context 2"]
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


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nothing.py:build"], "'nothing.py:build' is no file and function"),
        ([f"{own_llama.__file__}:build", "--case", "{"], "--case is no JSON"),
        (
            [f"{own_llama.__file__}:build", "--case", '{"tensr": 2}'],
            "--case has 'tensr'; choose from",
        ),
        ([f"{own_llama.__file__}:build", "--case", "[]"], "--case is no JSON object"),
        (
            [f"{own_llama.__file__}:build", "--case", '{"schedule": "zb"}'],
            "schedule = 'zb' doesn't exist: choose '1f1b', 'gpipe', 'interleaved', 'zb-h1'",
        ),
        ([f"{own_llama.__file__}:build", "--steps", "0"], "--steps 0: give more than 0"),
        ([f"{faults.__file__}:three", "--ranks", "2"], "no case of SUPPORTS has at most 2 ranks"),
    ],
)
def test_what_can_not_be_read_is_said(
    capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    assert main(arguments) == 2
    assert words in capsys.readouterr().err


def test_a_file_without_what_is_needed_is_told_what_to_write(tmp_path: Path) -> None:
    file = tmp_path / "model.py"
    for text, words in [
        ("def build(): pass", "model.py has no SUPPORTS: write a dict"),
        ("SUPPORTS = {'tensor': 2}\ndef build(): pass", r"SUPPORTS\['tensor'\] is no list"),
        ("SUPPORTS = {'fsdp': []}\ndef build(): pass", r"SUPPORTS\['fsdp'\] is no list"),
        ("SUPPORTS = {'data': [0]}\ndef build(): pass", "data = 0 doesn't exist: choose a whole"),
        ("SUPPORTS = {'fsdp': ['FULL']}\ndef build(): pass", "choose '', 'FULL_SHARD'"),
        ("SUPPORTS = {}\ndef build(): pass", "SUPPORTS is empty"),
        ("import nothing_at_all", "can't be imported: ModuleNotFoundError"),
    ]:
        file = tmp_path / f"model_{abs(hash(text))}.py"
        file.write_text(text)
        with pytest.raises(ParityError, match=words.replace("model.py", file.name)):
            assert Subject(str(file), "build").supports


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
