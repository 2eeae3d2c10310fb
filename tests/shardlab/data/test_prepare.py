"""`python -m shardlab.data`: text to a corpus, the same however it was cut or killed."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from click.testing import CliRunner, Result

from shardlab.data import prepare
from shardlab.data.__main__ import main, report
from shardlab.data.corpus import Corpus, DataError
from shardlab.data.encoding import Bytes, by_name
from shardlab.data.writer import Writer
from tests.docs.page import ROOT
from tests.limits import LIMIT

TEXTS = ["one", "", "señal\nwith a line", "four " * 50, "␄ five"]


def command(*words: Any) -> Result:
    return CliRunner().invoke(main, [str(word) for word in words])


def expected(texts: list[str]) -> list[list[int]]:
    return [[*text.encode(), 256] for text in texts if text]


def documents(prefix: Path) -> list[list[int]]:
    corpus = Corpus(prefix)
    return [corpus[i].tolist() for i in range(len(corpus))]


@pytest.fixture(autouse=True)
def encode_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a build with one process start none: a Python that starts costs more than its text."""
    processes = prepare.ProcessPoolExecutor
    monkeypatch.setattr(
        prepare, "ProcessPoolExecutor",
        lambda n, *settings: ThreadPoolExecutor(n) if n == 1 else processes(n, *settings),
    )  # fmt: skip


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    path = tmp_path / "text.jsonl"
    path.write_text("\n\n".join(json.dumps({"text": text, "n": 1}) for text in TEXTS * 9), "utf-8")
    return path


@pytest.mark.parametrize("piece", [37, 100, 1000, 8 << 20])
def test_a_corpus_does_not_depend_on_where_its_text_was_cut(
    lines: Path, tmp_path: Path, piece: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prepare, "PIECE", piece)
    job = prepare.Job((str(lines),), str(tmp_path / "corpus"))
    pieces = job.pieces()
    job.folder.mkdir()
    tokenizer = [prepare.encode(part, job.folder) for part in reversed(pieces)]
    with Writer(job.prefix, np.uint16) as writer:
        prepare.join(writer, job.folder, reversed(tokenizer))
    assert sum(tally.empty for tally in tokenizer) == 9
    assert documents(tmp_path / "corpus") == expected(TEXTS * 9)


def test_files_lines_and_jsonl_become_documents_in_order(lines: Path, tmp_path: Path) -> None:
    text = tmp_path / "b.txt"
    text.write_text("first\n\nsecond", "utf-8")
    done = command("build", tmp_path / "c", text, lines, "--processes", 2)
    assert done.exit_code == 0, done.output
    assert documents(tmp_path / "c") == expected(["first\n\nsecond", *TEXTS * 9])
    assert "46 documents, 37 sequences" in done.output
    assert "left out: 0 faulty, 9 without text" in done.output
    command("build", tmp_path / "d", text, "--lines", "--processes", 1)
    assert documents(tmp_path / "d") == expected(["first", "second"])


JSON_LINES = b'\xef\xbb\xbf\n{"text": "a"}\r\n{"text": "b"}\n'
READ: list[tuple[str, bytes, list[str], list[str]]] = [
    ("a.py", b"if x:\r\n    y  \n \n\tz", ["--lines"], ["if x:", "    y  ", "\tz"]),
    # The mark is no text of a file or a line either.
    ("a.txt", "a\nb".encode("utf-8-sig"), [], ["a\nb"]),
    ("a.txt", "a\nb".encode("utf-8-sig"), ["--lines"], ["a", "b"]),
    # JSON lines are told by their content, whatever the file is called.
    *((name, JSON_LINES, [], ["a", "b"]) for name in ("a.json", "a.jsonl", "a.JSON", "a.txt", "a")),
    # This only looks like JSON.
    *(("a.txt", text.encode(), [], [text])
      for text in ("{", "{x}\n", "int f() {}\n{}", "[1]", "\n", "say {}", '"a"')),
]  # fmt: skip


@pytest.mark.parametrize(("name", "content", "words", "texts"), READ)
def test_a_file_becomes_the_documents_that_it_holds(
    tmp_path: Path, name: str, content: bytes, words: list[str], texts: list[str]
) -> None:
    (tmp_path / name).write_bytes(content)
    command("build", tmp_path / "c", tmp_path / name, *words, "--processes", 1)
    assert documents(tmp_path / "c") == expected(texts)


