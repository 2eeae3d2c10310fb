"""The README's picture of a terminal shows a good note, and a note whose citation slipped."""

from pages.faults.check_picture import PICTURE, normalize


def test_the_picture_shows_no_finding_and_then_the_finding_of_the_citation_that_slipped() -> None:
    shown = normalize(PICTURE.read_text("utf-8"))
    assert "0 findings" in shown
    assert shown.count("N208") == 1 and shown.endswith("1 finding")
