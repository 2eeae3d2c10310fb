"""The README's picture of a terminal shows what the command prints today."""

from tests.notelab.commands import picture


def test_the_picture_says_what_check_prints_of_a_citation_that_slipped() -> None:
    shown = picture.words(picture.PICTURE.read_text("utf-8"))
    now = picture.words(picture.drawn(picture.printed()))
    assert shown == now, "draw it again: python -m tests.notelab.commands.picture"
    assert "N208" in now and now.endswith("findings")
