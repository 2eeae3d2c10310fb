"""A symbol that is too long to cite is split into citable parts, and no line of it is lost."""

import argparse
import inspect
import typing
from itertools import pairwise
from pathlib import Path
from types import ModuleType

import pytest

from notelab.cited import nearest_range, outline
from notelab.commands.citing import split_symbol
from tests.notelab.scratch import Scratch, commit_all

MAX_LINES = 40


@pytest.mark.parametrize("module", [argparse, inspect, typing])
@pytest.mark.parametrize("max_lines", [10, MAX_LINES])
def test_parts_of_long_symbols_can_be_cited_and_lose_nothing(
    module: ModuleType, max_lines: int
) -> None:
    assert module.__file__
    path = Path(module.__file__)
    whole = outline.of_file(path.name, path.read_bytes())
    long = [symbol for symbol in whole.symbols if symbol.last - symbol.top >= max_lines]
    assert len(long) > 10
    for symbol in long:
        parts = split_symbol(whole, symbol, max_lines)
        assert parts
        for part in parts:
            assert nearest_range.is_whole(whole, part.first, part.last)
            assert nearest_range.straddles(whole, part.first, part.last) is None
            alone = part.symbol or not [
                (first, last)
                for first, last in whole.statements
                if part.first < first and last <= part.last
            ]
            assert part.lines <= max_lines or alone, (symbol.name, part)
        assert all(before.last < after.first for before, after in pairwise(parts))
        simple = [
            (first, last)
            for first, last in whole.statements
            if symbol.line < first
            and last <= symbol.last
            and not any(first < a and b <= last for a, b in whole.statements)
        ]
        for first, last in simple:
            is_covered = any(part.first <= first and last <= part.last for part in parts)
            is_split = last - first >= max_lines and any(
                first <= part.first and part.last <= last for part in parts
            )
            assert is_covered or is_split, (symbol.name, first, last)


def test_short_paragraphs_are_one_part_and_methods_are_not() -> None:
    body = "".join(f"    a{n} = {n}\n\n" for n in range(30))
    methods = "    x = 1\n    y = 2\n    def one(self): ...\n    def two(self): ...\n"
    code = f"def long():\n{body}class Two:\n{methods}"
    file = outline.of_file("a.py", code.encode())
    long, two = (symbol for symbol in file.symbols if symbol.name in ("long", "Two"))
    assert [part.lines for part in split_symbol(file, long, MAX_LINES)] == [19, 19, 19]
    assert [part.lines for part in split_symbol(file, two, MAX_LINES)] == [2, 1, 1]


def test_all_parts_are_printed_each_with_what_it_is_known_by(scratch: Scratch) -> None:
    lines = "".join(f"    value_{n} = {n}\n\n" for n in range(300))
    sum_ = "        1 +\n" * 50
    (scratch.upstream / "pkg/scaler.py").write_text(
        f'def vast():\n    """Do much."""\n{lines}    total = (\n{sum_}        1)\n'
    )
    commit = commit_all(scratch.upstream, "vast")
    scratch.write("up-sha.txt", f"{commit}\n")
    done = scratch.run("cite", "up", "pkg/scaler.py:vast")
    parts = [line for line in done.stderr.splitlines() if line.startswith("  `pkg/")]
    assert parts[0] == "  `pkg/scaler.py:L2-L21`  Do much."
    assert parts[-1].endswith("total = ( (one statement of 52 lines: too long to cite)")
    assert len(parts) == 31
    assert "vast has 654 lines, and a citation may have at most 40" in done.stderr
    for most, said in ((653, "has 654 lines"), (654, "")):
        scratch.replace("lab.toml", "[lab]\n", f"[lab]\nmax-lines = {most}\n")
        done = scratch.run("cite", "up", "pkg/scaler.py:vast")
        assert said in done.stderr and bool(said) == bool(done.stderr)
        scratch.replace("lab.toml", f"max-lines = {most}\n", "")
