"""What other pages quote of the predictions' scores is what was recorded."""

import msgspec
import pytest

from costlab.layouts import learn
from costlab.layouts.learn import Scores
from pages.blocks import LANGUAGES, in_language, read_block
from pages.runs import predictions


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
    cells = [[cell.strip() for cell in row.split("|")] for row in rows.splitlines()[2:]]
    first, second = cells[0], cells[1]
    assert (first[1:3], second[1:3]) == (["8", "1"], ["8", "2"])
    assert f"{first[6]} GB" in text
    assert f"{second[6]} GB" in text
    slower = float(second[8]) / float(first[8]) - 1
    assert f"{100 * slower:.0f} %" in text
    assert cells == sorted(cells, key=lambda row: float(row[8]))  # fastest first, as the text says
    ends = [[float(end) for end in row[9].replace(" a ", " to ").split(" to ")] for row in cells]
    assert max(low for low, _ in ends) < min(high for _, high in ends)  # all intervals overlap
