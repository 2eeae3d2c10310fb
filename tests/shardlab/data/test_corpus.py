"""A pair of files that is damaged, lies, or isn't there is refused, in a line that says where."""

from __future__ import annotations

import os
import signal
import struct
import sys
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shardlab.data.build import Builder
from shardlab.data.corpus import CHECKED_AT_OPENING, HEAD, Corpus, DataError
from shardlab.data.samples import Recipe
from shardlab.data.writer import Writer
from tests.docs.page import ROOT
from tests.running import run_program


@pytest.fixture
def prefix(tmp_path: Path) -> Path:
    with Writer(tmp_path / "corpus", np.uint16) as writer:
        writer.extend(range(8), [3, 0, 5], [0, 3])
        writer.add([8, 9])
    return tmp_path / "corpus"


def head(**changed: Any) -> bytes:
    fields = {"magic": b"MMIDIDX\0\0", "version": 1, "code": 8, "count": 4, "ends": 3} | changed
    return HEAD.pack(*fields.values())


def at(place: int, kind: str, value: int) -> Callable[[bytes], bytes]:
    def change(index: bytes) -> bytes:
        content = bytearray(index)
        struct.pack_into(kind, content, place, value)
        return bytes(content)

    return change


def begins(content: bytes) -> Callable[[bytes], bytes]:
    return lambda index: content + index[HEAD.size :]


LENGTH, POINTER, DOCUMENT = HEAD.size, HEAD.size + 16, HEAD.size + 16 + 32
DAMAGES: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "empty": (lambda index: b"", "has 0 bytes; a header alone takes 34"),
    "no whole header": (lambda index: index[:20], "has 20 bytes; a header alone takes 34"),
    "another file": (begins(head(magic=b"TOTALLY\0\0")), "begins with b'TOTALLY"),
    "another version": (begins(head(version=2)), "has version 2; version 1 is read"),
    "unknown dtype": (begins(head(code=11)), "has dtype code 11; those known are 1 to 10"),
    "no sequences": (begins(head(count=0)), "says 0 sequences"),
    "sequences that aren't there": (begins(head(count=2**60)), "says 1152921504606846976 seq"),
    "cut short": (lambda index: index[:-1], "take 106 bytes .* and has 105"),
    "negative length": (at(LENGTH, "<i", -3), "puts sequence 0, of length -3"),
    "a longer length": (at(LENGTH, "<i", 4), "puts sequence 1, .* ends at 8: sequences must"),
    "overlapping sequences": (at(POINTER + 16, "<q", 4), "sequence 2, .* at byte 4; .* ends at 6"),
    "a pointer outside": (at(POINTER + 24, "<q", 2**50), "sequence 3, .* at byte 1125899906842624"),
    "overlapping documents": (at(DOCUMENT + 8, "<q", 5), "documents from 0 to 4; .* order, 0 to 4"),
    "a document too few": (at(DOCUMENT + 16, "<q", 3), "documents from 0 to 3; .* order, 0 to 4"),
    "a last length that lies": (at(LENGTH + 12, "<i", 9), "corpus.bin has 20 bytes, .* says 34"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_index_is_refused(prefix: Path, damage: str) -> None:
    change, message = DAMAGES[damage]
    path = Path(f"{prefix}.idx")
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(DataError, match=message) as refused:
        Corpus(prefix)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("size", [0, 19, 22])
def test_a_bin_of_another_size_is_refused(prefix: Path, size: int) -> None:
    with Path(f"{prefix}.bin").open("r+b") as file:
        file.truncate(size)
    with pytest.raises(DataError, match="cut short, or of another corpus"):
        Corpus(prefix)


def test_a_folder_in_place_of_an_index_is_refused(prefix: Path) -> None:
    Path(f"{prefix}.idx").unlink()
    Path(f"{prefix}.idx").mkdir()
    with pytest.raises(DataError, match=r"corpus.idx cannot be read: Is a directory"):
        Corpus(prefix)


@pytest.mark.parametrize("kind", ["bin", "idx"])
def test_half_a_pair_is_refused(prefix: Path, kind: str) -> None:
    Path(f"{prefix}.{kind}").unlink()
    with pytest.raises(
        DataError, match=f"corpus.{kind} cannot be read: No such file or directory; give "
    ):
        Corpus(prefix)


def test_what_was_written_is_read(prefix: Path) -> None:
    corpus = Corpus(prefix)
    assert [corpus[i].tolist() for i in range(4)] == [[0, 1, 2], [], [3, 4, 5, 6, 7], [8, 9]]
    assert corpus.documents.tolist() == [0, 3, 4]
    with pytest.raises(IndexError, match="it has 0 to 3"):
        corpus[4]
    with pytest.raises(ValueError, match="read-only"):
        corpus[0][0] = 7


@pytest.mark.parametrize(
    ("code", "dtype"), [(6, "<u2"), (7, "<u4"), (8, "<u8"), (9, "<u4"), (10, "<u8")]
)
def test_the_integers_of_deepspeed_are_read_as_integers(
    tmp_path: Path, code: int, dtype: str
) -> None:
    tokens = np.array([1, 2, 50_000, 0, 60_000, 7], dtype)
    begins = np.array([0, 4], "<i8") * tokens.itemsize
    index = [head(code=code, count=2, ends=3), np.array([4, 2], "<i4"), begins, np.arange(3)]
    (tmp_path / "corpus.idx").write_bytes(b"".join(bytes(part) for part in index))
    (tmp_path / "corpus.bin").write_bytes(bytes(tokens))
    corpus = Corpus(tmp_path / "corpus")
    assert corpus.tokens.dtype == dtype
    assert corpus[1].tolist() == [60_000, 7]


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.uint16])
def test_what_megatron_writes_under_the_same_codes_keeps_its_dtype(
    tmp_path: Path, dtype: type
) -> None:
    with Writer(tmp_path / "corpus", dtype) as writer:
        writer.extend([1, 2, 3], [2, 1])
    corpus = Corpus(tmp_path / "corpus")
    assert corpus.tokens.dtype == dtype
    assert corpus.tokens.tolist() == [1, 2, 3]


