"""The README's picture of a terminal shows what the command prints today."""

from tests.notelab.commands import picture


def test_the_picture_says_what_check_prints_of_a_good_note_and_of_one_whose_citation_slipped() -> (
    None
):
    shown = picture.words(picture.PICTURE.read_text("utf-8"))
    now = picture.words(picture.drawn(picture.printed()))
    assert shown == now, "draw it again: python -m tests.notelab.commands.picture"
    assert "0 findings" in now
    assert now.count("N208") == 1 and now.endswith("1 finding")
