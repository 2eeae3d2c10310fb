"""What repin proposes for lines that a release changed, and when it reports them as gone."""

import json
import shutil

from tests.notelab.repin.sample import load, load_untouched
from tests.notelab.repin.test_repin import EDITED, list_changes, release
from tests.notelab.scratch import UPSTREAM, Scratch, git

COMBINE = UPSTREAM[UPSTREAM.index("def combine") :]
WITHOUT = UPSTREAM.partition("\n\n\ndef combine")[0] + "\n"


def list_proposals(scratch: Scratch, lines: str) -> tuple[object, list[tuple[str, int, int]]]:
    """Return the class of a citation in v2, and its proposals."""
    row = list_changes(scratch, "v2")[lines]
    proposals = row["proposals"]
    assert isinstance(proposals, list)
    return row["class"], [
        (proposal["path"], proposal["start"], proposal["end"]) for proposal in proposals
    ]


def add(scratch: Scratch, path: str, text: str) -> None:
    """Put a file into the upstream, for the next release to hold."""
    scratch.upstream.joinpath(path).write_text(text)
    git(scratch.upstream, "add", ".")


def test_a_symbol_that_left_its_file_is_proposed_in_one_that_nobody_cites(scratch: Scratch) -> None:
    add(scratch, "pkg/amounts.py", f"import math\n\n\n{COMBINE}")
    release(scratch, WITHOUT, "v2")
    kind, places = list_proposals(scratch, "22-25")
    assert (kind, places[0]) == ("edited", ("pkg/amounts.py", 4, 7))


RING = """\
static int ring_count;

int combine(int left, int right)
{
    int ring_total = left + right;
    return ring_total;
}
"""


def test_a_function_of_another_language_is_found_in_the_file_that_took_it_over(
    scratch: Scratch,
) -> None:
    add(scratch, "pkg/ring.c", RING)
    scratch.release({"pkg/scaler.py:L22-L25": "pkg/ring.c:L3-L7"})
    scratch.lock()
    assert scratch.codes() == []
    add(scratch, "pkg/ring.c", "static int ring_count;\n")
    add(
        scratch,
        "pkg/sums.c",
        "int combine(long left, long right, long third)\n{\n    return 0;\n}\n",
    )
    release(scratch, UPSTREAM, "v2")
    row = list_changes(scratch, "v2")["3-7"]
    assert row["proposals"][0] == {"path": "pkg/sums.c", "start": 1, "end": 4}  # type: ignore[index]


def test_another_file_is_not_asked_while_the_symbol_is_in_its_own(scratch: Scratch) -> None:
    add(scratch, "pkg/amounts.py", f"import math\n\n\n{COMBINE}")
    release(scratch, EDITED, "v2")
    assert {path for path, _, _ in list_proposals(scratch, "22-25")[1]} == {"pkg/scaler.py"}


def test_a_file_that_had_the_symbol_before_did_not_take_it_over(scratch: Scratch) -> None:
    add(scratch, "pkg/amounts.py", f"import math\n\n\n{COMBINE}")
    release(scratch, UPSTREAM + "\n", "v1.5")
    scratch.write("up-sha.txt", git(scratch.upstream, "rev-parse", "HEAD") + "\n")
    scratch.lock()
    release(scratch, WITHOUT, "v2")
    assert list_proposals(scratch, "22-25") == ("gone", [])


def test_lines_that_stood_beside_it_before_are_not_proposed(scratch: Scratch) -> None:
    first, last = (f"        self.{name}_total = math.hypot(amount, 1)\n" for name in ("a", "b"))
    begin = "        scaled = amount"
    release(scratch, UPSTREAM.replace(begin, first + last + begin), "v1.5")
    scratch.write("up-sha.txt", git(scratch.upstream, "rev-parse", "HEAD") + "\n")
    scratch.replace_both("`pkg/scaler.py:L14-L15`", "`pkg/scaler.py:L17`")
    scratch.lock()
    release(scratch, UPSTREAM.replace(begin, first + begin), "v2")
    assert list_proposals(scratch, "17-17") == ("gone", [])


def test_a_whole_function_is_proposed_by_its_name_whatever_became_of_it(scratch: Scratch) -> None:
    release(scratch, f"{WITHOUT}\n\ndef combine(*all):\n    return max(all)\n", "v2")
    kind, places = list_proposals(scratch, "22-25")
    assert (kind, places[0]) == ("edited", ("pkg/scaler.py", 22, 23))
    assert len(places) == len(set(places)), "the same place twice"


def test_lines_that_a_method_handed_to_another_are_found_there(scratch: Scratch) -> None:
    body = UPSTREAM[UPSTREAM.index("        # Count") : UPSTREAM.index("        scaled =")]
    split = UPSTREAM.replace(body, "        self.count()\n").replace(
        "    def apply", f"    def count(self):\n{body}\n    def apply"
    )
    release(scratch, split, "v2")
    kind, places = list_proposals(scratch, "14-15")
    assert (kind, places[0]) == ("edited", ("pkg/scaler.py", 14, 15))


