"""Lab 05: the solution is right, and what is broken is refused."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pages.blocks import LANGUAGES, ROOT, lab_page, python_blocks, solution_page
from pages.programs import script
from pages.runs.lab_05 import FILES, LAB, build_corpora, run_report
from shardlab.data.corpus import Corpus, DataError
from shardlab.data.samples import Recipe, build_indices

FUNCTIONS = {"lengths", "places", "share", "blended"}


@pytest.fixture(scope="module")
def corpora(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_corpora(tmp_path_factory.mktemp("corpora"))


def test_the_solution_is_right_and_is_the_same_in_both_languages(corpora: Path) -> None:
    check, corpus = script(FILES / "check.py"), Corpus(corpora / "theory")
    texts = {"\n".join(python_blocks(solution_page(LAB, language))) for language in LANGUAGES}
    assert len(texts) == 1
    solved: dict[str, Any] = {}
    exec(texts.pop(), solved)
    assert check.report(SimpleNamespace(**solved), corpus) == dict.fromkeys(FUNCTIONS, "right")
    assert check.report(script(FILES / "mine.py"), corpus) == dict.fromkeys(
        FUNCTIONS, "not written yet"
    )


def test_the_corpora_are_english(corpora: Path) -> None:
    """As the page's commands make them: a page is in a corpus if its longest line is."""
    for name in ("theory", "labs"):
        tokens = np.fromfile(corpora / f"{name}.bin", np.uint16)
        text = tokens[tokens < 256].astype(np.uint8).tobytes()
        pages = sorted((ROOT / "docs" / name).glob("*.md"))
        longest = [max(page.read_bytes().splitlines(), key=len) for page in pages]
        assert [line in text for line in longest] == [".es." not in page.name for page in pages]
        command = rf"docs/{name}/*.md | grep -v '\.es\.md'"
        for language in LANGUAGES:
            assert command in lab_page(LAB, language).read_text("utf-8")


def test_a_wrong_answer_is_named_where_it_is_first_wrong(corpora: Path) -> None:
    check, corpus = script(FILES / "check.py"), Corpus(corpora / "theory")
    wrong = SimpleNamespace(
        lengths=lambda index: [*corpus.lengths.tolist()][:-1],
        places=lambda sizes, sequence: [(0, 0)],
        share=lambda step, batch, ranks, rank: range(step * batch, (step + 1) * batch // ranks),
        blended=lambda weights, size: 1 / 0,
    )
    verdicts = check.report(wrong, corpus)
    assert (
        verdicts["lengths"] == f"lengths: yours has {len(corpus) - 1}, and {len(corpus)} is right"
    )
    assert verdicts["places"].startswith("sequence 1: yours has 1, and ")
    assert verdicts["share"] == "step 0, rank 1 of 2: at 0 yours is 0, and 4 is right"
    assert verdicts["blended"] == "weights [3.0, 1.0]: ZeroDivisionError: division by zero"


def test_megatron_opens_the_three_that_are_refused(corpora: Path) -> None:
    from tests.shardlab.data.megatron_data import IndexedDataset

    whole = IndexedDataset(str(corpora / "theory"))
    for name in ("cut", "mixed", "wide"):
        with pytest.raises(DataError):
            Corpus(corpora / name)
        reference = IndexedDataset(str(corpora / name))
        assert len(reference) == len(whole)
        assert (reference[1].tolist() == whole[1].tolist()) == (name == "cut")


def test_a_step_that_is_not_there_and_ranks_that_do_not_divide_are_refused(corpora: Path) -> None:
    with pytest.raises(DataError, match=r"no step 9999: \d+ samples are steps 0 to \d+"):
        run_report("theory", folder=corpora, step=9999)
    with pytest.raises(DataError, match="3 data ranks do not divide a batch of 8"):
        run_report("theory", folder=corpora, dp=3)
    for wrong in ("batch", "tp", "dp", "pp"):
        with pytest.raises(DataError, match=f"--{wrong} is 0: choose 1 or more"):
            run_report("theory", folder=corpora, **{wrong: 0})
    with pytest.raises(DataError, match="--weights are of several corpora"):
        run_report("theory", folder=corpora, weights=[3.0, 1.0])


def test_answer_1_the_order_stays_while_the_epochs_do() -> None:
    lengths = np.full(100, 641, np.int32)  # 1,001 samples of 64 in an epoch

    def order(samples: int) -> list[int]:
        return list(build_indices(lengths, range(100), Recipe(sequence=64, samples=samples)).order)

    assert order(500) == order(1000)
    assert order(1000) != order(2000)[:1000]


def test_answer_4_each_sample_twice_before_any_a_third_time() -> None:
    indices = build_indices(np.full(10, 641, np.int32), range(10), Recipe(sequence=64, samples=252))
    twice = indices.documents[:20].tolist()
    assert sorted(twice) == sorted([*range(10)] * 2)
    assert max(indices.order[:200]) < 200 and len(indices.order) == 300
