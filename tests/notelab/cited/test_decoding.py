"""A cited Python file is decoded as its mark and declaration say; failures are reported."""

import sys

import pytest

from notelab.cited import outline
from tests.notelab.scratch import Scratch

LATIN = "# -*- coding: latin-1 -*-\ndef año(niño=1,\n        uno=2):\n    return niño\n"
NEWER = "def combine(left, right):\n    total = left right\n    return total\n"
VERSION = ".".join(map(str, sys.version_info[:2]))


@pytest.mark.parametrize(
    "data",
    [
        b"\xef\xbb\xbf" + LATIN.replace("latin-1", "utf-8").encode(),
        LATIN.encode("latin-1"),
        LATIN.replace("latin-1", "cp1252").encode("cp1252"),
    ],
    ids=["mark", "latin-1", "cp1252"],
)
def test_a_mark_or_another_declared_encoding_leaves_structure_and_names(data: bytes) -> None:
    file = outline.of_file("a.py", data)
    assert (file.structured, file.unread) == (True, "")
    assert [(symbol.name, symbol.line, symbol.last) for symbol in file.symbols] == [("año", 2, 4)]
    assert file.names_between(4, 4) == {"niño"}


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"# coding: nonsense\nx = 1\n", "unknown encoding"),
        (b"# coding: punycode\nx = 1\n", "punycode, which is not read"),
        (b"# coding: unicode_escape\nx = '\\n'\n", "unicode_escape, which is not read"),
        (b"# coding: ascii\n\nx = '\xc3\xb1'\n", "not in the encoding that it declares"),
        (b"\n\nx = '\xf1'\n", "not in the encoding"),
        (b"def broken(:\n", f"Python {VERSION} can't parse line 1"),
        (b"x = 1\0\n", f"Python {VERSION} can't parse"),
        (b"x = " + b"(" * 5000 + b")" * 5000 + b"\n", f"Python {VERSION} can't parse"),
    ],
)
def test_why_a_python_file_has_no_structure_is_said(data: bytes, why: str) -> None:
    file = outline.of_file("a.py", data)
    assert not file.structured
    assert why in file.unread
    assert file.lines == data.count(b"\n")


def test_a_language_without_rules_needs_no_reason() -> None:
    assert outline.of_file("a.md", b"words\n").unread == ""


def test_the_summary_names_a_file_that_this_python_cannot_parse(scratch: Scratch) -> None:
    (scratch.upstream / "pkg/scaler.py").write_text(NEWER)
    scratch.release({"L14-L15": "L2-L3", "L22-L25": "L1-L1", "`uses`": "`total`"})
    scratch.lock()
    for _ in range(2):  # worked out, then out of the cache
        (lab,) = scratch.check().labs
        (file,) = lab.unparsed.items()
        assert file[0] == "up:pkg/scaler.py"
        assert (lab.unstructured, file[1].citations) == (4, 4)
        assert f"Python {VERSION} can't parse line 2" in file[1].reason
    assert "without a structure rule (up:pkg/scaler.py)" in scratch.run("check").stdout
    done = scratch.run("check", "-v")
    assert done.returncode == 0, done.stdout
    assert f"up:pkg/scaler.py  4 citations: Python {VERSION} can't parse line 2" in done.stdout
