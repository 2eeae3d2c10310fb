"""Every part of the checker ends a line at a line feed only, as git numbers lines."""

import ast
import importlib
import inspect
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import notelab
from notelab.cited import outline
from notelab.lines import split_lines
from tests.notelab.scratch import Scratch

CODE = inspect.getsource(importlib.import_module("sched"))
HEADERS = "class A:\r    def g(self,\r          a=(1,\r 2)):\r        try:\n            x = a\r"
HEADERS += "        except E:\r            pass\n        else:\r            y = 1\n    z = 3\n"


@pytest.mark.timeout(60)
def test_a_check_and_a_lock_of_a_file_with_lone_carriage_returns_end(scratch: Scratch) -> None:
    code = "def combine(left, right):\r    total = left\r    if total:\r        total = right\n"
    code += "    return total\n"
    (scratch.upstream / "pkg/scaler.py").write_bytes(code.encode())
    scratch.release({"L14-L15": "L1-L2", "L22-L25": "L1-L2", "`uses`": "`total`"})
    assert not scratch.lock().skipped
    assert scratch.codes() == []
    scratch.replace("note.md", "pkg/scaler.py:L1-L2", "pkg/scaler.py:L1-L3")
    assert "N205" in scratch.codes("note.md"), "git numbers two lines in this file"


@given(st.lists(st.integers(0, CODE.count("\n") - 1), max_size=40))
def test_rows_of_python_are_lines_of_git_wherever_carriage_returns_stand(at: list[int]) -> None:
    pieces = CODE.split("\n")
    ends = ["\r" if number in at else "\n" for number in range(len(pieces) - 1)]
    text = "".join(piece + end for piece, end in zip(pieces, [*ends, ""], strict=True))
    file_outline = outline.of_file("a.py", text.encode())
    lines = split_lines(text)
    assert (file_outline.structured, file_outline.lines) == (True, len(lines))
    assert all(1 <= first <= last <= len(lines) for first, last in file_outline.statements)
    for symbol in file_outline.symbols:
        assert symbol.name.rpartition(".")[2] in lines[symbol.line - 1]


def test_headers_and_branches_on_one_line_of_git_have_an_outline() -> None:
    file_outline = outline.of_file("a.py", HEADERS.encode())
    assert [(symbol.name, symbol.line, symbol.last) for symbol in file_outline.symbols] == [
        ("A", 1, 4),
        ("A.g", 1, 3),
    ]
    assert (1, 3) in file_outline.statements
    assert (4, 4) in file_outline.statements


def test_a_page_with_a_lone_carriage_return_is_refused_with_its_line(scratch: Scratch) -> None:
    text = scratch.read("note.md").replace("\n- **Two", "\r- **Two")
    (scratch.lab / "note.md").write_bytes(text.encode())
    findings = [finding for finding in scratch.check("note.md").findings if finding.code == "N102"]
    assert "lone carriage return in line 10" in findings[0].message


def test_no_module_of_the_checker_has_a_second_idea_of_a_line() -> None:
    folder = Path(notelab.__file__).parent
    used = [
        f"{file.relative_to(folder)}:{node.lineno}"
        for file in sorted(folder.rglob("*.py"))
        for node in ast.walk(ast.parse(file.read_bytes()))
        if isinstance(node, ast.Attribute) and node.attr == "splitlines"
    ]
    assert used == []
