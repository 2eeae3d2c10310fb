"""Theory 07: the indices of its example, and its blend."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from pages.blocks import LANGUAGES, fence, fill_blocks, in_language
from shardlab.data.blend import greedy_order
from shardlab.data.samples import Indices, Recipe, build_indices

LENGTHS, RECIPE, APART = (5, 3, 6, 4), Recipe(sequence=4, samples=6, seed=2), 4
WEIGHTS = np.array([0.5, 0.3, 0.2])


def build_example() -> Indices:
    """Return the indices of the example."""
    return build_indices(np.array(LENGTHS, np.int32), range(len(LENGTHS)), RECIPE)


def token(document: int, at: int) -> str:
    """Return the name of a token of the example."""
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


def render() -> Iterator[tuple[Path, str]]:
    """Yield the page in each language."""
    indices = build_example()
    corpora, samples = greedy_order(WEIGHTS, 10)
    blend = " ".join(
        f"{'abc'[corpus]}{sample}" for corpus, sample in zip(corpora, samples, strict=True)
    )
    for language in LANGUAGES:
        page = in_language("docs/theory/07-from-bin-idx-to-a-batch", language)
        text = example(indices)
        if language == "es":
            text = text.replace("not asked for", "no se pide")
        yield page, fill_blocks(page, {"example": fence(text), "blend": fence(blend)})
