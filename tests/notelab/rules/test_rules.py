"""Each rule on a small lab: what breaks it, what doesn't, where the finding points."""

from hashlib import sha256

import msgspec
import pytest

from notelab.finding import Finding
from tests.notelab.generated_page import generated_page
from tests.notelab.scratch import Scratch

pytestmark = pytest.mark.usefixtures("one_engine")


def only(scratch: Scratch, *pages: str) -> Finding:
    findings = scratch.check(*pages).findings
    assert len(findings) == 1, findings
    return findings[0]


def test_a_sound_lab_has_nothing_to_report_and_every_citation_proved(scratch: Scratch) -> None:
    report = scratch.check()
    assert report.findings == []
    assert [(note.citations, note.proved, note.locked) for note in report.notes] == [(2, 2, 0)] * 2


def test_with_no_source_at_hand_the_lock_alone_is_checked_and_said_so(scratch: Scratch) -> None:
    scratch.root.joinpath("cache").rename(scratch.root / "gone")
    report = scratch.check(mirror=False)
    assert report.findings == []
    assert [(note.proved, note.locked) for note in report.notes] == [(0, 2)] * 2
    assert report.labs[0].unread_for_paste == 1


def test_with_no_source_at_hand_an_unknown_citation_fails(scratch: Scratch) -> None:
    scratch.root.joinpath("cache").rename(scratch.root / "gone")
    scratch.replace("note.md", "L14-L15", "L14-L16")
    codes = scratch.codes(mirror=False)
    assert "N210" in codes


def gantt(form: str, *tasks: str) -> str:
    lines = "\n".join(f"  {task}" for task in ("title at: 2, 4", "section s", *tasks))
    return f"```mermaid\ngantt\n  dateFormat {form}\n{lines}\n```\n"


@pytest.mark.parametrize(
    ("form", "task", "reason"),
    [
        ("X", "late :active, l, 2, 4", "its start, 2, as milliseconds"),
        pytest.param("X", "late : 2, 3s", "its start, 2, as milliseconds", marks=pytest.mark.ci),
        ("x", "late :l, 1.5, 4", "not 1.5"),
        pytest.param("x", "late : 1, .5", "not .5", marks=pytest.mark.ci),
        ("X", "late : 0, 2.5", "not 2.5"),
    ],
)
def test_a_gantts_task_that_mermaid_draws_elsewhere_is_a_finding_at_its_line(
    scratch: Scratch, form: str, task: str, reason: str
) -> None:
    scratch.replace("note.md", "## Connect", gantt(form, "early : 0, 2", task) + "\n## Connect")
    (finding,) = (
        candidate for candidate in scratch.check("note.md").findings if candidate.code == "N308"
    )
    assert reason in finding.message and "“late”" in finding.message
    line = scratch.read("note.md").split("\n")[finding.span.row - 1]
    assert line[finding.span.column - 1 :] == task


@pytest.mark.parametrize(
    ("first_lines", "message"),
    [
        (["", ""], "the lab doesn't ask for this diagram, which has no id"),
        (["%% id: flow", "%% id: flows"], "the lab doesn't ask for the diagram `flows`"),
        (["%% id: flow", "%% id: flow"], "the page has the diagram `flow` more than once"),
    ],
)
def test_an_extra_diagram_is_named(scratch: Scratch, first_lines: list[str], message: str) -> None:
    table = '\n[diagrams."note.md"]\n[[diagrams."note.md".expect]]\nid = "flow"\n'
    scratch.write("lab.toml", scratch.read("lab.toml") + table)
    blocks = "".join(f"```mermaid\n{line}\nflowchart LR\n  a\n```\n\n" for line in first_lines)
    scratch.replace("note.md", "## Connect", blocks + "## Connect")
    findings = [finding for finding in scratch.check("note.md").findings if finding.code == "N306"]
    assert findings[-1].message == message


@pytest.mark.parametrize(
    ("form", "tasks"),
    [
        ("x", ("a :a1, 2, 4", "free :milestone, m, 5, 5", "b :crit, after a1, 1.5s")),
        ("X", ("a :a1, 0, 4", "b : after a1, 3s", "c : 4")),
        ("YYYY-MM-DD", ("a : 2024-01-01, 2.5d",)),
    ],
)
def test_a_gantt_that_is_drawn_right(scratch: Scratch, form: str, tasks: tuple[str, ...]) -> None:
    scratch.replace("note.md", "## Connect", gantt(form, *tasks) + "\n## Connect")
    codes = scratch.codes("note.md")
    assert "N308" not in codes and "N302" not in codes