def test_a_corpus_is_opened_by_its_first_sequences_and_each_other_is_checked_when_it_is_read(
    tmp_path: Path,
) -> None:
    count, bad = 3 * CHECKED_AT_OPENING, 2 * CHECKED_AT_OPENING
    with Writer(tmp_path / "corpus", np.uint16) as writer:
        writer.extend(np.arange(count) % 1000, np.ones(count, int))
    path = tmp_path / "corpus.idx"
    path.write_bytes(at(HEAD.size + 4 * count + 8 * bad, "<q", 0)(path.read_bytes()))
    corpus = Corpus(tmp_path / "corpus")  # reads no more of the index than it needs
    assert corpus[bad + 1].tolist() == [(bad + 1) % 1000]
    for read in (lambda: corpus[bad], lambda: corpus[bad - 1], corpus.check):
        with pytest.raises(DataError, match=f"puts sequence {bad}, .* at byte 0"):
            read()
    with pytest.raises(DataError, match=f"puts sequence {bad}, "):
        Builder().samples(corpus, Recipe(sequence=8))


MEMORY = """
import re, sys
from shardlab.data.corpus import Corpus
from shardlab.data.samples import *
def resident_kib():
    return int(re.search(r"RssAnon:\\s+(\\d+)", open("/proc/self/status").read())[1])
before = resident_kib()
corpus = Corpus(sys.argv[1])
recipe = Recipe(sequence=4096)
samples = Samples(corpus, build_indices(corpus.lengths, range(len(corpus)), recipe), recipe)
for sample in range(0, len(samples), 50_000):
    assert not samples[sample].any()
print(resident_kib() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="RssAnon is Linux's")
def test_ten_gigabytes_take_no_memory_of_ones_own(tmp_path: Path) -> None:
    each, count = 1_000_000, 5_000  # 10 GB of zeros, in a file with holes
    lengths = np.full(count, each, "<i4")
    pointers = np.arange(count, dtype="<i8") * each * 2
    content = [head(count=count, ends=count + 1), lengths, pointers, np.arange(count + 1)]
    (tmp_path / "large.idx").write_bytes(b"".join(bytes(part) for part in content))
    with (tmp_path / "large.bin").open("wb") as file:
        file.truncate(each * count * 2)
    kib = run_program(
        [sys.executable, "-c", MEMORY, tmp_path / "large"],
        check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT / "tools")},
    ).stdout
    assert int(kib) < 64 * 1024  # the indices of 1.2 million samples, and what makes them


# ------------------------------------------------------------------ writing

WRONG: dict[str, tuple[Callable[[Writer], None], str]] = {
    "too large": (lambda w: w.add([65_536]), "token 65536 is not among the uint16"),
    "negative": (lambda w: w.add([-1]), "token -1 is not among the uint16"),
    "no integers": (lambda w: w.add([1.5]), "tokens are float64 .1,.; .* holds uint16: give a"),
    "lengths that lie": (lambda w: w.extend([1, 2, 3], [2]), r"lengths add up to 2 .*\(3,\)"),
    "a negative length": (lambda w: w.extend([1, 2], [3, -1]), "lengths add up to 2 .least -1"),
    "a length too large": (lambda w: w.extend([1], [2**31]),
        "length 2147483648 is not among the i"),
    "documents": (lambda w: w.extend([1, 2], [1, 1], [0, 3]), "go in order from 0 to the 2"),
    "no documents": (lambda w: w.extend([1], [1], []), "documents must go in order from 0 to"),
    "after the end": (lambda w: (w.discard(), w.add([1])), "has ended: begin another"),
    "lengths of two documents that make up for each other": (
        lambda w: (w.extend([1, 2], [1]), w.extend([3], [2])), "lengths add up to 1 "),
    "lengths cut": (lambda w: w.extend([1, 2, 3], [1.5, 1.5]),
        "lengths are float64 .2,.; .*: give"),
    "lengths of a document cut": (lambda w: w.extend([1, 2, 3], [1.9, 2.1], [0, 2]),
        "lengths are float64"),
    "lengths that are no number": (lambda w: w.extend([1], [np.nan]), "lengths are float64"),
    "lengths in a table": (lambda w: w.extend([1, 2], [[1], [1]]),
        "lengths are int64 .2, 1.; .* holds int32: give"),
    "a length, not a row": (lambda w: w.extend([1, 2], 2), "lengths are int64 ..; .*: give a"),
    "documents cut": (lambda w: w.extend([1, 2], [1, 1], [0, 1.5, 2]), "documents are float64"),
    "words": (lambda w: w.add("text"), "tokens are str.* .1,.; .* holds uint16"),
    "nothing": (lambda w: None, "nothing was added"),
    "only empty documents": (lambda w: w.add([]), "nothing was added"),
}  # fmt: skip


@pytest.mark.parametrize("wrong", WRONG)
def test_what_cannot_be_written_leaves_the_older_corpus(prefix: Path, wrong: str) -> None:
    before = {path.name: path.read_bytes() for path in prefix.parent.iterdir()}
    act, message = WRONG[wrong]
    with pytest.raises(DataError, match=message), Writer(prefix, np.uint16) as writer:
        act(writer)
    assert {path.name: path.read_bytes() for path in prefix.parent.iterdir()} == before


@pytest.mark.parametrize("dtype", [np.uint32, np.float16, bool])
def test_a_dtype_that_the_format_lacks_is_refused(tmp_path: Path, dtype: Any) -> None:
    with pytest.raises(DataError, match=r"no corpus has dtype .* choose from uint8, int8"):
        Writer(tmp_path / "corpus", dtype)


# dtype, a token that it holds, the next one, which it doesn't
ROUNDED = [(np.float64, 2**53), (np.float32, 2**24), (np.float64, -(2**53)), (np.float32, -(2**24))]


@pytest.mark.parametrize(("dtype", "token"), ROUNDED)
def test_an_integer_that_a_float_would_round_is_refused(
    tmp_path: Path, dtype: Any, token: int
) -> None:
    with Writer(tmp_path / "corpus", dtype) as writer:
        writer.extend([0.5, token], [2])
        writer.extend([token], [1])
        with pytest.raises(DataError, match=f"token {token + (1 if token > 0 else -1)} is not"):
            writer.extend([token + (1 if token > 0 else -1)], [1])
    assert Corpus(tmp_path / "corpus").tokens.tolist() == [0.5, token, token]


@pytest.mark.parametrize("token", [1j, "1", None])
def test_what_is_no_number_is_refused_by_a_corpus_of_floats_too(tmp_path: Path, token: Any) -> None:
    with (
        pytest.raises(DataError, match=r"tokens are .*; .*corpus holds float64"),
        Writer(tmp_path / "corpus", np.float64) as writer,
    ):
        writer.add([token])


def test_documents_of_many_dtypes_stand_in_one_corpus_as_they_came(tmp_path: Path) -> None:
    kinds = (np.uint64, np.int64, np.uint8, np.int64, np.uint64)
    with Writer(tmp_path / "corpus", np.uint16) as writer:
        for number, kind in enumerate(kinds):
            writer.add(np.array([number, 65_535 if kind != np.uint8 else 255], kind))
            writer.add([])
    corpus = Corpus(tmp_path / "corpus")
    assert [corpus[2 * i].tolist() for i in range(5)] == [
        [number, 65_535 if kind != np.uint8 else 255] for number, kind in enumerate(kinds)
    ]
    with Writer(tmp_path / "turned", np.uint16) as turned:
        turned.extend(np.array([1, 258, 65_535], ">i8"), [3])
        with pytest.raises(DataError, match="token -2 is not among the uint16"):
            turned.extend(np.array([1, -2], ">i2"), [2])
    assert Corpus(tmp_path / "turned").tokens.tolist() == [1, 258, 65_535]
    refused = pytest.raises(DataError, match="token 9007199254740993 is not among")
    with refused, Writer(tmp_path / "floats", np.float64) as floats:
        floats.add([0.5])
        floats.add([2**53 + 1])


def test_a_corpus_of_a_wider_dtype_is_appended_where_its_tokens_fit(prefix: Path) -> None:
    for name, tokens in (("wide", [65_535]), ("wider", [65_536])):
        with Writer(f"{prefix}-{name}", np.int32) as writer:
            writer.add(tokens)
    with Writer(prefix, np.uint16) as writer:
        writer.append(Corpus(f"{prefix}-wide"))
        with pytest.raises(DataError, match="token 65536 is not among the uint16"):
            writer.append(Corpus(f"{prefix}-wider"))
    assert Corpus(prefix).tokens.tolist() == [65_535]


def test_modes_are_read_and_not_lost_in_silence(prefix: Path) -> None:
    with Path(f"{prefix}.idx").open("ab") as index:
        index.write(bytes([0, 1, 2, 1]))
    assert Corpus(prefix).modes.tolist() == [0, 1, 2, 1]  # type: ignore[union-attr]
    with (
        pytest.raises(DataError, match="corpus has modes, and they can't be written here"),
        Writer(f"{prefix}-copy", np.uint16) as writer,
    ):
        writer.append(Corpus(prefix))


def test_a_prefix_without_a_name_is_refused(tmp_path: Path) -> None:
    for prefix in (f"{tmp_path}/", "", tmp_path / "none" / "corpus"):
        with pytest.raises(DataError, match="no such folder, or no name in it: make or add it"):
            Writer(prefix)
    assert not list(tmp_path.iterdir())


def test_a_second_writer_of_one_corpus_is_refused(prefix: Path) -> None:
    with Writer(prefix, np.uint16) as first:
        first.add([1])
        with pytest.raises(DataError, match="another process is writing"):
            Writer(prefix, np.uint16)
    assert Corpus(prefix).tokens.tolist() == [1]


def test_who_has_a_corpus_mapped_reads_on_while_it_is_replaced(prefix: Path) -> None:
    old = Corpus(prefix)
    with Writer(prefix, np.uint16) as writer:
        writer.add([7])
    assert old.tokens.tolist() == [*range(10)]
    assert Corpus(prefix).tokens.tolist() == [7]


def test_tokens_that_are_refused_half_way_are_not_in_the_corpus(prefix: Path) -> None:
    with Writer(prefix, np.uint16) as writer:
        writer.extend([1], [1])
        with pytest.raises(DataError, match="token 70000"):
            writer.extend([2] * 70_000 + [70_000], [70_001])
        writer.extend([3], [1])
    assert Corpus(prefix).tokens.tolist() == [1, 3]


def test_documents_that_waited_with_a_refused_one_are_not_lost_in_silence(prefix: Path) -> None:
    with pytest.raises(DataError, match="token 70000"), Writer(prefix, np.uint16) as writer:
        writer.add([1])
        writer.add([70_000])
        with pytest.raises(DataError, match="token 70000"):
            writer.extend([2], [1])
    assert Corpus(prefix).tokens.tolist() == [*range(10)]


def test_a_callers_buffer_may_be_used_again(tmp_path: Path) -> None:
    buffer, lengths = np.array([1, 2]), np.array([1, 1], "<i4")
    with Writer(tmp_path / "corpus") as writer:
        writer.add(buffer)
        writer.extend(buffer, lengths)
        buffer[:], lengths[:] = 9, 9
    assert Corpus(tmp_path / "corpus").tokens.tolist() == [1, 2, 1, 2]
    assert Corpus(tmp_path / "corpus").lengths.tolist() == [2, 1, 1]


FULL = """
import resource, sys, numpy as np
from shardlab.data.writer import Writer
resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))
with Writer(sys.argv[1], np.uint16) as writer:
    writer.extend(np.ones(100_000, np.uint16), [100_000])
