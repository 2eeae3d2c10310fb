"""The most likely wrong citation is listed first, with its sentence, lines and reason."""

import pytest

from notelab.repin import review_order
from notelab.repin.changes import CitationChange, Kind, NameChange, Place, RepinResult
from notelab.repin.review_order import ReadLines, ReviewItem, ReviewReason, order_review
from notelab.repin.sentences import Sentence

TEXTS = {
    "old": {"gone.py": ["def kept(a):", "    return a"],
            "left.py": ["flag = read(option)", "use(flag)"],
            "around.py": ["speed = limit(option)", "use(speed)"], "grown.py": ["use(flag)"],
            "comma.py": ["use(flag, speed, limit, option)"], "same.py": ["never()"]},
    "new": {"left.py": ["flag = True", "use(flag)"],
            "around.py": ["speed = limit(1)", "use(speed)"],
            "grown.py": ["check(flag)", "if flag:", "    use(flag)"],
            "comma.py": ["use(flag, speed, limit, option,)"], "same.py": ["never()"]},
}  # fmt: skip


def place(path: str) -> Place:
    return Place(path, 1, 2)


def cited(path: str, kind: Kind) -> CitationChange:
    new = place(path) if kind in ("same", "moved") else None
    return CitationChange(place(path), kind, new, [place(path)] if kind == "edited" else [])


def says(path: str, *names: str, around: tuple[str, ...] = (), anchor: str = "") -> Sentence:
    where = [place(path)]
    return Sentence("note.md", 7, f"On {path}.", [*names], [*names, *around], where, where, anchor)


def lines(which: str) -> ReadLines:
    return lambda target: TEXTS[which][target.path][target.start - 1 : target.end]


def order(
    citations: list[CitationChange], sentences: list[Sentence], *names: NameChange
) -> list[ReviewItem]:
    repin = RepinResult("up", "", "", citations, [*names])
    return order_review(repin, sentences, lines("old"), lines("new"))


ALL = [
    cited("comma.py", "edited"), cited("grown.py", "edited"), cited("around.py", "edited"),
    cited("left.py", "edited"), cited("gone.py", "gone"), cited("same.py", "moved"),
]  # fmt: skip
SENTENCES = [
    says("comma.py", "flag"),
    says("grown.py", "flag"),
    says("around.py", "speed", around=("option",)),
    says("left.py", "option", around=("read",)),
    says("gone.py", "kept"),
    says("same.py", "never", "twin"),
]
TWIN = NameChange("twin", "appeared", ["note.md"])


def test_names_first_then_gone_then_what_left_the_sentence_its_choice_and_the_rest() -> None:
    items = order(ALL, SENTENCES, TWIN)
    assert [(item.change.old.path, item.reason) for item in items] == [
        ("same.py", ReviewReason.NAME_CHANGED),
        ("gone.py", ReviewReason.GONE),
        ("left.py", ReviewReason.NAME_LEFT),
        ("around.py", ReviewReason.BLOCK_NAME_LEFT),
        ("grown.py", ReviewReason.CHANGED),
        ("comma.py", ReviewReason.CHANGED),
    ]
    assert [item.change.alarm for item in items] == [1, 2, 3, 4, 5, 6]


def test_the_same_words_elsewhere_are_not_a_change_of_nought_per_cent() -> None:
    (item,) = order([cited("same.py", "edited")], [says("same.py", "never")])
    assert item.change.reason == "the same words, under another condition or in another function"


def test_what_only_moved_needs_no_reading_where_its_names_stand() -> None:
    assert order([cited("same.py", "moved")], [says("same.py", "never")]) == []


def test_a_name_said_beside_a_citation_alarms_it_without_one_of_its_own() -> None:
    # Claim 31: the row's first column names, the next one cites.
    where = [place("same.py")]
    bare = Sentence("claims.md", 3, "`twin` is built", ["twin"], ["twin"], [], where, "claim-31")
    (item,) = order([cited("same.py", "same")], [bare, says("same.py", "never")], TWIN)
    assert item.reason is ReviewReason.NAME_CHANGED
    assert [sentence.page for sentence in item.sentences] == ["claims.md", "note.md"]
    assert item.claims == ["claim-31"]


def test_a_vanished_name_is_distinguished_from_one_that_appeared() -> None:
    name_change = NameChange("never", "vanished", ["note.md"])
    (item,) = order(
        [cited("same.py", "same")], [says("same.py", "never", "twin")], name_change, TWIN
    )
    assert item.change.reason == (
        "`never` vanished from the whole tree; `twin` appeared; the old tree doesn't have them"
    )


def test_two_texts_stand_side_by_side_in_80_columns() -> None:
    before = ["kept", "x" * 100, "kept too", "far", "farther"]
    after = ["kept", "y = 1", "z = 2", "kept too", "far", "farther"]
    shown = review_order.format_side_by_side(before, after)
    assert all(len(line) <= 80 for line in shown)
    assert [line[39] for line in shown] == [" ", "|", "|", " "]
    assert not any("farther" in line for line in shown)


@pytest.mark.parametrize(
    ("before", "after", "shown"),
    [
        (["        one"], ["    two"], f"{'one':38} | two"),  # what both are indented by
        (["a" * 50], [], f"{'a' * 50:78} |"),  # nothing is left: the whole width
        ([], [f"line {at}" for at in range(30)], "… 6 more lines"),
    ],
)
def test_a_difference_is_shown_in_as_much_room_as_it_needs(
    before: list[str], after: list[str], shown: str
) -> None:
    assert review_order.format_side_by_side(before, after)[-1] == shown


def test_a_citation_stays_whole_where_it_is_wider_than_the_terminal() -> None:
    wide = f"{'megatron_core/' * 7}layers.py"
    change = CitationChange(place(wide), "gone", reason="the lines are gone")
    for reason in (ReviewReason.GONE, ReviewReason.CHANGED):
        shown = review_order.render([ReviewItem(change, [], reason, [], 0)])
        assert any(f"{wide}:L1-L2" in line for line in shown)


def test_the_terminal_tells_in_80_columns_what_is_not_folded_with_sentence_and_lines() -> None:
    claim = says("left.py", "option", anchor="claim-7")
    shown = list(review_order.render(order(ALL, [*SENTENCES, claim], TWIN)))
    assert all(len(line) <= 80 for line in shown)
    at = shown.index("3. left.py:L1-L2 -> left.py:L1-L2")
    assert shown[at + 1 : at + 6] == [
        "   edited: `option` left the lines that the sentence cites",
        "   note.md:7",
        "   > On left.py.",
        f"{'flag = read(option)':38} | flag = True",
        f"{'use(flag)':38}   use(flag)",
    ]
    folded = shown.index("2 more, whose names are all still there:")
    assert shown[folded + 1 : folded + 3] == [
        "5. grown.py:L1-L2 (note.md:7)",
        "6. comma.py:L1-L2 (note.md:7)",
    ]
    assert sum("grown.py" in line for line in shown) == 1
    assert shown[-1] == "to judge again: claim-7"
