"""What a hostile page tries: to hang or crash the check, to leave the repository, to slip past."""

from pathlib import Path

import pytest

from notelab.cache import DiskCache
from notelab.cited import tokens
from notelab.page import embedded_html, reading
from tests.notelab.scratch import UPSTREAM, Scratch

SIZE = 256 * 1024 - 64


def filled(piece: str, before: str = "") -> str:
    return before + (piece * (SIZE // len(piece)))[: SIZE - len(before)]


@pytest.mark.parametrize(
    "page",
    [
        filled("—"), filled("["), filled("![["), filled("<"), filled("&#"), filled("\\`"),
        filled("**a*"), filled("\0"), filled("`a/b.py:L1`\n"), filled("[1](RESULTS.md#a)\n"),
        filled("a.", "`") + "`", filled("<a ", "<div>\n"), filled("<!-- ", "<div>\n"),
        filled('<a b="', "<div>\n"), filled("</", "<div>\n"), filled("&", "<div>\n"),
        filled("<![", "<div>\n"), filled("@{ ", "```mermaid\n"), filled('x\n??? "a"\n'),
    ],
    ids=lambda page: repr(page[:14]),
)  # fmt: skip
@pytest.mark.timeout(120)  # each takes 0.01 to 3 s; before they were fixed, minutes, or it raised
def test_the_worst_page_is_read_without_a_hang(page: str) -> None:
    assert reading.read(page)


def test_a_paragraph_too_long_to_read_is_a_finding_and_not_passed_by(scratch: Scratch) -> None:
    scratch.replace("note.md", "## Connect", "[" * 10_001 + "\n\n## Connect")
    assert "N102" in scratch.codes()


@pytest.mark.parametrize("mark", ["> ", "- "])
def test_what_is_nested_too_deeply_to_read_is_a_finding(scratch: Scratch, mark: str) -> None:
    scratch.replace("note.md", "## Connect", f"{mark * 60}hidden words\n\n## Connect")
    assert "N102" in scratch.codes()


@pytest.mark.parametrize(
    ("hidden", "count"),
    [
        ('[a](b "one two")', 3), ('<span title="one two">a</span>', 3),
        ('<div aria-label="one">two</div>', 2), ("one<br>two", 2),
        ("<table><td>one</td><td>two</td></table>", 2), ("    one two", 2),
        ("one\u200btwo\u2800three", 3), ("one&#x2800;two", 2), ("- # one two", 2),
        ("> ## one two", 2), ('<a b="one two', 3), ("<details>\none\n\ntwo</details>", 2),
    ],
)  # fmt: skip
def test_words_do_not_hide_where_the_reader_still_sees_them(hidden: str, count: int) -> None:
    assert reading.read(f"{hidden}\n").words == count


@pytest.mark.parametrize(
    "drawn",
    [
        "![a][b]\n\n[b]: x.png", "a <IMG SRC=x>", '<div style="background: URL(x)">a</div>',
        '<table background="x"></table>', "<input type=image src=x>",
        "<style>\nbody { background: url(x) }\n</style>", "<div><svg/onload=x></div>",
        '<img alt="> <!--" src=x>', "[a](data:image/png;base64,AAAA)",
        '```mermaid\nflowchart LR\n  A@{ img: "x.png" }\n```',
        '```mermaid\nflowchart LR\n  A["<img src=x>"]\n```',
        '<pre class="mermaid">\nflowchart LR\n</pre>',
    ],
)  # fmt: skip
def test_an_image_in_disguise_is_an_image(drawn: str) -> None:
    assert reading.read(f"{drawn}\n").images


def test_an_image_in_a_diagram_is_found_in_its_line() -> None:
    note = reading.read('x\n\n```mermaid\nflowchart LR\n  A@{ img: "x.png" }\n```\n')
    assert note.images[0].span.row == 5


@pytest.mark.parametrize(
    "info", ["{.mermaid}", "{mermaid}", "mermaid {x=1}", "Mermaid", "mermaid{x}"]
)
def test_a_diagram_is_one_whatever_its_fence_says_beside(info: str) -> None:
    assert len(reading.read(f"~~~ {info}\nflowchart LR\n~~~\n").diagrams) == 1


SLIPS = ["`a/b.py:L1-`", "`a/b.py:L1..L3`", "`a/b.py:L1\u200b`", "`see a/b.py:L1-L2 there`"]


@pytest.mark.parametrize(
    "citation",
    ["`a/b.py#L10-L12`", "`a/b.py:l10`", "`a/b.py:L1.`", "`a/b.py: L1`", "`a/b.py :L1`",
     "`a/b.py L1`", "`a/b.py, L1`", "`a/b.py:L1,L5`", "`a/b.py:line 3`", "<code>a/b.py:L1</code>",
     "<p>a/b.py:L1</p>", "see a/b.py:L1-L2", "\\`a/b.py:L1\\`", *SLIPS],
)  # fmt: skip
def test_what_a_reader_takes_for_a_citation_is_judged_as_one(citation: str) -> None:
    citations = reading.read(f"{citation}\n").citations
    assert citations and all(cited.problem or cited.first in (1, 3, 5, 10) for cited in citations)
    if citation in SLIPS:
        assert [bool(cited.problem) for cited in citations] == [True]


def test_a_number_quoted_by_an_html_link_is_judged() -> None:
    note = reading.read('<a href="../x/RESULTS.md#row">1.9×</a> and [2](RESULTS.md?a#b)\n')
    assert [(link.path, link.anchor) for link in note.numbers] == [
        ("../x/RESULTS.md", "row"),
        ("RESULTS.md", "b"),
    ]


def test_a_heading_inside_a_bullet_or_quotation_closes_nothing(scratch: Scratch) -> None:
    scratch.replace("note.md", "## Connect", "> ## Connect")
    assert "N109" in scratch.codes()


def test_html_beside_the_closing_paragraph_is_another_block(scratch: Scratch) -> None:
    scratch.write("note.md", scratch.read("note.md") + "\n<p>And a second one.</p>\n")
    assert scratch.codes() == ["N111"]


def test_a_comment_beside_the_closing_paragraph_is_none(scratch: Scratch) -> None:
    scratch.write("note.md", scratch.read("note.md") + "\n<!-- vale off -->\n")
    assert scratch.codes() == []


def test_a_title_is_more_than_a_full_stop() -> None:
    assert reading.read("- **.** a\n").choices[0].title == ""


LINES = UPSTREAM.split("class Scaler", 1)[1].strip().split("\n")


@pytest.mark.parametrize(
    "disguise",
    [
        lambda n, line: f"{n}: {line}", lambda n, line: f"{n:>4}  {line}",
        lambda n, line: f"L{n}. {line}", lambda n, line: f"+{line}", lambda n, line: f"... {line}",
        lambda n, line: f"> | {line} |", lambda n, line: f"{line}<br>",
        lambda n, line: f"<span>{line}</span>",
        lambda n, line: line.replace("_", "\\_").replace("*", "\\*"),
        lambda n, line: line.replace("e", "e\u200b"), lambda n, line: line.replace("(", "&#40;"),
    ],
)  # fmt: skip
def test_pasted_source_is_seen_in_disguise(scratch: Scratch, disguise: object) -> None:
    assert callable(disguise)
    paste = "\n".join(disguise(n, line) for n, line in enumerate(LINES, start=7) if line.strip())
    scratch.replace("note.md", "## Connect", f"```text\n{paste}\n```\n\n## Connect")
    assert "N601" in scratch.codes()


def test_source_pasted_into_the_front_matter_is_seen(scratch: Scratch) -> None:
    paste = "\n".join(f"  {line}" for line in LINES)
    scratch.replace("note.md", "title: A", f"aside: |\n{paste}\ntitle: A")
    assert "N601" in scratch.codes()


def test_a_page_keeps_its_rows_whatever_its_entities_are() -> None:
    assert [row for token, row in tokens.tokenize_page("a&#10;b\nc") if token == "c"] == [2]


@pytest.mark.parametrize("glob", ["../", "a**b", "x\0y"])
def test_a_glob_that_is_none_is_a_fault_in_the_lab_file(scratch: Scratch, glob: str) -> None:
    written = glob.replace("\0", "\\u0000")
    scratch.replace("lab.toml", 'title = "Scratch"', f'title = "Scratch"\npages = ["{written}"]')
    done = scratch.run("check", str(scratch.lab))
    assert done.returncode in (0, 2)
    assert "a fault of shardbook" not in done.stderr


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('pin = "up-sha.txt"', 'pin = "a\\u0000b"'),
        ('pin = "up-sha.txt"', f'pin = "{"a" * 300}"'),
        ('[notes."note.md"]', f'[notes."{"a" * 300}.md"]'),
        ('[notes."note.md"]', '[notes."a\\u001bb.md"]'),
        ('languages = ["en", "es"]', 'languages = ["en", "es\\n"]'),
    ],
)
def test_an_impossible_file_name_is_a_fault(scratch: Scratch, old: str, new: str) -> None:
    scratch.replace("lab.toml", old, new)
    done = scratch.run("check", str(scratch.lab))
    assert done.returncode == 2
    assert done.stderr.startswith("error: ") and "a fault of shardbook" not in done.stderr