"""


def test_a_full_disk_leaves_the_older_corpus(prefix: Path) -> None:
    done = run_program(
        [sys.executable, "-c", FULL, prefix], env={**os.environ, "PYTHONPATH": str(ROOT / "tools")}
    )
    assert "cannot write" in done.stderr.splitlines()[-1]
    assert Corpus(prefix).tokens.tolist() == [*range(10)]
    assert len(list(prefix.parent.iterdir())) == 2


def _die_between(prefix: str) -> None:
    replace = Path.replace

    def die(self: Path, target: str) -> None:
        replace(self, target)
        os.kill(os.getpid(), signal.SIGKILL)

    with pytest.MonkeyPatch.context() as patch, Writer(prefix, np.uint16) as writer:
        writer.add([5] * 10)  # as many tokens as before
        patch.setattr(Path, "replace", die)


def test_the_new_tokens_are_never_read_by_the_old_index(prefix: Path) -> None:
    killed = get_context("fork").Process(target=_die_between, args=(str(prefix),))
    killed.start()
    killed.join()
    assert killed.exitcode == -signal.SIGKILL
    with pytest.raises(DataError, match=r"a writer cut short leaves no \.idx"):
        Corpus(prefix)
    with Writer(prefix, np.uint16) as last:
        last.add([5])
    assert Corpus(prefix).tokens.tolist() == [5]
    assert {path.name for path in prefix.parent.iterdir()} == {"corpus.bin", "corpus.idx"}