@pytest.mark.parametrize(
    ("range_", "code"),
    [
        ("L15-L14", "N202"), ("L014-L15", "N201"), ("14-99", "N205"), ("L14-L99", "N205"),
        ("L7-L25", "N207"), ("L19-L23", "N207"), ("L11-L13", "N207"), ("L15-L17", "N208"),
        ("L16-L16", "N209"),
    ],
)  # fmt: skip
def test_a_wrong_range_has_its_code(scratch: Scratch, range_: str, code: str) -> None:
    scratch.replace_both("L14-L15", range_)
    scratch.lock()
    findings = [finding for finding in scratch.check().findings if finding.code == code]
    assert {finding.filename.rpartition("/")[2] for finding in findings} == {
        "note.md",
        "note.es.md",
    }
    assert all(f"scaler.py:{range_}" in finding.message for finding in findings)
    for finding in findings:
        line = scratch.read(finding.filename.rpartition("/")[2]).split("\n")[finding.span.row - 1]
        assert line[finding.span.column - 1 :].startswith(f"`pkg/scaler.py:{range_}`")


def test_a_citation_locked_without_an_anchor_fails_by_the_lock_alone(scratch: Scratch) -> None:
    scratch.replace_both("L14-L15", "L16-L16")
    scratch.lock()
    scratch.root.joinpath("cache").rename(scratch.root / "gone")
    assert scratch.codes(mirror=False) == ["N209", "N209"]


def test_a_wrong_range_is_answered_with_one_that_fits_and_a_symbol(scratch: Scratch) -> None:
    scratch.replace("note.md", "L14-L15", "L15-L17")
    finding = next(f for f in scratch.check("note.md").findings if f.code == "N208")
    assert "`pkg/scaler.py:L15-L16`" in finding.help or "L14" in finding.help
    assert "`Scaler.apply` is L13-L19" in finding.help


def test_a_range_wider_than_allowed_is_found(scratch: Scratch) -> None:
    scratch.replace(
        "lab.toml", 'languages = ["en", "es"]', 'languages = ["en", "es"]\nmax-lines = 3'
    )
    assert scratch.codes() == ["N206", "N206"]


def test_an_unknown_path_is_answered_with_the_closest(scratch: Scratch) -> None:
    scratch.replace("note.md", "pkg/scaler.py:L22-L25", "pkg/scalar.py:L22-L25")
    finding = next(f for f in scratch.check("note.md").findings if f.code == "N203")
    assert "pkg/scaler.py" in finding.help


def test_a_citation_that_the_lock_does_not_know_is_found_though_it_fits(scratch: Scratch) -> None:
    scratch.replace("note.md", "L22-L25", "L24-L25")
    scratch.replace("note.md", "`combine`", "`combine` `total`")
    scratch.replace("note.es.md", "L22-L25", "L24-L25")
    scratch.replace("note.es.md", "`combine`", "`combine` `total`")
    assert scratch.codes() == ["N210", "N210"]
    help = scratch.check().findings[0].help
    assert "the lock knows `pkg/scaler.py:L22-L25` on this page" in help


def test_a_citation_taken_out_of_a_page_leaves_the_lock_too_full(scratch: Scratch) -> None:
    scratch.replace_both("`pkg/scaler.py:L22-L25`", "`pkg/scaler.py:L14-L15` `uses`")
    findings = scratch.check().findings
    assert {finding.code for finding in findings} == {"N210"}
    assert "once on this page, but the page has it twice" in findings[0].message
    scratch.replace_both("`pkg/scaler.py:L14-L15` `uses`", "there")
    assert "N212" in scratch.codes()


def test_a_lock_that_names_another_file_than_the_commit_has_is_found(scratch: Scratch) -> None:
    blob = scratch.read("citations.lock").split('"blob": "')[1][:40]
    scratch.replace("citations.lock", blob, "0" * 40)
    codes = scratch.codes()
    assert "N211" in codes


def test_a_lock_that_remembers_other_lines_is_found(scratch: Scratch) -> None:
    text = scratch.read("citations.lock")
    at = text.index('"sha256": "') + len('"sha256": "')
    digit = "0" if text[at] != "0" else "1"
    scratch.write("citations.lock", text[:at] + digit + text[at + 1 :])
    assert set(scratch.codes()) == {"N211"}