def test_a_results_page_with_a_nul_in_its_input_is_stale_and_no_crash(scratch: Scratch) -> None:
    first_line = f"<!-- generated from a\0b sha256:{'0' * 64} -->"
    scratch.write("RESULTS.md", f'{first_line}\n\n<a id="r"></a> **1**\n')
    scratch.replace("note.md", "In lab 02", "In lab 02 [1](RESULTS.md#r)")
    assert "N404" in scratch.codes()


def test_control_characters_in_front_matter_are_called_what_they_are() -> None:
    problem = reading.read("---\ntitle: a\x07b\n---\n").front.problem
    assert "special characters" in problem


def test_html_is_scanned_to_its_end() -> None:
    scanned = embedded_html.scan('a<!-- b --><b>c</b>d<br/>e &amp; <![ <img alt="f > g"')
    assert scanned.text.split()[:3] == ["acd", "e", "&"]
    assert [kind for kind, _ in scanned.drawings] == ["<img>"]


def test_show_and_cite_say_which_source_or_file_is_not_there(scratch: Scratch) -> None:
    shown = scratch.run("show", "nope:pkg/scaler.py:L1")
    assert shown.returncode == 2 and "no lab has a source called 'nope'" in shown.stderr
    cited = scratch.run("cite", "up", "pkg/nope.py:combine")
    assert cited.returncode == 1 and "no `pkg/nope.py` in `up`" in cited.stderr


def test_a_path_that_is_too_long_is_no_crash(scratch: Scratch) -> None:
    done = scratch.run("check", "a" * 300 + ".md")
    assert done.returncode == 2
    assert "a fault of shardbook" not in done.stderr


@pytest.mark.parametrize("damage", [b"", b"x", b"\xff" * 40, None])
def test_a_damaged_content_cache_changes_no_verdict(scratch: Scratch, damage: bytes | None) -> None:
    assert scratch.codes() == []
    entries = [path for path in (scratch.root / "cache" / "memo").rglob("*") if path.is_file()]
    assert entries
    for path in entries:
        if damage is None:
            path.unlink()
            path.mkdir()
        else:
            path.write_bytes(damage)
    assert scratch.codes() == []


def test_an_interrupt_leaves_no_scratch_file_in_the_content_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(self: Path, target: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        DiskCache(tmp_path).put("note", "abcd", b"x")
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
