"""The page that scores predicted step times: what is left out is predicted from the rest.

`python -m pages predictions --record` fits the factors and leaves each publication out again; it
writes tools/costlab/layouts/fitted.json and docs/measured/predictions.json.
"""

import math
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from costlab.layouts import learn, runs, step_time
from costlab.layouts.learn import Score, Scores
from costlab.layouts.predict import predict
from costlab.layouts.runs import Run
from costlab.layouts.stack_memory import estimate, plan_of, worst_rank
from pages.blocks import LANGUAGES, MEASURED, fill_blocks, in_language, read_words, table

SCORES = MEASURED / "predictions.json"
PAGE = "docs/reference/predictions"
THEORY = "docs/theory/09-choosing-a-layout"
# Llama 3 70B on 512 H100, and layouts of it: tensor, stages, micro-batch, recomputed.
LLAMA = Run(
    card="H100", ranks=512, layers=80, hidden=8192, ffn=28672, heads=64, kv_heads=8, gated=True,
    vocabulary=128256, sequence=8192, global_batch=512, stack="megatron-core",
)  # fmt: skip
NARROW = "\N{NARROW NO-BREAK SPACE}"
LAYOUTS = [(8, 1, 1, "none"), (8, 2, 1, "none"), (8, 4, 1, "none"), (4, 8, 1, "none"),
           (8, 4, 2, "none"), (8, 8, 1, "none")]  # fmt: skip
CORPUS = 15e12  # tokens
CARDS = ("A100-80", "H100", "GB200")
REACHED = {"A100-80": 125e12, "H100": 400e12, "GB200": 1000e12}  # 40 % of the data sheet


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
            "predictions: own runs": _own_runs(
                scores.by_own_runs, learn.load().interval, False, words),
            "predictions: regret": _regret(scores, words),
            "predictions: experts": _experts(scores, words),
            "predictions: unseen": _unseen(False, words),
            "predictions: unseen experts": _unseen(True, words),
            "predictions: own runs of experts": _own_runs(
                scores.experts_by_own_runs, learn.load().experts, True, words),
            "predictions: factors": _factors(words),
        })  # fmt: skip
        path = in_language(THEORY, language)
        yield path, fill_blocks(path, {
            "predictions: thresholds": _thresholds(words, language),
            "predictions: layouts": _layouts(words),
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


def _experts(scores: Scores, words: dict[str, Any]) -> str:
    where = [runs.sources()[run.source] for run in runs.timed(experts=True)]
    url = {source["publication"]: source["url"] for source in where}
    rows = [[f"[{score.name}]({url[score.name]})", *_cells(score)] for score in scores.experts]
    return table(words["publications"], "<>>>>", rows)


def _unseen(experts: bool, words: dict[str, Any]) -> str:
    unseen = [run for run in runs.unseen() if bool(run.experts) == experts]
    steps = list(zip(unseen, predict(unseen), strict=True))
    rows = []
    for name in [*dict.fromkeys((run.model, run.dtype) for run, _ in steps), None]:
        part = [(run, step) for run, step in steps if name in (None, (run.model, run.dtype))]
        errors = np.log([step.seconds / run.seconds for run, step in part])
        inside = np.mean([step.low <= run.seconds <= step.high for run, step in part])
        title = f"{name[0]}, {name[1]}" if name else f"**{words['rows']}**"
        cards = [run.ranks for run, _ in part]
        rows.append([title, f"{min(cards)}–{max(cards)}",
                     *_cells(learn.score_errors("", errors, float(inside)))])  # fmt: skip
    return table(words["unseen"], "<>>>>>", rows)


@cache
def _typical_deviation(experts: bool) -> float:
    fit = learn.load().fit()
    slopes = learn.slopes(step_time.tabulate(runs.timed(experts)), fit.logs)
    return float(np.median(fit.deviation(slopes)))


def _own_runs(
    scores: dict[int, Score], width: dict[int, float], experts: bool, words: dict[str, Any]
) -> str:
    typical = _typical_deviation(experts)
    rows = [[str(count), *_cells(score)[1:], f"× {math.exp(width[count] * typical):.2f}"]
            for count, score in scores.items()]  # fmt: skip
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


def _thresholds(words: dict[str, Any], language: str) -> str:
    columns = [_threshold_column(card, language) for card in CARDS]
    rows = [[name, *cells] for name, *cells in zip(words["rows of a card"], *columns, strict=True)]
    return table(["", *(card.partition("-")[0] for card in CARDS)], "<>>>", rows)


def _threshold_column(name: str, language: str) -> list[str]:
    card, reached, hidden, ranks = runs.CARDS[name], REACHED[name], LLAMA.hidden, 8
    link, network = card.link * 1e9, card.network / 8 * 1e9
    share = 5 / 18 * (ranks - 1) * reached / (hidden * link)

    def pair(of_gradients: Callable[[int], float]) -> str:
        return " / ".join(_whole(of_gradients(itemsize), language) for itemsize in (4, 2))

    return [
        f"{_whole(reached / 1e12, language)} · 10¹²",
        f"{card.link:.0f} · 10⁹ / {network / 1e9:.0f} · 10⁹",
        pair(lambda g: g / 3 * reached / network),
        pair(lambda g: (4 + g) / 6 * reached / link),
        pair(lambda g: (4 + g) / 6 * reached / network),
        _share(share),
        pair(lambda g: (4 + g) / (6 * ranks) * reached / network / (1 - share)),
    ]


def _whole(value: float, language: str) -> str:
    text = f"{value:,.0f}"
    if language == "en":
        return text
    return text.replace(",", "") if value < 10_000 else text.replace(",", NARROW)


def _layouts(words: dict[str, Any]) -> str:
    rows = []
    layouts = [
        msgspec.structs.replace(LLAMA, tensor=tensor, stages=stages, recompute=recompute,
                                micro_batch=micro_batch)
        for tensor, stages, micro_batch, recompute in LAYOUTS
    ]  # fmt: skip
    predicted = zip(layouts, predict(layouts), strict=True)
    for run, step in sorted(predicted, key=lambda pair: pair[1].seconds):
        days = CORPUS / (step.tokens_per_second * run.ranks * 86_400)
        need = estimate(worst_rank(*plan_of(run)))
        lost = (run.stages - 1) / (run.micro_batches + run.stages - 1)
        rows.append([
            f"{run.tensor} · {run.stages} · {run.data} · {run.micro_batch}", words[run.recompute],
            f"{need.counted / 1e9:.0f}", f"{need.likely / 1e9:.0f}", _share(lost),
            f"{step.seconds:.1f}",
            f"{step.low:.1f} {words['to']} {step.high:.1f}", _share(step.mfu), f"{days:.0f}",
        ])  # fmt: skip
    return table(words["layouts"], "<<>>>>>>>", rows)