def test_a_lock_of_another_commit_is_found(scratch: Scratch) -> None:
    scratch.replace("citations.lock", scratch.commit, "0" * 40)
    (finding,) = scratch.check().findings
    assert (finding.code, finding.expected) == ("N211", f"`{scratch.commit[:12]}`")


def test_a_missing_lock_is_said_once(scratch: Scratch) -> None:
    scratch.lab.joinpath("citations.lock").unlink()
    assert scratch.codes() == ["N210"]


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        ("title: A scratch note\n", "", "N103"),
        ("  up: ", "  down: ", "N123"),
        ("## Connect the dots", "## The end", "N109"),
        ("In lab 02 the", "The", "N112"),
        ("we measure.\n", "we measure.\n\nAnd more.\n", "N111"),
        ("we measure.\n", "we measure.\n\n## After\n\nall.\n", "N110"),
        ("## Connect the dots", "### Connect the dots", "N110"),
        ("**Counted before.**", "Counted before.", "N107"),
        ("`pkg/scaler.py:L22-L25`", "The file", "N108"),
        ("Two amounts.", "Two amounts and " + "word " * 40, "N106"),
        ("In lab 02", "In lab 02 " + "word " * 90, "N104"),
        ("we measure.", "we measure. ![x](x.png)", "N602"),
    ],
)
def test_each_stop_condition_is_held(scratch: Scratch, old: str, new: str, code: str) -> None:
    scratch.replace("note.md", old, new)
    assert code in scratch.codes()


def test_the_word_that_is_one_too_many_is_found(scratch: Scratch) -> None:
    text = scratch.read("note.md")
    words = scratch.check("note.md").notes[0].words
    for more, codes in ((120 - words, []), (121 - words, ["N104"])):
        scratch.write("note.md", text.replace("we measure.", f"we measure{' word' * more}."))
        assert scratch.codes("note.md") == codes


@pytest.mark.parametrize(("words", "fault"), [(9, True), (10, False), (40, False), (41, True)])
def test_a_choices_length_is_held_at_both_ends(scratch: Scratch, words: int, fault: bool) -> None:
    text = scratch.read("note.md")
    start, end = text.index("- **Two"), text.index("\n\n## ")

    def check(count: int) -> list[Finding]:
        choice = f"- **Two amounts.** `pkg/scaler.py:L22-L25`{' word' * count}"
        scratch.write("note.md", text[:start] + choice + text[end:])
        return [each for each in scratch.check("note.md").findings if each.code == "N106"]

    [base] = check(0)
    findings = check(words - int(base.found))
    assert [each.span.row for each in findings] == [text[:start].count("\n") + 1] * fault


def test_a_note_without_its_commit_is_told_the_row_to_write(scratch: Scratch) -> None:
    scratch.replace("note.md", "  up: ", "  down: ")
    findings = [each for each in scratch.check("note.md").findings if each.code == "N123"]
    assert f"a row `up: {scratch.commit[:12]}` under `commit:`" in [f.expected for f in findings]


@pytest.mark.parametrize("prefix", ["master", "abc", "a" * 41])
def test_a_value_that_begins_no_commit_is_found(scratch: Scratch, prefix: str) -> None:
    scratch.replace("note.md", f"  up: {scratch.commit[:12]}", f"  up: {prefix}")
    findings = [each for each in scratch.check("note.md").findings if each.code == "N123"]
    assert [each.found for each in findings] == [f"`{prefix}`"]
    assert "is not the beginning of a commit" in findings[0].message


def test_a_closing_of_another_level_says_which(scratch: Scratch) -> None:
    scratch.replace("note.md", "## Connect the dots", "### Connect the dots")
    (finding,) = (each for each in scratch.check("note.md").findings if each.code == "N110")
    assert finding.message == "the closing's heading is of level 3"
    assert finding.expected == "level 2: `## Connect the dots`"


def test_a_choice_less_than_asked_for_is_found(scratch: Scratch) -> None:
    for name in ("note.md", "note.es.md"):
        text = scratch.read(name)
        start, end = (
            text.index("- **T") if name == "note.md" else text.index("- **D"),
            text.index("\n## "),
        )
        scratch.write(name, text[:start] + text[end:])
    scratch.lock()
    assert scratch.codes() == ["N105", "N105"]


