"""Theory 06 shows what the code computes: the figure, and the bytes of its example."""

from __future__ import annotations

from typing import Any

import pytest

from shardlab.proofs import causal_work
from tests.shardlab.context.long_pages import LANGUAGES, blocks, page, predicted
from tests.shardlab.labs.lab_pages import shown


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_page_shows_what_the_code_computes(language: str) -> None:
    for name, expected in blocks(language).items():
        assert shown(page(language), name) == expected, (
            "python -m tests.shardlab.context.long_pages"
        )


def test_ulysses_is_the_quicker_of_the_predicted_where_the_page_says() -> None:
    times = {tokens: predicted(tokens, 32) for tokens in (4096, 8192, 16384, 32768, 131072)}
    quicker = [tokens for tokens, (*_, ring, _, ulysses) in times.items() if ulysses < ring]
    assert quicker == [4096, 8192]
    sentences = {
        "en": "at 4,096 and 8,192 tokens, Ulysses",
        "es": "con 4096 y 8192 tokens, Ulysses",
    }
    for language, words in sentences.items():
        assert words in " ".join(page(language).read_text("utf-8").split())


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 8])
def test_zig_zag_gives_every_rank_the_same_work_and_runs_the_last_nearly_twice(ranks: int) -> None:
    assert causal_work.count_cells(ranks, balanced=True) == [2 * ranks] * ranks
    runs = causal_work.count_cells(ranks, balanced=False)
    assert sum(runs) == 2 * ranks * ranks
    assert max(runs) * ranks / sum(runs) == pytest.approx((2 * ranks - 1) / ranks)


def test_the_command_draws_both_cuts(capsys: Any) -> None:
    causal_work.main(["--ranks", "2"])
    printed = capsys.readouterr().out
    assert "in runs: 0 0 1 1" in printed
    assert "zig-zag: 0 1 1 0" in printed
