"""A citation means one file, or it is refused; it never silently means another file."""

import sys

import pytest

from notelab.book.relock import RelockResult, relock
from notelab.book.workbook import CheckSession, open_lab
from notelab.cache import DiskCache
from notelab.commands import showing
from notelab.errors import NotelabError
from notelab.lab import lock as lock_file
from notelab.report.outcome import Report
from notelab.sources.library import Library
from notelab.sources.store import Store
from tests.notelab.scratch import Scratch, check_lab, commit_all, git, make_repository
from tests.running import run_program

BARE = "pkg/scaler.py:L22-L25"
LAB = """\
[lab]
title = "Two"

[sources.up]
url = "https://example.invalid/up.git"
pin = "up-sha.txt"

[sources.other]
url = "https://example.invalid/other.git"
pin = "other-sha.txt"

[notes."note.md"]
"""
NOTE = f"""\
---
title: Two sources
commit: {{{{up: {{up}}, other: {{other}}}}}}
---

What `combine` returns is a length (`{BARE}`).
"""


class Two:
    """A lab of two sources; `other` gains, at its second commit, a path that `up` has."""

    def __init__(self, scratch: Scratch) -> None:
        self.scratch, self.other = scratch, scratch.root / "other"
        make_repository(self.other, {"pkg/else.py": "nothing = 0\n"})
        self.pin_other()
        scratch.write("lab.toml", LAB)
        self.say("")
        scratch.lab.joinpath("note.es.md").unlink()
        self.lock()

    def pin_other(self) -> None:
        self.commit = git(self.other, "rev-parse", "HEAD")
        self.scratch.write("other-sha.txt", f"{self.commit}\n")

    def gain(self) -> None:
        """Let `other` have the path too, at the commit that is pinned now; write the note anew."""
        text = self.scratch.upstream.joinpath("pkg/scaler.py").read_text()
        self.other.joinpath("pkg/scaler.py").write_text(text)
        commit_all(self.other, "two")
        self.pin_other()

    def say(self, more: str) -> None:
        self.scratch.write(
            "note.md", NOTE.format(up=self.scratch.commit[:12], other=self.commit[:12]) + more
        )

    @property
    def bench(self) -> CheckSession:
        cache = self.scratch.root / "cache"
        mirrors = {"up": self.scratch.upstream, "other": self.other}
        return CheckSession(DiskCache(cache / "memo"), Library(Store(cache), mirrors, offline=True))

    def lock(self) -> RelockResult:
        relocked = relock(open_lab(self.scratch.lab, self.bench))
        self.scratch.write("citations.lock", lock_file.dump(relocked.lock))
        return relocked

    def check(self) -> Report:
        return check_lab(self.scratch.lab, self.bench)


@pytest.fixture
def two(scratch: Scratch) -> Two:
    return Two(scratch)


def test_a_bare_citation_is_proved_in_the_one_source_that_has_the_path(two: Two) -> None:
    assert [finding.code for finding in two.check().findings] == []


def test_a_bare_citation_never_becomes_another_sources_however_often_it_is_locked(two: Two) -> None:
    two.gain()
    two.say(f"\nAnd there `combine` is the same (`other:{BARE}`).\n")
    for _ in range(3):
        skipped = two.lock().skipped
        assert [text for text, _ in skipped] == [BARE]
        assert "N204" in {finding.code for finding in two.check().findings}


def test_a_pin_that_gains_the_path_makes_the_bare_citation_ambiguous_at_once(two: Two) -> None:
    two.gain()
    two.say("")
    assert "N204" in {finding.code for finding in two.check().findings}


def test_each_written_with_its_source_is_proved_in_its_own(two: Two) -> None:
    two.gain()
    two.say("")
    text = two.scratch.read("note.md").replace(BARE, f"up:{BARE}")
    two.scratch.write("note.md", f"{text}\nAnd there `combine` is the same (`other:{BARE}`).\n")
    assert two.lock().skipped == []
    report = two.check()
    assert report.findings == []
    assert [note.proved for note in report.notes] == [2]