@pytest.mark.parametrize(
    ("earlier", "new"),
    [
        ("Nothing is cited.", 2),
        ("See `pkg/scaler.py:L15-L17`.", 1),
        ("See `scaler.py:L22`.", 1),
        ("See `other/scaler.py:L22` and `pkg/scaler.py:L16-L21`.", 2),
        ("<details>\n\n`pkg/scaler.py:L14`, `pkg/scaler.py:L25`\n\n</details>", 0),
    ],
)
def test_a_choice_is_new_if_no_earlier_page_cites_it(
    scratch: Scratch, earlier: str, new: int
) -> None:
    scratch.book.joinpath("01-before.md").write_text(f"# Before\n\n{earlier}\n", "utf-8")
    scratch.replace("lab.toml", "[lab]", '[lab]\nmin-new-choices = 2\nbefore = ["../../0*.md"]')
    findings = scratch.check().findings
    assert [finding.code for finding in findings] == ["N114"] * (new < 2)
    for finding in findings:
        assert finding.span.row == 2 and finding.expected == "at least 2"
        assert finding.message.startswith(f"{new} of 2 choices cite only lines")
        assert "01-before.md" in finding.found
        assert ("“Counted before”" in finding.found) == ("L22" not in earlier)
    assert scratch.codes("note.md") == []  # a page alone doesn't say what the lab has


def test_new_choices_are_counted_when_no_note_lacks_a_choice(scratch: Scratch) -> None:
    scratch.book.joinpath("01-before.md").write_text("# Before\n\n`scaler.py:L14`\n", "utf-8")
    scratch.replace("lab.toml", "[lab]", '[lab]\nmin-new-choices = 2\nbefore = ["../../0*.md"]')
    scratch.replace("lab.toml", "min-choices = 2", "min-choices = 3")
    assert scratch.codes() == ["N105", "N105"]


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (None, "N120"), ("", "N121"), ("abc\n", "N121"), ("0" * 39 + "\n", "N121"),
        ("G" * 40 + "\n", "N121"),
    ],
)  # fmt: skip
def test_a_missing_or_malformed_pin_is_found(
    scratch: Scratch, content: str | None, code: str
) -> None:
    scratch.lab.joinpath("up-sha.txt").unlink()
    if content is not None:
        scratch.write("up-sha.txt", content)
    assert code in scratch.codes()


def test_a_pin_that_no_source_has_is_a_finding(scratch: Scratch) -> None:
    scratch.write("up-sha.txt", "1" * 40 + "\n")
    codes = scratch.codes()
    assert "N122" in codes
    assert "N123" in codes


def test_a_missing_translation_is_a_finding_and_a_missing_note_too(scratch: Scratch) -> None:
    scratch.lab.joinpath("note.es.md").unlink()
    assert scratch.codes() == ["N501"]
    scratch.lab.joinpath("note.md").unlink()
    assert "N101" in scratch.codes()


def test_a_translation_out_of_step_is_a_finding(scratch: Scratch) -> None:
    first, second = "`pkg/scaler.py:L14-L15`", "`pkg/scaler.py:L22-L25`"
    text = scratch.read("note.es.md")
    scratch.write("note.es.md", text.replace(second, "`pkg/scaler.py:L24-L25` `total`"))
    assert "N503" in scratch.codes()
    swapped = text.replace(first, "...").replace(second, first).replace("...", second)
    scratch.write("note.es.md", swapped)
    assert scratch.codes().count("N503") == 2


def test_an_untranslated_paragraph_is_a_finding(scratch: Scratch) -> None:
    scratch.write(
        "note.es.md", scratch.read("note.md").replace("Connect the dots", "Une los puntos")
    )
    assert "N506" in scratch.codes()


@pytest.mark.parametrize("shape", ["{}", "```python\n{}\n```", "> {}", "    {}", "- {}", "+{}"])
def test_pasted_source_is_found_however_it_is_quoted(scratch: Scratch, shape: str) -> None:
    source = scratch.upstream.joinpath("pkg/scaler.py").read_text().split("\n")[13:19]
    if shape.startswith("```"):
        pasted = shape.format("\n".join(source))
    else:
        pasted = "\n".join(shape.format(line) for line in source)
    scratch.replace("note.md", "## Connect", f"{pasted}\n\n## Connect")
    finding = next(f for f in scratch.check("note.md").findings if f.code == "N601")
    assert "`pkg/scaler.py`" in finding.message


