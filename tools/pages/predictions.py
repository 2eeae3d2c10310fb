"""The page that scores predicted step times: what is left out is predicted from the rest.

`python -m pages predictions --record` fits the factors and leaves each publication out again; it
writes tools/costlab/layouts/fitted.json and docs/measured/predictions.json.
"""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from costlab.layouts import learn, runs, step_time
from costlab.layouts.learn import Score, Scores
from pages.blocks import LANGUAGES, MEASURED, fill_blocks, in_language, read_words, table

SCORES = MEASURED / "predictions.json"
PAGE = "docs/reference/predictions"


def record() -> None:
    """Fit and score again, which takes a minute."""
    fitted, scores = learn.score()
    for path, data in ((learn.FITTED, fitted), (SCORES, scores)):
        path.write_bytes(msgspec.json.format(msgspec.json.encode(data), indent=1) + b"\n")


def render() -> Iterator[tuple[Path, str]]:
    """Yield the page in each language."""
    scores = msgspec.json.decode(SCORES.read_bytes(), type=Scores)
    for language in LANGUAGES:
        words = read_words("predictions")[language]
        path = in_language(PAGE, language)
        yield path, fill_blocks(path, {
            "predictions: publications": _publications(scores, words),
            "predictions: sources": _sources(scores, words),
            "predictions: own runs": _own_runs(scores, words),
            "predictions: regret": _regret(scores, words),
            "predictions: factors": _factors(words),
        })  # fmt: skip


def _share(value: float) -> str:
    return f"{100 * value:.1f} %"


def _cells(score: Score) -> list[str]:
    return [str(score.rows), _share(score.median), _share(score.mean), _share(score.covered)]


def _publications(scores: Scores, words: dict[str, Any]) -> str:
    every = learn.average(scores.publications)
    rows = [[score.name, *_cells(score)] for score in scores.publications]
    rows.append([f"**{words['average']}**", *(f"**{cell}**" for cell in _cells(every))])
    rows.append([words["rows"], *_cells(scores.rows)])
    return table(words["publications"], "<>>>>", rows)


def _sources(scores: Scores, words: dict[str, Any]) -> str:
    where = runs.sources()
    cards: dict[str, set[str]] = {}
    for run in runs.timed():
        cards.setdefault(run.source, set()).add(run.card)
    rows = [
        [f"[{score.name}]({where[score.name]['url']})", ", ".join(sorted(cards[score.name])),
         *_cells(score)]
        for score in scores.sources
    ]  # fmt: skip
    return table(words["sources"], "<<>>>>", rows)


def _own_runs(scores: Scores, words: dict[str, Any]) -> str:
    width = learn.load().interval
    rows = [[str(count), *_cells(score)[1:], f"× {math.exp(width[count]):.2f}"]
            for count, score in scores.by_own_runs.items()]  # fmt: skip
    return table(words["own"], ">>>>>", rows)


def _regret(scores: Scores, words: dict[str, Any]) -> str:
    rows = [[f"`{regret.source}`", str(regret.sweeps), _share(regret.chosen), _share(regret.chance),
             f"{regret.chosen / regret.chance:.2f}"] for regret in scores.regret]  # fmt: skip
    return table(words["regret"], "<>>>>", rows)


def _factors(words: dict[str, Any]) -> str:
    logs = learn.load().logs
    rows = []
    for name, (guess, spread) in step_time.FACTORS.items():
        if not name.startswith("stack "):
            rows.append([f"`{name}`", f"{guess:.3g}", f"{math.exp(spread):.2f}",
                         f"{math.exp(logs[name]):.3g}"])  # fmt: skip
    return table(words["factors"], "<>>>", rows)
