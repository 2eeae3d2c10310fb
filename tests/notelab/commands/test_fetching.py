"""`shardbook fetch` reads one source's files if one is named, and always reports what it did."""

from tests.notelab.scratch import Scratch

SECOND = """
[sources.second]
url = "https://example.invalid/second.git"
pin = "second-sha.txt"
"""


def test_a_named_source_is_fetched_alone_and_an_unknown_one_refused(scratch: Scratch) -> None:
    every = scratch.run("fetch").stdout
    assert every.startswith("up:pkg/scaler.py")
    assert scratch.run("fetch", "--source", "up").stdout == every
    assert scratch.run("fetch", "--worktree", "x").stdout.startswith("x: up at ")
    wrong = scratch.run("fetch", "--source", "pu")
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert (
        "no lab has a source called 'pu'" in wrong.stderr and "did you mean `up`?" in wrong.stderr
    )


def test_that_nothing_is_cited_from_a_source_is_said(scratch: Scratch) -> None:
    scratch.write("lab.toml", scratch.read("lab.toml") + SECOND)
    scratch.write("second-sha.txt", f"{scratch.commit}\n")
    scratch.replace_both("`pkg/scaler.py:L14-L15`", "`up:pkg/scaler.py:L14-L15`")
    scratch.replace_both("`pkg/scaler.py:L22-L25`", "`up:pkg/scaler.py:L22-L25`")
    done = scratch.run("fetch", "--source", "second")
    assert (done.returncode, done.stdout + done.stderr) == (0, "nothing is cited from `second`\n")
    assert "the lab has several" in scratch.run("fetch", "--worktree", "x").stderr