@pytest.mark.parametrize(
    "junk",
    [b"\xff\xfe", b"", b"  \n", b"x" * 50_000_000],
    ids=["no text", "empty", "blank", "huge"],
)
def test_an_unreadable_note_is_a_finding(scratch: Scratch, junk: bytes) -> None:
    scratch.lab.joinpath("note.md").write_bytes(junk)
    assert "N102" in scratch.codes()


def test_crlf_and_a_trailing_newline_and_a_byte_order_mark_change_nothing(scratch: Scratch) -> None:
    text = scratch.read("note.md")
    data = b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode() + b"\r\n"
    scratch.lab.joinpath("note.md").write_bytes(data)
    assert scratch.codes() == []


def test_checking_one_page_says_nothing_of_citations_of_others(scratch: Scratch) -> None:
    assert scratch.codes("note.md") == []
    assert {note.filename.rpartition("/")[2] for note in scratch.check("note.es.md").notes} == {
        "note.md",
        "note.es.md",
    }


def test_findings_are_said_once_and_in_order(scratch: Scratch) -> None:
    scratch.replace("note.md", "L14-L15", "L15-L17")
    findings = scratch.check().findings
    assert findings == sorted(findings, key=lambda f: f.order)
    assert len({msgspec.json.encode(f) for f in findings}) == len(findings)


def test_a_link_to_a_whole_results_page_may_not_show_a_number(scratch: Scratch) -> None:
    scratch.replace("note.md", "In lab 02", "In lab 02 ([results](RESULTS.md))")
    assert scratch.codes() == []
    scratch.replace("note.md", "[results](RESULTS.md)", "[2×](RESULTS.md)")
    assert sorted(scratch.codes()) == ["N401", "N504"]


def generated(scratch: Scratch, data: bytes, body: str = "# x\n") -> None:
    """A page of the lab, in both languages, made from results.json; nothing quotes it."""
    scratch.replace(
        "lab.toml", 'languages = ["en", "es"]', 'languages = ["en", "es"]\npages = ["CLAIMS.md"]'
    )
    for name in ("CLAIMS.md", "CLAIMS.es.md"):
        scratch.write(name, generated_page(body, title="x", results=data))


def test_a_generated_page_that_nothing_quotes_is_stale_after_its_input(scratch: Scratch) -> None:
    scratch.write("results.json", "1")
    generated(scratch, b"1")
    assert scratch.codes() == []
    scratch.write("results.json", "2")
    findings = scratch.check().findings
    assert [(finding.code, finding.span.row) for finding in findings] == [("N404", 5), ("N404", 5)]
    assert {finding.filename.rpartition("/")[2] for finding in findings} == {
        "CLAIMS.md",
        "CLAIMS.es.md",
    }
    assert scratch.codes("CLAIMS.md") == ["N404", "N404"]


def quoting(scratch: Scratch, page: str) -> None:
    """The note quotes the 2× of RESULTS.md, whose text is `page`."""
    scratch.write("RESULTS.md", page)
    scratch.replace("note.md", "In lab 02", "In lab 02 [2×](RESULTS.md#r)")


ROW = '| <a id="r"></a>**2×** |\n'


TABLE = "id,value,formatted\nr.x,2.01,2×\nr.y,3,3×\n"
CELLS = '| <a id="r-x"></a>2× (1 – 3) | <a id="q"></a>**5×** |\n'


def quoting_a_csv(scratch: Scratch, quote: str, table: str = TABLE) -> list[str]:
    """Return what is found if the note quotes a page that was generated from a CSV."""
    scratch.write("results.csv", table)
    scratch.write("RESULTS.md", generated_page(CELLS, suffix="csv", results=table.encode()))
    scratch.replace("note.md", "In lab 02", f"In lab 02 {quote}")
    return [
        f"{finding.code} {finding.found}"
        for finding in scratch.check().findings
        if finding.code != "N504"
    ]


@pytest.mark.parametrize(
    ("quote", "expected"),
    [
        ("[2×](RESULTS.md#r-x)", []),
        ("[2.01×](RESULTS.md#r-x)", ["N402 2.01×"]),
        ("[3×](RESULTS.md#r-y)", ["N401 a line in results.csv, but no place on the page"]),
        ("[5×](RESULTS.md#q)", ["N401 2 values in that row"]),
        ("[5×](RESULTS.md#s)", ["N401 no such row"]),
    ],
)
def test_a_quoted_number_is_the_csv_s_and_has_a_place_on_the_page(
    scratch: Scratch, quote: str, expected: list[str]
) -> None:
    table = TABLE + "q,5,5×\nq,6,6×\n"
    assert quoting_a_csv(scratch, quote, table) == expected


