"""Lab 01's grammar is drawn without a loop over words, and says what the loop would."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from pages.programs import TRAIN, script


@pytest.mark.parametrize("faithful", [0.0, 0.9, 1.0])
def test_each_word_is_the_last_ones_successor_or_strays(faithful: float) -> None:
    grammar = script(Path(TRAIN).with_name("text.py")).Grammar(70, faithful=faithful, seed=3)
    words_BS, following_BS = grammar.batch(5, 8, 300)
    assert torch.equal(words_BS[:, 1:], following_BS[:, :-1])
    # Drawn again, in the order in which `batch` draws, and walked word by word.
    secret = torch.Generator().manual_seed(3)
    in_use = torch.randperm(70, generator=secret)[:64]
    successor = torch.randperm(64, generator=secret)
    drawn = torch.Generator().manual_seed(4 * 1_000_003 + 5)
    strays = torch.randint(64, (301, 8), generator=drawn)
    follows = torch.rand(301, 8, generator=drawn) < faithful
    words = [strays[0]]
    for stray, follow in zip(strays[1:], follows[1:], strict=True):
        words.append(torch.where(follow, successor[words[-1]], stray))
    assert torch.equal(following_BS, in_use[torch.stack(words[1:], dim=1)])
