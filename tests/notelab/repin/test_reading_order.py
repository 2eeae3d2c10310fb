"""What is likeliest false is read first, with the sentence, the lines and the reason."""

from notelab.repin.carried import Carried, ChangedName, Kind, Place, Repin
from notelab.repin.reading import Lines, Reread, Why, to_read_again
from notelab.repin.sentences import Sentence
from notelab.repin.telling import side_by_side, told

TEXTS = {
    "old": {
        "gone.py": ["def kept(a):", "    return a"],
        "left.py": ["flag = read(option)", "use(flag)"],
        "around.py": ["speed = limit(option)", "use(speed)"],
        "grown.py": ["use(flag)"],
        "comma.py": ["use(flag, speed, limit, option)"],
        "same.py": ["never()"],
    },
    "new": {
        "left.py": ["flag = True", "use(flag)"],
        "around.py": ["speed = limit(1)", "use(speed)"],
        "grown.py": ["check(flag)", "if flag:", "    use(flag)"],
        "comma.py": ["use(flag, speed, limit, option,)"],
        "same.py": ["never()"],
    },
}


def place(path: str) -> Place:
    return Place(path, 1, 2)


def cited(path: str, kind: Kind) -> Carried:
    new = place(path) if kind in ("same", "moved") else None
    return Carried(place(path), kind, new, [place(path)] if kind == "edited" else [])


def says(path: str, *names: str, around: tuple[str, ...] = (), anchor: str = "") -> Sentence:
    where = [place(path)]
    return Sentence("note.md", 7, f"On {path}.", [*names], [*names, *around], where, where, anchor)


def lines(which: str) -> Lines:
    return lambda one: TEXTS[which][one.path][one.start - 1 : one.end]


def order(citations: list[Carried], sentences: list[Sentence], *names: ChangedName) -> list[Reread]:
    repin = Repin("up", "", "", citations, [*names])
    return to_read_again(repin, sentences, lines("old"), lines("new"))


ALL = [
    cited("comma.py", "edited"),
    cited("grown.py", "edited"),
    cited("around.py", "edited"),
    cited("left.py", "edited"),
    cited("gone.py", "gone"),
    cited("same.py", "moved"),
]
SAID = [
    says("comma.py", "flag"),
    says("grown.py", "flag"),
    says("around.py", "speed", around=("option",)),
    says("left.py", "option", around=("read",)),
    says("gone.py", "kept"),
    says("same.py", "never", "twin"),
]
TWIN = ChangedName("twin", "appeared", ["note.md"])


def test_names_first_then_gone_then_what_left_the_sentence_its_choice_and_the_rest() -> None:
    found = order(ALL, SAID, TWIN)
    assert [(one.carried.old.path, one.why) for one in found] == [
        ("same.py", Why.NAMED),
        ("gone.py", Why.GONE),
        ("left.py", Why.LEFT),
        ("around.py", Why.LEFT_AROUND),
        ("grown.py", Why.CHANGED),
        ("comma.py", Why.CHANGED),
    ]
    assert [one.carried.alarm for one in found] == [1, 2, 3, 4, 5, 6]


def test_each_says_why_in_words() -> None:
    reasons = {one.carried.old.path: one.carried.reason for one in order(ALL, SAID, TWIN)}
    assert reasons["same.py"] == "`twin` appeared, where the old tree has none"
    assert reasons["gone.py"] == "the lines are gone, and with them `kept`"
    assert reasons["left.py"] == "`option` left the lines that the sentence cites"
    assert reasons["around.py"] == "`option`, which the text around it names, left the lines"
    assert reasons["comma.py"].endswith("% of the lines changed, and no name left them")


def test_the_same_words_elsewhere_are_not_a_change_of_nought_per_cent() -> None:
    (found,) = order([cited("same.py", "edited")], [says("same.py", "never")])
    assert found.carried.reason == "the same words, under another condition or in another function"


def test_what_only_moved_needs_no_reading_where_its_names_stand() -> None:
    assert order([cited("same.py", "moved")], [says("same.py", "never")]) == []


def test_a_name_said_beside_a_citation_alarms_it_without_one_of_its_own() -> None:
    # Claim 31: the row's first column names, the next one cites.
    where = [place("same.py")]
    bare = Sentence("claims.md", 3, "`twin` is built", ["twin"], ["twin"], [], where, "claim-31")
    (found,) = order([cited("same.py", "same")], [bare, says("same.py", "never")], TWIN)
    assert found.why is Why.NAMED
    assert [one.page for one in found.sentences] == ["claims.md", "note.md"]
    assert found.claims == ["claim-31"]


def test_a_vanished_name_is_told_apart_from_one_that_appeared() -> None:
    left = ChangedName("never", "vanished", ["note.md"])
    (found,) = order([cited("same.py", "same")], [says("same.py", "never", "twin")], left, TWIN)
    assert found.carried.reason == (
        "`never` vanished from the whole tree; `twin` appeared, where the old tree has none"
    )


def test_two_texts_stand_side_by_side_in_80_columns() -> None:
    before = ["kept", "x" * 100, "kept too", "far", "farther"]
    after = ["kept", "y = 1", "z = 2", "kept too", "far", "farther"]
    shown = side_by_side(before, after)
    assert all(len(line) <= 80 for line in shown)
    assert [line[39] for line in shown] == [" ", "|", "|", " "]
    assert not any("farther" in line for line in shown)


def test_what_both_texts_are_indented_by_takes_no_room() -> None:
    (shown,) = side_by_side(["        one"], ["    two"])
    assert shown == f"{'one':38} | two"


def test_lines_of_which_nothing_is_left_have_the_whole_width() -> None:
    gone = "async_tensor_model_parallel_allreduce: bool = True"
    assert side_by_side([gone], []) == [f"{gone:78} |"]


def test_a_long_difference_is_cut_and_says_so() -> None:
    shown = side_by_side([], [f"line {at}" for at in range(30)])
    assert shown[-1] == "… 6 lines more"


def test_a_citation_stays_whole_where_it_is_wider_than_the_terminal() -> None:
    wide = f"{'megatron_core/' * 7}layers.py"
    one = Carried(place(wide), "gone", reason="the lines are gone")
    for why in (Why.GONE, Why.CHANGED):
        shown = told([Reread(one, [], why, [], 0)])
        assert any(f"{wide}:L1-L2" in line for line in shown)


def test_the_terminal_tells_in_80_columns_what_is_not_folded_with_sentence_and_lines() -> None:
    claim = says("left.py", "option", anchor="claim-7")
    shown = list(told(order(ALL, [*SAID, claim], TWIN)))
    assert all(len(line) <= 80 for line in shown)
    at = shown.index("3. left.py:L1-L2 -> left.py:L1-L2")
    assert shown[at + 1 : at + 6] == [
        "   edited: `option` left the lines that the sentence cites",
        "   note.md:7",
        "   > On left.py.",
        f"{'flag = read(option)':38} | flag = True",
        f"{'use(flag)':38}   use(flag)",
    ]
    folded = shown.index("2 more, of which nothing named has left:")
    assert shown[folded + 1 : folded + 3] == [
        "5. grown.py:L1-L2 (note.md:7)",
        "6. comma.py:L1-L2 (note.md:7)",
    ]
    assert sum("grown.py" in line for line in shown) == 1
    assert shown[-1] == "to judge again: claim-7"
