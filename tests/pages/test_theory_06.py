"""Theory 06 concludes from its tables what they hold."""

from __future__ import annotations

import re
from typing import Any

import pytest

from pages.blocks import LANGUAGES, in_language
from pages.runs.theory_06 import PAGE, predicted
from shardlab.proofs import causal_work

LENGTHS = (4096, 8192, 16384, 32768, 131072)


def bullets(language: str) -> list[str]:
    """Return what the page concludes below the table of predicted times."""
    text = in_language(PAGE, language).read_text("utf-8").partition("<!-- /predicted -->")[2]
    return [" ".join(part.split()) for part in text.partition("\n\n- ")[2].split("\n- ")[:3]]


def lengths(text: str) -> list[int]:
    grouped = re.sub(r"(?<=\d)[,\N{NO-BREAK SPACE} ](?=\d{3}\b)", "", text)
    return [int(number) for number in re.findall(r"\b\d{4,}\b", grouped)]


@pytest.mark.parametrize("language", LANGUAGES)
def test_what_the_page_concludes_from_the_predicted_times_holds(language: str) -> None:
    many, few = ({tokens: predicted(tokens, groups) for tokens in LENGTHS} for groups in (32, 8))
    hidden, waits, _ = bullets(language)
    visible = max(tokens for tokens, (products, block, *_) in many.items() if products < block)
    first = [
        min(tokens for tokens, (products, block, *_) in times.items() if products > block)
        for times in (many, few)
    ]
    assert lengths(hidden) == [visible, *first]
    faster = [tokens for tokens, (*_, ring, _, ulysses) in many.items() if ulysses < ring]
    assert lengths(waits) == faster
    assert all(ring < ulysses for *_, ring, _, ulysses in few.values())
    assert all(
        gathered > min(ring, ulysses)
        for *_, ring, gathered, ulysses in [*many.values(), *few.values()]
    )


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
