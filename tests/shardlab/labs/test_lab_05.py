"""Lab 05: pages show what is printed, the solution is right, and what is broken is refused.

The corpora are the workbook's pages, and a page that was edited moves every number: what is shown
is held word by word, its numbers and its text are not.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from shardlab.data.__main__ import main
from shardlab.data.corpus import Corpus, DataError
from shardlab.data.samples import Recipe, build_indices
from tests.shardlab.labs.lab_pages import (
    LANGUAGES,
    ROOT,
    answers,
    page,
    python_blocks,
    script,
    shown,
    write,
)  # fmt: skip

LAB = "05-from-text-to-the-batch"
FILES = ROOT / "experiments" / "37-batches"
FUNCTIONS = {"lengths", "places", "share", "blended"}


def command(*words: Any) -> str:
    return CliRunner().invoke(main, [str(word) for word in words]).output.strip()


def build_corpora(folder: Path) -> Path:
    """Both corpora, and the three broken ones, as the page's commands make them."""
    for name in ("theory", "labs"):
        texts = sorted((ROOT / "docs" / name).glob("*.md"))
        command("build", "--lines", "--processes", 1, folder / name, *texts)
    tokens, index = (Path(f"{folder}/theory.{kind}").read_bytes() for kind in ("bin", "idx"))
    labs_tokens = Path(f"{folder}/labs.bin").read_bytes()
    wide = index[:17] + b"\4" + index[18:]
    for name, bin_bytes, right in (("cut", tokens[:1000], index), ("mixed", labs_tokens, index),
                              ("wide", tokens, wide)):  # fmt: skip
        Path(f"{folder}/{name}.bin").write_bytes(bin_bytes)
        Path(f"{folder}/{name}.idx").write_bytes(right)
    return folder


@pytest.fixture(scope="module")
def corpora(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_corpora(tmp_path_factory.mktemp("corpora"))


@cache
def program() -> ModuleType:
    return script(FILES / "batch.py")


def run_report(*names: str, folder: Path, **settings: Any) -> str:
    prefixes = [str(folder / name) for name in names]
    return str(program().report(program().Settings(prefixes=prefixes, **settings)))


def blocks(folder: Path) -> dict[str, str]:
    """What the page shows."""
    refused = [command("verify", folder / name) for name in ("cut", "mixed", "wide")]
    refused.append(command("verify", folder / "theory", "--vocabulary", 128))
    weights = {"weights": [3.0, 1.0], "samples": 2000, "step": 3}
    texts = {
        "batch": run_report("theory", folder=folder, step=3),
        "refused": "\n".join(refused).replace(f"{folder}", ".."),
        "blend": run_report("theory", "labs", folder=folder, **weights).split("\n\n")[2],
    }
    return {name: f"```text\n{text}\n```" for name, text in texts.items()}


def words_of(text: str) -> list[str]:
    """A printed text without what hangs on the pages: numbers, and the text that is quoted."""
    lines = [re.sub(r"\d[\d,]*", "#", re.sub(r"""['"].*['"]$""", "''", line)) for line in
             text.splitlines()]  # fmt: skip
    return [" ".join(line.split()) for line in lines if not line.startswith("  place")]


def test_the_pages_show_what_the_commands_print(corpora: Path) -> None:
    for name, text in blocks(corpora).items():
        for language in LANGUAGES:
            assert words_of(shown(page(LAB, language), name)) == words_of(text), (name, language)


def test_the_solution_is_right_and_is_the_same_in_both_languages(corpora: Path) -> None:
    check, corpus = script(FILES / "check.py"), Corpus(corpora / "theory")
    texts = {"\n".join(python_blocks(answers(LAB, language))) for language in LANGUAGES}
    assert len(texts) == 1
    solved: dict[str, Any] = {}
    exec(texts.pop(), solved)
    assert check.report(SimpleNamespace(**solved), corpus) == dict.fromkeys(FUNCTIONS, "right")
    assert check.report(script(FILES / "mine.py"), corpus) == dict.fromkeys(
        FUNCTIONS, "not written yet"
    )


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
        assert (reference[7].tolist() == whole[7].tolist()) == (name == "cut")


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


def pages() -> None:
    """Write what the pages show."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        for language in LANGUAGES:
            write(page(LAB, language), blocks(build_corpora(Path(folder))))