def test_without_the_old_text_only_an_unchanged_file_is_carried(scratch: Scratch) -> None:
    release(scratch, EDITED, "v2")
    shallow = scratch.root / "shallow"
    git(scratch.root, "clone", "-q", "--depth", "1", scratch.upstream.as_uri(), str(shallow))
    shutil.rmtree(scratch.root / "cache")
    shutil.rmtree(scratch.upstream)
    shallow.rename(scratch.upstream)
    ran = scratch.run("repin", "up", "v2", "--output-format", "json", "--offline")
    assert ran.returncode == 0, ran.stderr
    rows = json.loads(ran.stdout)["citations"]
    assert {(row["class"], row["new"]) for row in rows} == {("edited", None)}
    text_run = scratch.run("repin", "up", "v2", "--offline")
    assert "a whole clone is needed" in text_run.stderr
    assert "the old text is not available" in text_run.stdout


TOTALS = """\
def report_totals(left, right, weights):
    weighted_left = left.total * weights.left_share
    weighted_right = right.total * weights.right_share
    return weighted_left + weighted_right + weights.base
"""


def prepare_totals(scratch: Scratch) -> None:
    """Let the notes cite two lines of a function that the next release changes."""
    scratch.upstream.joinpath("pkg/scaler.py").write_text(f"{UPSTREAM}\n\n{TOTALS}")
    scratch.release({"L22-L25": "L29-L31", "`combine`": "`weighted_left`"})
    scratch.lock()


def test_lines_that_moved_into_another_function_of_another_file_are_proposed(
    scratch: Scratch,
) -> None:
    prepare_totals(scratch)
    body = "".join(TOTALS.splitlines(keepends=True)[1:])
    add(scratch, "pkg/sums.py", f"import math\n\n\ndef sum_up(left, right, weights):\n{body}")
    release(scratch, UPSTREAM, "v2")
    kind, places = list_proposals(scratch, "29-31")
    assert (kind, places[0]) == ("edited", ("pkg/sums.py", 5, 7))


def test_lines_of_which_too_few_moved_are_gone_and_the_search_is_named(scratch: Scratch) -> None:
    prepare_totals(scratch)
    line = TOTALS.splitlines()[1]
    add(scratch, "pkg/sums.py", f"def sum_up(left, weights):\n{line}\n    return weighted_left\n")
    release(scratch, UPSTREAM, "v2")
    assert list_proposals(scratch, "29-31") == ("gone", [])
    assert "found in no file of the new commit" in scratch.run("repin", "up", "v2").stdout


def test_a_line_that_many_files_took_over_is_no_trace(scratch: Scratch) -> None:
    prepare_totals(scratch)
    for number in range(21):
        add(scratch, f"pkg/s{number}.py", TOTALS.replace("report_totals", f"sum_{number}"))
    release(scratch, UPSTREAM, "v2")
    assert list_proposals(scratch, "29-31") == ("gone", [])


def test_a_name_of_the_alarm_has_one_flag(scratch: Scratch) -> None:
    release(scratch, UPSTREAM.replace("uses", "calls"), "v2")
    ran = scratch.run("repin", "up", "v2", "--output-format", "json", "--offline")
    (row,) = (each for each in json.loads(ran.stdout)["names"] if each["name"] == "uses")
    assert sorted(row) == ["name", "pages", "vanished"] and row["vanished"] is True


def test_the_sample_is_whole_and_its_halves_share_no_file() -> None:
    judged = load()
    parts = [
        {citation.place.path for citation in judged if citation.held_out is part}
        for part in (False, True)
    ]
    assert not parts[0] & parts[1]
    assert len(judged) == 160 and len(load_untouched()) == 400
    for citation in judged:
        assert bool(citation.places) is (citation.kind != "gone"), citation
        assert citation.settled or len(set(citation.readings)) == 1, citation


def test_a_function_that_moved_into_another_symbol_is_proposed_by_its_own_name(
    scratch: Scratch,
) -> None:
    inner = "    def combine(self, *all):\n        return max(all)\n"
    release(scratch, f"{WITHOUT}\n\nclass Amounts:\n{inner}", "v2")
    kind, places = list_proposals(scratch, "22-25")
    assert (kind, places[0]) == ("edited", ("pkg/scaler.py", 23, 24))


def test_of_many_files_those_come_first_that_took_most_of_what_left(scratch: Scratch) -> None:
    for number in range(9):
        add(scratch, f"pkg/a{number}.py", "def combine(left):\n    return left\n")
    add(scratch, "pkg/z.py", UPSTREAM.replace("class Scaler", "class Amounts"))
    release(scratch, '"""Nothing."""\n', "v2")
    assert list_proposals(scratch, "22-25")[1][0] == ("pkg/z.py", 22, 25)