def test_a_prefix_taken_away_is_unknown_to_the_lock_or_ambiguous(two: Two) -> None:
    two.gain()
    two.say("")
    text = two.scratch.read("note.md")
    two.scratch.write("note.md", text.replace(BARE, f"other:{BARE}"))
    two.lock()
    two.scratch.write("note.md", text)
    assert {finding.code for finding in two.check().findings} >= {"N204"}


def test_show_asks_which_source_is_meant_and_shows_the_one_named(two: Two) -> None:
    two.gain()
    with pytest.raises(NotelabError) as raised:
        showing.find([two.scratch.lab], BARE, two.bench)
    assert f"other:{BARE}" in raised.value.hint
    shown = showing.find([two.scratch.lab], f"other:{BARE}", two.bench)
    assert (shown.file.source, shown.commit) == ("other", two.commit)


def test_the_site_shows_no_card_of_a_file_that_may_be_another(two: Two) -> None:
    two.gain()
    two.say(f"\nAnd there `combine` is the same (`other:{BARE}`).\n")
    two.lock()
    two.check()
    code = (
        "import sys; from pathlib import Path; from sitelab import resolved_citations as resolved;"
        "print([(text, citation.source)"
        " for page in resolved.resolve_citations("
        "Path(sys.argv[1]), resolved.open_offline_session(), {}).values()"
        " for text, citation in page.items()])"
    )
    done = run_program(
        [sys.executable, "-c", code, str(two.scratch.book)],
        env={"SHARDBOOK_CACHE": str(two.scratch.root / "cache"), "PYTHONPATH": ":".join(sys.path)},
        check=True,
    )
    assert done.stdout.strip() == str([(f"other:{BARE}", "other")])


def test_a_source_that_could_not_be_asked_makes_a_new_bare_citation_doubtful(two: Two) -> None:
    two.gain()
    two.say("")
    text = two.scratch.read("note.md")
    two.scratch.lab.joinpath("citations.lock").unlink()
    two.scratch.root.joinpath("upstream").rename(two.scratch.root / "away")
    two.scratch.root.joinpath("cache").rename(two.scratch.root / "forgotten")
    two.scratch.upstream.mkdir()
    assert [text for text, _ in two.lock().skipped] == [BARE]
    finding = next(finding for finding in two.check().findings if finding.code == "N213")
    assert f"`other:{BARE}`" in finding.help
    two.scratch.write("note.md", text.replace(BARE, f"other:{BARE}"))
    two.lock()
    assert two.check().findings == []


def test_offline_with_no_source_at_hand_the_lock_says_whose_a_bare_citation_is(two: Two) -> None:
    two.say(f"\nIts `nothing` is nought (`pkg/else.py:L1`), and `combine` is `up:{BARE}`.\n")
    assert two.lock().skipped == []
    two.scratch.root.joinpath("cache").rename(two.scratch.root / "forgotten")
    bench = CheckSession(
        DiskCache(None), Library(Store(two.scratch.root / "empty"), {}, offline=True)
    )
    report = check_lab(two.scratch.lab, bench)
    assert report.findings == []
    assert [(note.citations, note.locked) for note in report.notes] == [(3, 3)]


def test_offline_a_bare_citation_that_the_lock_has_of_two_sources_is_doubtful(two: Two) -> None:
    two.gain()
    two.say(f"\nAnd there `combine` is the same (`other:{BARE}`).\n")
    two.lock()
    path = two.scratch.lab / "citations.lock"
    lock = lock_file.load(path)
    assert lock
    entry = lock.citations["other"].pop(f"other:{BARE}")
    for name in ("up", "other"):
        lock.citations.setdefault(name, {})[BARE] = entry
        lock.sources[name].files["pkg/scaler.py"] = lock.sources["other"].files["pkg/scaler.py"]
    path.write_text(lock_file.dump(lock))
    two.say("")
    bench = CheckSession(
        DiskCache(None), Library(Store(two.scratch.root / "empty"), {}, offline=True)
    )
    assert {finding.code for finding in check_lab(two.scratch.lab, bench).findings} == {"N204"}