@pytest.mark.parametrize(
    "table", ["", "id,value\nr.x,2×\n", "id,formatted\nr.x\n", "id,formatted\n\0\n", '"\n']
)
def test_a_csv_without_such_columns_gives_no_value(scratch: Scratch, table: str) -> None:
    (found,) = quoting_a_csv(scratch, "[2×](RESULTS.md#r-x)", table)
    assert found.startswith("N40")


def test_a_results_page_edited_by_hand_is_found_though_a_note_agrees(scratch: Scratch) -> None:
    scratch.write("results.json", "1")
    page = generated_page(ROW.replace("2×", "1×"), results=b"1")
    quoting(scratch, page.replace("1×", "2×"))
    assert scratch.codes("note.md") == ["N404", "N504"]
    scratch.write("RESULTS.md", generated_page(ROW, results=b"1"))
    assert scratch.codes("note.md") == ["N504"]


def test_a_lab_in_spanish_alone_quotes_the_spanish_page_of_results(scratch: Scratch) -> None:
    scratch.write("results.json", "1")
    scratch.write("RESULTS.es.md", generated_page(ROW, results=b"1"))
    scratch.lab.joinpath("note.md").unlink()
    scratch.lab.joinpath("note.es.md").rename(scratch.lab / "note.md")
    scratch.replace("lab.toml", '["en", "es"]', '["es"]')
    scratch.replace("note.md", "medimos", "medimos [2×](RESULTS.es.md#r) de")
    scratch.lock()
    assert scratch.codes() == []
    scratch.replace("note.md", "[2×]", "[3×]")
    assert scratch.codes() == ["N402"]
    scratch.replace("note.md", "RESULTS.es.md", "RESULTS.fr.md")
    assert scratch.codes() == ["N403"]


@pytest.mark.parametrize("seals", [0, 2])
def test_a_generated_page_names_itself_once(scratch: Scratch, seals: int) -> None:
    scratch.write("results.json", "1")
    page = generated_page(ROW, results=b"1")
    seal = next(line for line in page.split("\n") if "without this line" in line)
    quoting(scratch, page.replace(f"{seal}\n", f"{seal}\n" * seals))
    assert scratch.codes("note.md") == ["N404", "N504"]


def test_a_quoted_results_page_says_what_it_was_generated_from(scratch: Scratch) -> None:
    quoting(scratch, f"# Results\n\n{ROW}")
    assert scratch.codes("note.md") == ["N405", "N504"]


def test_a_page_that_shows_such_a_header_as_an_example_was_not_generated(scratch: Scratch) -> None:
    generated(scratch, b"no such")
    for name in ("CLAIMS.md", "CLAIMS.es.md"):
        text = scratch.read(name)
        header = next(line for line in text.split("\n") if line.startswith("<!--"))
        scratch.write(name, f"# x\n\n```text\n{header}\n```\n")
    assert scratch.codes() == []


def test_a_generated_page_may_show_figures_and_no_other_page_may(scratch: Scratch) -> None:
    scratch.write("results.json", "1")
    figure = "\n![Time against size](figures/time.svg)\n"
    generated(scratch, b"1", f"# x\n{figure}")
    assert scratch.codes() == []
    for name in ("CLAIMS.md", "CLAIMS.es.md"):
        scratch.write(name, f"# x\n{figure}")
    assert scratch.codes() == ["N602", "N602"]
    input_line = f"<!-- generated from results.json sha256:{sha256(b'1').hexdigest()} -->"
    note = scratch.read("note.md")
    scratch.write(
        "note.md", note.replace("# A scratch note", f"{input_line}\n\n# A scratch note\n{figure}")
    )
    assert scratch.codes("note.md") == ["N404", "N602"]
    scratch.write("note.md", note)
    for name in ("CLAIMS.md", "CLAIMS.es.md"):
        scratch.write(name, generated_page("# x\n\n<img src='figures/time.svg'>\n", results=b"1"))
    assert scratch.codes() == ["N602", "N602"]
