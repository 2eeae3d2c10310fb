"""What a page says, and where: words, choices, citations, diagrams, images, numbers, headings."""

from hypothesis import given, settings
from hypothesis import strategies as st

from notelab.page import reading


def words(body: str) -> int:
    return reading.read(body).words


def test_words_have_a_letter_or_digit_in_bullets_paragraphs_html_and_tables() -> None:
    assert words("one two - three, 4 —") == 4
    assert words("- **bold title.** and `code_name` here") == 5
    assert words("niño añadió 3×2 ≤ x") == 4
    assert words("<div>one two</div>\n") == 2
    assert words("| a | b |\n|---|---|\n| c | d |\n") == 4


def test_front_matter_headings_fences_comments_and_citations_are_not_words() -> None:
    page = (
        "---\ntitle: not counted\n---\n# Nor this\n\n<!-- nor this -->\n\none <!-- nor --> two "
        "(`a/b.py:L1-L2`)\n\n```mermaid\nflowchart LR\n```\n\n## Nor that\n\nthree\n"
    )
    assert words(page) == 3


def test_only_top_level_dashes_are_choices_and_their_sub_bullets_belong_to_them() -> None:
    note = reading.read("- **A.** one\n  - inner two\n- **B** three\n\n* not a choice\n")
    assert [choice.title for choice in note.choices] == ["A.", "B"]
    assert [choice.words for choice in note.choices] == [4, 2]
    assert reading.read("- some **bold** word\n").choices[0].title == ""


def test_a_citation_knows_its_place_also_after_escapes_and_in_a_table() -> None:
    note = reading.read("x \\` y\n`q` and `a/b.py:L1`\n\n| a |\n|---|\n| `c/d.py:L2` |\n")
    spans = [(c.text, c.span.row, c.span.column) for c in note.citations]
    assert spans == [("a/b.py:L1", 2, 9), ("c/d.py:L2", 6, 3)]


def test_names_in_code_font_are_gathered_and_citations_are_not_among_them() -> None:
    note = reading.read("- **T** `self.weight.main_grad` and `f(x)` `a/b.py:L1`\n")
    assert note.choices[0].names == ["self", "weight", "main_grad", "f", "x"]


def test_diagrams_keep_their_row_id_and_size() -> None:
    note = reading.read("a\n\n```mermaid\n%% id: one\nflowchart LR\n\n%% why\nA --> B\n```\n")
    diagram = note.diagrams[0]
    assert (diagram.id, diagram.row, diagram.lines) == ("one", 4, 2)


def test_images_are_seen_in_markdown_and_in_html() -> None:
    note = reading.read(
        "![a](b.png)\n\n<svg></svg>\n\ntext <IMG src=x>\n\n![r][ref]\n\n[ref]: c.png\n"
    )
    assert len(note.images) == 4


def test_a_number_is_a_link_into_a_results_page() -> None:
    note = reading.read("[1.9×](../lab/RESULTS.md#tp2) and [else](../lab/OTHER.md#tp2)\n")
    assert [(n.text, n.path, n.anchor) for n in note.numbers] == [
        ("1.9×", "../lab/RESULTS.md", "tp2")
    ]


def test_the_closing_section_knows_its_paragraphs_and_other_blocks() -> None:
    note = reading.read("# T\n\na\n\n## Connect the dots\n\none\n\ntwo\n\n- bullet\n")
    closing = note.headings[-1]
    assert (closing.text, closing.paragraphs, closing.other_blocks) == ("Connect the dots", 2, 1)


def test_front_matter_is_data_alone() -> None:
    note = reading.read("---\ntitle: !!python/object/apply:os.system [true]\n---\n")
    assert note.front.problem
    note = reading.read("---\ntitle: a\ncommit:\n  up: 0055123\n---\n")
    assert [(row.source, row.prefix) for row in note.front.commits] == [("up", "0055123")]


def test_front_matter_that_is_no_yaml_or_no_table_is_a_problem() -> None:
    front = reading.read("---\ntitle: a\n  b: [\n---\n").front
    assert "not YAML" in front.problem
    assert front.span.row in (2, 3, 4)
    assert "not a table" in reading.read("---\n- title\n---\n").front.problem


def test_a_link_to_lines_in_an_unknown_form_cites_no_lines() -> None:
    citation = reading.read("A [sum](pkg/work.py#L4-L6-L9).").citations[0]
    assert citation.problem and (citation.first, citation.last) == (0, 0)


@settings(deadline=None)
@given(
    st.lists(
        st.sampled_from(
            [
                "- ", "**", "`", "``", "a/b.py:L1-L2", "\n", "\n\n", "# ", "```mermaid\n", "<!--",
                "-->", "|", "---", "---\n", "[", "](", ")", "![", "<img", ">", "\\", "*", "x y",
                "\t", "\x00", "é", "&amp;", "1. ", "title: a", "> ",
            ]
        ),
        max_size=40,
    ).map("".join)
)  # fmt: skip
def test_reading_never_raises_whatever_the_markdown(text: str) -> None:
    note = reading.read(text)
    rows = text.count("\n") + 1
    for citation in note.citations:
        assert 1 <= citation.span.row <= rows


@settings(deadline=None)
@given(st.text(max_size=200))
def test_reading_never_raises_whatever_the_text(text: str) -> None:
    reading.read(text)
