"""`release` is compared with the pin wherever the source's tags can be read, and nowhere else."""

from pathlib import Path

import pytest

from notelab.sources.answers import Source, TagCommit
from notelab.sources.library import Library
from notelab.sources.store import Store
from tests.notelab.scratch import Scratch, git
from tests.notelab.sources.upstream import ONE, TWO, make_upstream


def findings_of_release(scratch: Scratch, name: str) -> list[str]:
    """Name a release in the lab file; return what is found of it."""
    scratch.replace("lab.toml", 'pin = "up-sha.txt"', f'pin = "up-sha.txt"\nrelease = "{name}"')
    findings = [finding for finding in scratch.check().findings if finding.code == "N124"]
    assert all(finding.filename.endswith("lab.toml") for finding in findings)
    assert all(f'release = "{name}"' in scratch.read("lab.toml") for _ in findings)
    return [f"{finding.span.row} {finding.found} {finding.help}" for finding in findings]


def test_the_tag_at_the_pin_is_right_annotated_or_not(scratch: Scratch) -> None:
    git(scratch.upstream, "tag", "-a", "v1.0", "-m", "one")
    assert findings_of_release(scratch, "v1") == []
    scratch.replace("lab.toml", '"v1"', '"v1.0"')
    assert scratch.codes() == []


@pytest.mark.parametrize("name", ["v99", "v1~0", "main", "v1^{commit}", "*"])
def test_a_release_that_is_no_tag_is_found_at_its_line(scratch: Scratch, name: str) -> None:
    (finding,) = findings_of_release(scratch, name)
    row, text = finding.split(" ", 1)
    assert scratch.read("lab.toml").split("\n")[int(row) - 1].startswith("release = ")
    assert f"has no tag `{name}`" in text and "`v1`" in text


def test_a_tag_that_moved_is_found_with_where_it_is_now(scratch: Scratch) -> None:
    git(scratch.upstream, "commit", "-q", "--allow-empty", "-m", "two")
    git(scratch.upstream, "tag", "-f", "v1")
    moved = git(scratch.upstream, "rev-parse", "v1")
    (finding,) = findings_of_release(scratch, "v1")
    assert moved[:12] in finding


def test_where_no_tags_are_at_hand_nothing_is_said(scratch: Scratch) -> None:
    assert len(findings_of_release(scratch, "v99")) == 1
    assert scratch.codes(mirror=False) == []
    git(scratch.upstream, "tag", "-d", "v1")
    assert scratch.codes() == []


def test_a_source_in_the_workbooks_repository_is_compared_with_its_tags(scratch: Scratch) -> None:
    git(scratch.book, "commit", "-q", "--allow-empty", "-m", "one")
    commit = git(scratch.book, "rev-parse", "HEAD")
    git(scratch.book, "tag", "v7")
    scratch.write("own-sha.txt", f"{commit}\n")
    table = '[sources.own]\npath = "."\npin = "own-sha.txt"\nrelease = "v8"\n\n[notes.'
    scratch.replace("lab.toml", "[notes.", table)
    scratch.lock()
    findings = [finding for finding in scratch.check().findings if finding.code == "N124"]
    assert len(findings) == 1 and "no tag `v8`" in findings[0].found
    scratch.replace("lab.toml", '"v8"', '"v7"')
    assert scratch.codes() == []


@pytest.fixture
def library(tmp_path: Path) -> Library:
    """Return a library that may ask remotes; here they are folders."""
    return Library(Store(tmp_path / "cache"), {})


def make_source(tmp_path: Path, release: str) -> Source:
    """Return a source pinned to its tag `v1`, that says it is another release."""
    source = make_upstream(tmp_path / "upstream")
    return Source(source.name, source.url, source.commit, release=release)


@pytest.mark.parametrize(("name", "commit"), [("v1", "pin"), ("v99", ""), ("side", "")])
def test_a_remote_that_is_fetched_from_is_asked_for_the_tag_too(
    tmp_path: Path, library: Library, name: str, commit: str
) -> None:
    source = make_source(tmp_path, name)
    assert library.release_tag(source) is None
    library.read(source, {ONE: None})
    tag = library.release_tag(source)
    assert tag and tag.commit == (source.commit if commit else "")


def test_what_a_remote_said_is_known_offline_too_and_asked_again_when_it_disagrees(
    tmp_path: Path, library: Library
) -> None:
    source = make_source(tmp_path, "v2")
    library.read(source, {ONE: None})
    offline = Library(Store(tmp_path / "cache"), {}, offline=True)
    host = f"git {source.url}"
    assert offline.release_tag(source) == TagCommit("", f"{host}, when it was last asked,")
    git(tmp_path / "upstream", "tag", "v2", source.commit)
    assert Library(Store(tmp_path / "cache"), {}).release_tag(source) == TagCommit(
        source.commit, host
    )
    git(tmp_path / "upstream", "tag", "-d", "v2")
    again = Library(Store(tmp_path / "cache"), {})
    again.read(source, {TWO: None})
    assert again.release_tag(source) == TagCommit("", host)


def test_a_resolved_ref_replaces_what_was_kept_of_the_tag(tmp_path: Path, library: Library) -> None:
    source = make_source(tmp_path, "v2")
    library.read(source, {ONE: None})
    git(tmp_path / "upstream", "tag", "v2", source.commit)
    assert Library(Store(tmp_path / "cache"), {}).resolve(source, "v2") == source.commit
    offline = Library(Store(tmp_path / "cache"), {}, offline=True)
    tag = offline.release_tag(source)
    assert tag and tag.commit == source.commit
