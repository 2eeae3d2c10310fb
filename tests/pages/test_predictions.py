"""What other pages quote of the predictions' scores is what was recorded."""

import msgspec
import pytest

from costlab.layouts import learn
from costlab.layouts.learn import Scores
from pages import predictions
from pages.blocks import LANGUAGES, in_language


@pytest.mark.parametrize("language", LANGUAGES)
def test_theory_9_quotes_the_scores_of_the_predictions(language: str) -> None:
    scores = msgspec.json.decode(predictions.SCORES.read_bytes(), type=Scores)
    text = in_language(predictions.THEORY, language).read_text("utf-8")
    text = text.replace("\N{NO-BREAK SPACE}", " ")
    assert f"{100 * learn.average(scores.publications).median:.1f} %" in text
    assert f"{100 * scores.by_own_runs[4].median:.1f} %" in text
    assert all(regret.chosen <= regret.chance / 4 for regret in scores.regret)  # at most a quarter
