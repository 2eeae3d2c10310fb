"""Theory 7's example and its blend are what shardlab makes, and what Megatron's own makes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from shardlab.data.blend import greedy_order
from shardlab.data.build import Builder, parts
from shardlab.data.corpus import Corpus, DataError
from shardlab.data.samples import Indices, Recipe, build_indices
from shardlab.data.writer import Writer
from tests.docs.page import ROOT
from tests.shardlab.labs.lab_pages import LANGUAGES, shown, write

LENGTHS, RECIPE, APART = (5, 3, 6, 4), Recipe(sequence=4, samples=6, seed=2), 4
WEIGHTS = np.array([0.5, 0.3, 0.2])


def theory(language: str) -> Path:
    ending = "" if language == LANGUAGES[0] else f".{language}"
    return ROOT / f"docs/theory/07-from-bin-idx-to-a-batch{ending}.md"


def build_example() -> Indices:
    return build_indices(np.array(LENGTHS, np.int32), range(len(LENGTHS)), RECIPE)


def token(document: int, at: int) -> str:
    return f"{'ABCD'[document]}{at}"


def example(indices: Indices) -> str:
    """The three indices, and what each sample reads."""
    text = [
        token(document, at) for document in indices.documents for at in range(LENGTHS[document])
    ]
    names = ["ABCD"[document] for document in indices.documents]
    lines = [
        f"documents  {' '.join(names[:4])} · {' '.join(names[4:])}",
        f"places     {' '.join(f'{place}:{at}' for place, at in indices.places)}",
        f"order      {' '.join(map(str, indices.order[:APART]))} · "
        f"{' '.join(map(str, indices.order[APART:]))}",
        "",
        "sample  number  reads",
    ]
    for sample, number in enumerate(indices.order):
        begin = int(number) * RECIPE.sequence
        reads = " ".join(text[begin : begin + RECIPE.sequence + 1])
        remark = "" if sample < (RECIPE.samples or 0) else "   not asked for"
        lines.append(f"{sample:6}  {number:6}  {reads}{remark}")
    return "\n".join(lines)


def blocks() -> dict[str, str]:
    """What the page shows."""
    corpora, samples = greedy_order(WEIGHTS, 10)
    blend_text = " ".join("abc"[c] + str(which) for c, which in zip(corpora, samples))  # noqa: B905
    return {
        name: f"```text\n{text}\n```"
        for name, text in (("example", example(build_example())), ("blend", blend_text))
    }


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_page_shows_the_indices_that_are_made(language: str) -> None:
    for name, text in blocks().items():
        expected = text.replace("not asked for", "no se pide") if language == "es" else text
        assert shown(theory(language), name) == expected


def test_a_sample_reads_the_tokens_that_the_page_says(tmp_path: Path) -> None:
    with Writer(tmp_path / "corpus") as writer:
        for document, length in enumerate(LENGTHS):
            writer.add([100 * document + at for at in range(length)])
    samples = Builder().samples(Corpus(tmp_path / "corpus"), RECIPE)
    lines = example(build_example()).splitlines()[5:]
    for sample, line in enumerate(lines):
        read = [token(*divmod(int(number), 100)) for number in samples[sample]]
        assert f"  {' '.join(read)}" in line


def test_megatron_makes_the_same_example(tmp_path: Path) -> None:
    from tests.shardlab.data import megatron_data as megatron

    prefix = megatron.written(tmp_path / "corpus", list(LENGTHS))
    dataset = megatron.GPTDataset(
        megatron.IndexedDataset(str(prefix)), str(prefix), np.arange(4, dtype=np.int32),
        RECIPE.samples, megatron.Split.train,
        megatron.config(4, split="1", random_seed=RECIPE.seed),
    )  # fmt: skip
    indices = Indices(dataset.document_index, dataset.sample_index, dataset.shuffle_index)
    assert example(indices) == example(build_example())


def test_a_split_of_a_hundred_sequences_gives_the_last_part_none(tmp_path: Path) -> None:
    with Writer(tmp_path / "corpus") as writer:
        writer.extend(np.arange(200), [2] * 100)
    corpus, recipe = Corpus(tmp_path / "corpus"), Recipe(sequence=1)
    train, valid, test = (part for part in parts((969, 30, 1)) if part)
    documents = [Builder().samples(corpus, recipe, part).index.documents for part in (train, valid)]
    assert [sorted(each) for each in documents] == [[*range(97)], [97, 98, 99]]
    with pytest.raises(DataError, match="hold 0 tokens"):
        Builder().samples(corpus, recipe, test)


def pages() -> None:
    """Write what the pages show."""
    for language in LANGUAGES:
        texts = blocks()
        if language == "es":
            texts = {
                name: text.replace("not asked for", "no se pide") for name, text in texts.items()
            }
        write(theory(language), texts)
