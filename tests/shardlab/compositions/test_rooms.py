"""Each room of the museum shows its fault, and the numbers that the museum's page prints."""

from __future__ import annotations

from collections.abc import Callable
from math import isclose, log
from signal import SIGSEGV
from typing import Any

import pytest

from pages.museum import LAB, Numbers, program, recorded
from pages.programs import script
from shardlab.comm import World

ALIKE = {"rel": 1e-5, "abs": 1e-9}  # between machines: sums in fp32 come in another order
CHANGED = (
    "the source has fixed this, or the fault is another one: `python -m pages museum --record`, "
    "and set `fixed` in rooms.toml"
)


def show(world: World, names: list[str]) -> list[Numbers]:
    rooms: list[Numbers] = script(LAB / "museum.py").show(world, names)
    return rooms


def measured(pool: Any, name: str) -> Numbers:
    """Run a room and compare it with the record; return its numbers."""

    def run(size: int, _: Any, names: list[str]) -> list[list[Numbers]]:
        return pool(size).run(show, names)

    numbers: Numbers = program().measure([name], run)[name]
    assert numbers == pytest.approx(recorded()[name], **ALIKE), CHANGED
    return numbers


# Each room's numbers show its fault: what must hold of them.
ROOMS: dict[str, Callable[[Numbers], bool]] = {
    "strided-reduce": lambda n: n["megatron"] > 0.5 and n["ours"] == 0,
    "label-smoothing": lambda n: n["rank 0"] < n["right"] - 0.05 and n["rank 1"] > n["right"] + 0.1,
    "gathered-logits": lambda n: isclose(n["off"], log(2), abs_tol=1e-6) and n["gradient"] > 0.1,
    "attention-sink-norm": lambda n: isclose(n["ratio"], (30 / 204) ** 0.5, rel_tol=1e-6),
    "norms-under-sequence-parallelism": lambda n: n["unmarked"] > 0.1 and n["marked"] < 1e-6,
    "expert-gradients": lambda n: (
        min(n["tp2 etp1"], n["tp1 etp2"]) > 0.5
        and max(n[layout] for layout in ("dp2", "ep2", "tp2 etp2", "tp2 ep2")) < 1e-12
    ),
    "expert-norm": lambda n: (
        isclose(n["initialized"], n["right"], rel_tol=1e-6)
        and isclose(n["ratio"], 0.5**0.5, rel_tol=1e-6)
    ),
    "auxiliary-loss-batch": lambda n: is_line(n, 0.5, 1e-6),
    "auxiliary-loss-tensor": lambda n: is_line(n, 0.5, 1e-6),
    "experts-beside-ddp": lambda n: is_line(n, 2, 1e-12),
    "context-masked": lambda n: (
        isclose(n["by default, ratio"], 0.5, rel_tol=1e-6)
        and max(n["per token"], n["ours"]) < 1e-12
    ),
    "dropped-sinks": lambda n: (
        n["swallowed"] > 0.1 and n["without any"] < 1e-12 and bool(n["refused"])
    ),
    "unequal-tokens": lambda n: n["by default"] > 0.1 and n["per token"] < 1e-12,
    "strided-gloo": lambda n: all(wrong > 0 for wrong in n.values()),
    "averaged-norm": lambda n: isclose(n["ratio"], 0.661, abs_tol=1e-3),
    "last-micro-batch": lambda n: (
        n["inherited"] > 0.3 and max(n["from the last"], n["told"], n["ours"]) < 1e-12
    ),
    "closed-corpus": lambda n: n["signal"] == SIGSEGV,
    "narrow-tokens": lambda n: n["read"] == 70_000 - 2**16,
    "rewritten-corpus": lambda n: n["rewritten"] == n["first"] != n["right"],
    "cut-tokens": lambda n: n["opened"] > n["readable"],
    "counted-samples": lambda n: n["right"] - n["counted"] == 1,
    "blend-alone": lambda n: n == {"without": 8.0, "with": 0.0},
    "unshared-disks": lambda n: n == {"rank 0": 24.0, "rank 1": 0.0},
}


def is_line(numbers: Numbers, ratio: float, off: float) -> bool:
    """Whether every entry is `ratio` times the right one."""
    return isclose(numbers["ratio"], ratio, rel_tol=1e-6) and numbers["off the line"] < off


@pytest.mark.parametrize("name", ROOMS)
def test_a_room_shows_its_fault_as_the_page_says(pool: Any, name: str) -> None:
    if name in list(ROOMS)[-7:]:  # skipped where Megatron's wheel has no datasets
        from tests.shardlab.data import megatron_data  # noqa: F401
    assert ROOMS[name](measured(pool, name))


def test_every_room_has_its_fault() -> None:
    assert ROOMS.keys() == recorded().keys()


def test_the_program_lists_the_rooms_runs_one_and_refuses_another_name(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert program().main([]) == 0
    listed = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert sorted(listed) == sorted(recorded())
    assert program().main(["averaged-norm"]) == 0
    printed = dict(line.split() for line in capsys.readouterr().out.splitlines()[1:])
    assert float(printed["ratio"]) == pytest.approx(0.661, abs=1e-3)
    assert program().main(["averaged-norms"]) == 2
    assert "no room 'averaged-norms'; choose" in capsys.readouterr().err
