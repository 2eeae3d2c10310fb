"""A symbol too long to cite is cut into parts that can be cited, and nothing of it is lost."""

import argparse
import inspect
import typing
from itertools import pairwise
from pathlib import Path
from types import ModuleType

import pytest

from notelab.cited import fitting, outline
from notelab.commands.parts import parts_of
from tests.notelab.scratch import Scratch, git

MOST = 40


@pytest.mark.parametrize("module", [argparse, inspect, typing])
@pytest.mark.parametrize("most", [10, MOST])
def test_every_part_of_every_long_symbol_can_be_cited_and_no_statement_is_lost(
    module: ModuleType, most: int
) -> None:
    assert module.__file__
    path = Path(module.__file__)
    whole = outline.of_file(path.name, path.read_bytes())
    long = [one for one in whole.symbols if one.last - one.top >= most]
    assert len(long) > 10
    for symbol in long:
        parts = parts_of(whole, symbol, most)
        assert parts
        for part in parts:
            assert fitting.is_whole(whole, part.first, part.last)
            assert fitting.straddles(whole, part.first, part.last) is None
            alone = part.symbol or not [
                one for one in whole.statements if part.first < one[0] and one[1] <= part.last
            ]
            assert part.lines <= most or alone, (symbol.name, part)
        assert all(one.last < two.first for one, two in pairwise(parts))
        simple = [
            (first, last)
            for first, last in whole.statements
            if symbol.line < first
            and last <= symbol.last
            and not any(first < a and b <= last for a, b in whole.statements)
        ]
        for first, last in simple:
            held = any(part.first <= first and last <= part.last for part in parts)
            cut = last - first >= most and any(
                first <= part.first and part.last <= last for part in parts
            )
            assert held or cut, (symbol.name, first, last)


def test_short_paragraphs_are_one_part_and_methods_are_not() -> None:
    body = "".join(f"    a{n} = {n}\n\n" for n in range(30))
    methods = "    x = 1\n    y = 2\n    def one(self): ...\n    def two(self): ...\n"
    code = f"def long():\n{body}class Two:\n{methods}"
    found = outline.of_file("a.py", code.encode())
    long, two = (one for one in found.symbols if one.name in ("long", "Two"))
    assert [part.lines for part in parts_of(found, long, MOST)] == [19, 19, 19]
    assert [part.lines for part in parts_of(found, two, MOST)] == [2, 1, 1]


def test_all_parts_are_printed_each_with_what_it_is_known_by(scratch: Scratch) -> None:
    lines = "".join(f"    value_{n} = {n}\n\n" for n in range(300))
    sum_ = "        1 +\n" * 50
    (scratch.upstream / "pkg/scaler.py").write_text(
        f'def vast():\n    """Do much."""\n{lines}    total = (\n{sum_}        1)\n'
    )
    git(scratch.upstream, "commit", "-q", "-a", "-m", "vast")
    commit = git(scratch.upstream, "rev-parse", "HEAD")
    scratch.write("up-sha.txt", f"{commit}\n")
    done = scratch.run("cite", "up", "pkg/scaler.py:vast")
    parts = [line for line in done.stderr.splitlines() if line.startswith("  `pkg/")]
    assert parts[0] == "  `pkg/scaler.py:L2-L21`  Do much."
    assert parts[-1].endswith("total = ( (one statement of 52 lines: too long to cite)")
    assert len(parts) == 31
