"""What other pages quote of the predictions' scores is what was recorded."""

import msgspec
import pytest

from costlab.layouts import learn
from costlab.layouts.learn import Scores
from costlab.layouts.stack_memory import estimate, plan_of, usable_bytes, worst_rank
from pages.blocks import LANGUAGES, in_language, read_block
from pages.runs import predictions
from sitelab.figures import memory


@pytest.mark.parametrize("language", LANGUAGES)
def test_theory_9_quotes_the_scores_of_the_predictions(language: str) -> None:
    scores = msgspec.json.decode(predictions.SCORES.read_bytes(), type=Scores)
    text = in_language(predictions.THEORY, language).read_text("utf-8")
    text = text.replace("\N{NO-BREAK SPACE}", " ")
    assert f"{100 * learn.average(scores.publications).median:.1f} %" in text
    assert f"{100 * scores.by_own_runs[4].median:.1f} %" in text
    assert all(regret.chosen <= regret.chance / 4 for regret in scores.regret)  # at most a quarter


@pytest.mark.parametrize("language", LANGUAGES)
def test_theory_9_reads_its_table_of_layouts(language: str) -> None:
    text = in_language(predictions.THEORY, language).read_text("utf-8")
    text = text.replace("\N{NO-BREAK SPACE}", " ")
    rows = read_block(in_language(predictions.THEORY, language), "predictions: layouts")
    rows = rows.replace(" · ", " | ")  # a layout is one cell, the name of its row on a telephone
    cells = [[cell.strip() for cell in row.split("|")] for row in rows.splitlines()[2:]]
    first, second = cells[0], cells[1]
    assert (first[1:3], second[1:3]) == (["8", "1"], ["8", "2"])
    at = memory.load_presets()["Llama 3 70B"] | {"zero": 1}
    for row in cells[:2]:  # counted as theory 8's calculator counts
        layout = dict(zip(("tensor", "stages", "data"), map(int, row[1:4]), strict=True))
        layout["micro_batches"] = 512 // layout["data"]
        need = estimate(worst_rank(*memory.read_plan(at | layout)))
        assert row[6:8] == [f"{need.counted / 1e9:.0f}", f"{need.likely / 1e9:.0f}"]
        assert f"{row[7]} GB" in text
    model, plan = plan_of(msgspec.structs.replace(predictions.LLAMA, tensor=8))
    assert f"{estimate(worst_rank(model, plan.changed(gradient=2))).likely / 1e9:.0f} GB" in text
    assert float(first[7]) > round(room := usable_bytes("H100") / 1e9) > float(second[7])
    assert f"{room:.0f} GB" in text
    slower = float(second[9]) / float(first[9]) - 1
    assert f"{100 * slower:.0f} %" in text
    assert cells == sorted(cells, key=lambda row: float(row[9]))  # fastest first, as the text says
    ends = [[float(end) for end in row[10].replace(" a ", " to ").split(" to ")] for row in cells]
    assert max(low for low, _ in ends) < min(high for _, high in ends)  # all intervals overlap