def test_a_corpus_does_not_take_the_place_of_its_own_text(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_text("text", "utf-8")
    (tmp_path / "b.idx").symlink_to(tmp_path / "a.bin")
    for prefix in ("a", "./a", "b"):
        text = tmp_path / ("b.idx" if prefix == "b" else "a.bin")
        done = command("build", f"{tmp_path}/{prefix}", text, "--processes", 1)
        assert "would be replaced by its corpus: " in done.output
        assert text.read_text("utf-8") == "text"
    assert {path.name for path in tmp_path.iterdir()} == {"a.bin", "b.idx"}


def test_a_second_build_of_one_corpus_is_refused_and_the_first_one_goes_on(
    lines: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prepare, "PIECE", 1000)
    first = prepare.prepare(prepare.Job((str(lines),), str(tmp_path / "c")), 1)
    next(first)
    second = command("build", tmp_path / "c", lines, "--processes", 1)
    assert second.output.splitlines()[-1].startswith("Error: another process is writing")
    list(first)
    assert documents(tmp_path / "c") == expected(TEXTS * 9)
    assert {path.name for path in tmp_path.iterdir()} == {"c.bin", "c.idx", "text.jsonl"}


def test_what_is_refused_at_once_leaves_nothing_behind(lines: Path, tmp_path: Path) -> None:
    before = {path.name for path in tmp_path.iterdir()}
    for words in (
        ("c", lines, "--field", "body"), ("c", lines, "--tokenizer", "none.json"),
        ("c", lines, "--end", "x"), ("", lines),
    ):  # fmt: skip
        assert command("build", f"{tmp_path}/{words[0]}", *words[1:], "--processes", 1).exit_code
    assert {path.name for path in tmp_path.iterdir()} == before


def test_tokens_that_are_no_bytes_are_shown(tmp_path: Path) -> None:
    for number, tokens in enumerate(([-5, 97, 300], [0.5, 97.0, 300.0])):
        with Writer(tmp_path / f"{number}", np.int32 if number == 0 else np.float32) as writer:
            writer.add(tokens)
        shown = command("inspect", tmp_path / f"{number}", "--tokenizer", "bytes")
        assert shown.output.splitlines()[2] == "'␄a␄'"


KILLED = """
import os, signal, sys
from shardlab.data import prepare
prepare.PIECE = 100
for _ in prepare.prepare(prepare.Job((sys.argv[1],), sys.argv[2]), 2):
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_when_the_command_is_killed_its_processes_end_too_and_it_goes_on_where_it_was(
    lines: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed = subprocess.run(  # returns when the last of them has closed its end of the pipe
        [sys.executable, "-c", KILLED, lines, tmp_path / "c"], check=False, capture_output=True,
        timeout=LIMIT, env={**os.environ, "PYTHONPATH": str(ROOT / "tools")},
    )  # fmt: skip
    assert killed.returncode == -signal.SIGKILL
    monkeypatch.setattr(prepare, "PIECE", 100)
    job = prepare.Job((str(lines),), str(tmp_path / "c"))
    before = {path: path.stat().st_mtime_ns for path in job.folder.glob("*.json")}
    assert before
    for part in job.pieces():
        prepare.encode(part, job.folder)
    assert [path for path, when in before.items() if path.stat().st_mtime_ns != when] == []
    assert command("build", tmp_path / "c", lines, "--processes", 1).exit_code == 0
    folder = job.folder
    lines.write_text(lines.read_text("utf-8") + "\n", "utf-8")
    assert job.folder != folder, "other text: other pieces"
    assert documents(tmp_path / "c") == expected(TEXTS * 9)


BAD: dict[str, tuple[bytes, str]] = {
    "no JSON": (b'{"text": "a"}\n{"text": ', "bad.jsonl: line 2: Expecting value at column 10"),
    "a first line": (b'{"text": "a\n{"text": "b"}\n', "line 1: Invalid control character"),
    "several lines": (b'[\n {\n  "text": "a"\n }\n]', "line 1: Expecting value at column 1; "),
    "no object": (b"[1]\n", "line 1: [1] is no JSON object"),
    "no text": (b'{"text": 3}', "line 1: 'text' is 3, not a string"),
    "half a character": (b'{"text": "\\ud800"}', "surrogates not allowed"),
    "too deep": (b"[" * 200_000, "line 1: its JSON is nested too deeply"),
    "nothing": (b"", "no text in"),
    "blank": (b"\n\n", "nothing was added"),
    "only empty texts": (b'{"text": ""}', "nothing was added"),
}


@pytest.mark.parametrize("bad", BAD)
def test_bad_text_ends_the_command_in_a_line(tmp_path: Path, bad: str) -> None:
    content, message = BAD[bad]
    (tmp_path / "bad.jsonl").write_bytes(content)
    done = command("build", tmp_path / "c", tmp_path / "bad.jsonl", "--processes", 1)
    assert done.exit_code == 1
    [line] = [line for line in done.output.splitlines() if line.startswith("Error: ")]
    assert message in line
    assert not (tmp_path / "c.idx").exists()


def test_what_the_system_refuses_ends_the_command_in_a_line(lines: Path, tmp_path: Path) -> None:
    missing = command("build", tmp_path / "c", tmp_path / "none.txt", "--processes", 1)
    assert f"Error: no file {tmp_path}/none.txt: give text files" in missing.output
    for prefix, message in (
        (lines / "under a file", f"no folder {lines}: File exists; choose another prefix"),
        (tmp_path / ("c" * 300), f"cannot write {tmp_path}/ccc"),
        (tmp_path / ("c" * 240), "[Errno 36] File name too long"),  # its pieces' folder
    ):
        done = command("build", prefix, lines, "--processes", 1)
        assert done.exit_code == 1
        assert done.output.splitlines()[-1].startswith(f"Error: {message}")
        assert {path.name for path in tmp_path.iterdir()} == {"text.jsonl"}


@pytest.mark.ci
def test_a_process_that_is_killed_is_named(lines: Path, tmp_path: Path) -> None:
    job = prepare.Job((str(lines),), str(tmp_path / "c"))
    broken = patch.object(prepare, "as_completed", side_effect=BrokenProcessPool)
    with broken, pytest.raises(DataError, match=r"was killed .* the same command goes on"):
        list(prepare.prepare(job, 1))


def test_tokens_that_no_vocabulary_has_are_refused(tmp_path: Path) -> None:
    for number, wrong in enumerate((float("nan"), -1.0)):
        with Writer(tmp_path / f"{number}", np.float32) as writer:
            writer.add([1.0, wrong])
        refused = command("verify", tmp_path / f"{number}").output
        assert f"token 1 is {wrong}, which a vocabulary of any size doesn't hold" in refused


def test_inspect_shows_a_document_and_verify_the_vocabulary(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("señal", "utf-8")
    command("build", tmp_path / "c", tmp_path / "a.txt", "--processes", 1)
    shown = command("inspect", tmp_path / "c", "--tokenizer", "bytes").output.splitlines()
    assert shown[0].endswith("1 documents, 1 sequences of 7 to 7 tokens, 7 tokens in all, uint16")
    assert shown[1] == "document 0: 7 tokens: 115 101 195 177 97 108 256"
    assert shown[2] == "'señal␄'"
    assert command("inspect", tmp_path / "c", "--document", 1).exit_code == 1
    assert command("verify", tmp_path / "c", "--vocabulary", 257).output.startswith("whole: ")
    refused = command("verify", tmp_path / "c", "--vocabulary", 256)
    assert refused.exit_code == 1
    assert "token 6 is 256, which a vocabulary of 256 doesn't hold" in refused.output
    for size in ("0", "-1"):
        assert command("verify", tmp_path / "c", "--vocabulary", size).exit_code == 2
    assert command("inspect", tmp_path / "c", "--tokens", -1).exit_code == 2
    Path(tmp_path / "c.bin").write_bytes(b"1")
    assert "cut short, or of another corpus" in command("verify", tmp_path / "c").output


@pytest.mark.may_skip  # an optional package
def test_a_tokenizer_json_encodes(tmp_path: Path) -> None:
    tokenizers = pytest.importorskip("tokenizers", reason="the package tokenizers is optional")
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0, "b": 1, "<end>": 2}, "a"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "a.txt").write_text("a b b", "utf-8")
    words = (
        "build",
        tmp_path / "c",
        tmp_path / "a.txt",
        "--tokenizer",
        tmp_path / "tokenizer.json",
    )
    done = command(*words, "--end", "<end>", "--processes", 1)
    assert done.exit_code == 0, done.output
    assert documents(tmp_path / "c") == [[0, 1, 1, 2]]
    assert by_name(str(tmp_path / "tokenizer.json")).decode([-1, 1, 9, 1 << 40]) == "b"
    assert "has no token '<no>'" in command(*words, "--end", "<no>").output
    (tmp_path / "tokenizer.json").write_text("{}")
    assert "is no tokenizer" in command(*words, "--processes", 1).output


def test_tokenizers_that_are_none_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="tokenizer"):
        by_name(str(tmp_path / "missing.json"))
    with pytest.raises(DataError, match="bytes end each document with 256"):
        by_name("bytes", "<end>")
    assert Bytes().encode("é").tolist() == [195, 169, 256]


# ------------------------------------------------------------------ what a file holds


COMPRESSED = {
    "gzip": (gzip.compress(b"text"), "give what `gunzip -k {}` makes of it"),
    "Zstandard": (b"\x28\xb5\x2f\xfd rest", "`zstd -d {}`"),
    "zip": (b"PK\x03\x04 rest", "`unzip {}`"),
    "Parquet": (b"PAR1 rest", "pandas.read_parquet('{}').to_json("),
    "xz": (lzma.compress(b"text"), "`unxz -k {}`"),
    "bzip2": (bz2.compress(b"text"), "`bunzip2 -k {}`"),
    "UTF-16": ("text".encode("utf-16"), "`iconv -f UTF-16 -t UTF-8 {} > FILE`"),
    "tar": (b"name".ljust(257, b"\0") + b"ustar\0", "`tar -xf {}`"),
}


@pytest.mark.parametrize("kind", COMPRESSED)
@pytest.mark.parametrize("ending", ["jsonl", "txt"])
def test_files_that_are_no_text_are_refused_by_what_they_hold(
    tmp_path: Path, kind: str, ending: str
) -> None:
    content, advice = COMPRESSED[kind]
    path = tmp_path / f"a.{ending}"
    path.write_bytes(content)
    done = command("build", tmp_path / "c", path, "--skip-bad", "--processes", 1)
    assert done.exit_code == 1
    assert f"Error: {path} is a {kind} file, not text: give what" in done.output
    assert advice.format(path) in done.output
    assert {each.name for each in tmp_path.iterdir()} == {path.name}


# ------------------------------------------------------------------ faulty lines, empty texts

ODD = [
    b'{"text": "first"}\n', b"\n", b'{"text": ""}\n', b'{"text": "with \\u0000 nul"}\n',
    b'{"text": "two"} {"text": "objects"}\n', b'{"text": null}\n', b'["a list"]\n',
    b'{"other": "field"}\n', b'{"data": {"text": "nested"}}\n', b'{"text": "half a li\n',
    b'{"text": "\xff\xfe not utf-8"}\r\n', b'{"text": "last, no newline"}',
]  # fmt: skip
REASONS = {
    5: "Extra data at column 17",
    6: "'text' is null, not a string",
    7: '["a list"] is no JSON object',
    8: "no field 'text', but 'other': --field names another",
    9: "no field 'text', but 'data': --field names another",
    10: "Invalid control character at column 20",
    11: "'utf-8' codec can't decode byte 0xff in position 10: invalid start byte",
}


@pytest.mark.parametrize("piece", [1, 37, 100, 8 << 20])
def test_each_faulty_line_is_named_with_its_reason_wherever_the_text_is_cut(
    tmp_path: Path, piece: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "odd.jsonl").write_bytes(b"".join(ODD))
    monkeypatch.setattr(prepare, "PIECE", piece)
    job = prepare.Job((f"{tmp_path}/odd.jsonl",), f"{tmp_path}/c", skip_bad=True)
    job.folder.mkdir()
    tallies = [prepare.encode(part, job.folder) for part in job.pieces()]
    assert [fault for tally in tallies for fault in tally.faults] == [
        f"{tmp_path}/odd.jsonl: line {number}: {reason}" for number, reason in REASONS.items()
    ]
    with Writer(job.prefix, np.uint16) as writer:
        prepare.join(writer, job.folder, tallies)
    assert documents(tmp_path / "c") == expected(["first", "with \0 nul", "last, no newline"])
    assert Corpus(tmp_path / "c").documents.tolist() == [0, 1, 1, 2, 3]
    again = [prepare.encode(part, job.folder) for part in job.pieces()]  # after a kill
    assert again == tallies


def test_faulty_lines_end_the_command_or_are_left_out_and_counted(tmp_path: Path) -> None:
    (tmp_path / "odd.jsonl").write_bytes(b"".join(ODD))
    words = ("build", tmp_path / "c", tmp_path / "odd.jsonl", "--processes", 1)
    refused = command(*words)
    assert refused.exit_code == 1
    [line] = [line for line in refused.output.splitlines() if line.startswith("Error: ")]
    assert all(f"line {number}: {reason}" in line for number, reason in REASONS.items())
    assert line.endswith(": correct them, or leave them out by --skip-bad")
    assert not (tmp_path / "c.idx").exists()
    done = command(*words, "--skip-bad")
    assert done.exit_code == 0
    assert done.output.count("left out: ") == len(REASONS) + 1
    assert "left out: 7 faulty, 1 without text" in done.output


def test_of_many_faulty_lines_the_first_are_named_and_all_are_counted(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "a"}\n' + "x\n" * 5000, "utf-8")
    words = ("build", tmp_path / "c", tmp_path / "a.jsonl", "--processes", 1)
    assert "; 4990 more: correct them" in command(*words).output
    done = command(*words, "--skip-bad").output
    assert "line 2: Expecting value at column 1" in done
    assert "left out: 5,000 faulty, 0 without text" in done
    assert len(done) < 3000


def test_a_file_that_is_no_utf_8_is_left_out_too(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"caf\xe9")
    (tmp_path / "b.txt").write_bytes(b"b")
    words = ("build", tmp_path / "c", tmp_path / "a.txt", tmp_path / "b.txt", "--processes", 1)
    assert "a.txt: 'utf-8' codec can't decode byte 0xe9 in position 3" in command(*words).output
    assert "left out: 1 faulty, 0 without text" in command(*words, "--skip-bad").output
    assert documents(tmp_path / "c") == expected(["b"])


def test_an_empty_file_is_counted_and_is_a_document_without_a_sequence(tmp_path: Path) -> None:
    for name, text in (("a", ""), ("b", "b"), ("c", "\ufeff")):
        (tmp_path / f"{name}.txt").write_text(text, "utf-8")
    done = command("build", tmp_path / "x", *sorted(tmp_path.glob("*.txt")), "--processes", 1)
    assert "3 documents, 1 sequences" in done.output
    assert "left out: 0 faulty, 2 without text" in done.output
    assert Corpus(tmp_path / "x").documents.tolist() == [0, 0, 1, 1]
    shown = command("inspect", tmp_path / "x", "--document", 2).output
    assert shown.splitlines()[1].startswith("document 2: 0 tokens")


@pytest.mark.parametrize(
    ("texts", "end", "warned"),
    [(["a", "b"], None, True), (["a", "b"], "<end>", False), (["a", ""], None, False)],
)
def test_documents_that_no_token_ends_are_warned_of(
    texts: list[str], end: str | None, warned: bool
) -> None:
    job = prepare.Job(("a",), "c", tokenizer="tokenizer.json", end=end)
    tally = prepare.Tally(documents=len(texts), empty=texts.count(""))
    with patch("click.echo") as echo:
        report(job, [tally])
    output = "".join(call.args[0] for call in echo.call_args_list)
    assert ("warning: no token ends a document" in output) == warned
    with patch("click.echo") as echo:
        report(prepare.Job(("a",), "c"), [tally])
    assert "warning" not in "".join(call.args[0] for call in echo.call_args_list)
