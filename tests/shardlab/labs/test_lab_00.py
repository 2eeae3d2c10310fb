"""Lab 00: the cut network's identities, what makes each one necessary, and the answers."""

from __future__ import annotations

import importlib.util
import re
from types import ModuleType

import pytest
import torch

from pages.blocks import LANGUAGES, python_blocks, solution_page
from pages.programs import FFN
from pages.runs.lab_00 import LAB


@pytest.fixture
def ffn() -> ModuleType:
    """A fresh copy, to change."""
    spec = importlib.util.spec_from_file_location("ffn", FFN)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_identity_is_exact_and_two_of_them_cost_an_all_reduce(
    ffn: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    ffn.main()
    printed = capsys.readouterr().out
    assert printed.count("exact") == 9
    assert len(re.findall(r"all-reduce +exact", printed)) == 2
    assert printed.endswith("9 identities hold; 2 all-reduces of 72 bytes each, and nothing else\n")


def test_a_gpu_with_the_wrong_half_is_caught(
    ffn: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    w1_fD, w2_Df = ffn.cut()
    monkeypatch.setattr(ffn, "cut", lambda: (w1_fD, w2_Df[::-1]))
    with pytest.raises(AssertionError, match="= Y, on both"):
        ffn.main()


def test_a_partial_result_is_not_the_sum(ffn: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ffn.Wire, "all_reduce", lambda self, parts: parts)
    with pytest.raises(AssertionError, match="= Y, on both"):
        ffn.main()


def test_a_wrong_derivative_is_caught(ffn: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ffn, "activation", torch.relu)
    with pytest.raises(AssertionError, match="= dH"):
        ffn.main()


def solve(ffn: ModuleType, monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    """Put the answer's functions in the place of the exercise's."""
    names = dict(vars(ffn))
    exec(code, names)
    for name in ("activation", "slope"):
        monkeypatch.setattr(ffn, name, names[name])


@pytest.mark.parametrize("language", LANGUAGES)
def test_answer_1_a_gelu_leaves_every_identity_standing(
    ffn: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    language: str,
) -> None:
    solve(ffn, monkeypatch, python_blocks(solution_page(LAB, language))[0])
    ffn.main()
    assert "9 identities hold" in capsys.readouterr().out


@pytest.mark.parametrize("language", LANGUAGES)
def test_answer_2_the_other_cut_holds_for_the_identity_and_not_for_a_gelu(
    ffn: ModuleType, monkeypatch: pytest.MonkeyPatch, language: str
) -> None:
    gelu, other_cut = python_blocks(solution_page(LAB, language))

    def both() -> tuple[torch.Tensor, torch.Tensor]:
        names = dict(vars(ffn))
        exec(other_cut, names)
        return names["summed_first"], names["activated_first"]

    summed_first, activated_first = both()
    assert torch.equal(summed_first, activated_first)
    assert torch.equal(summed_first, ffn.whole()["A"])
    solve(ffn, monkeypatch, gelu)
    summed_first, activated_first = both()
    assert torch.allclose(summed_first, ffn.whole()["A"], rtol=1e-12)
    assert not torch.allclose(summed_first, activated_first, rtol=0.1)
