"""Lab 04: pages show what a run gives; wrong ways are wrong where the answers say, no more."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from shardlab.comm import World
from tests.shardlab.labs.lab_pages import LANGUAGES, ROUTE, answers, page, script, shown, write
from tests.shardlab.pool import Pool

LAB = "04-experts"
Pools = Callable[[int], Pool]
SHOWN: dict[str, dict[str, Any]] = {
    "route": {},
    "all-gather": {"dispatch": "all-gather"},
    "skew": {"skew": 1.0},
    "capacity": {"skew": 1.0, "capacity": 1.25},
    "aux": {"skew": 1.0, "aux": 0.01, "steps": 50},
}
WAYS = {f"{way}{ep}": {"finish": way, "ep": ep} for way in "abcd" for ep in (4, 2, 1)}


def run_reports(world: World, cases: list[dict[str, Any]]) -> list[str]:
    lab = script(ROUTE)
    return [lab.report(lab.Settings(**case), world) for case in cases]


def paragraphs_of(pool: Pools, cases: dict[str, dict[str, Any]]) -> dict[str, list[str]]:
    """What rank 0 says of each case, in paragraphs."""
    first = pool(4).run(run_reports, list(cases.values()))[0]
    return {name: text.split("\n\n") for name, text in zip(cases, first, strict=True)}


def blocks(pool: Pools) -> dict[str, str]:
    """What the lab's page shows: one run whole, of the others what they are shown for."""
    paragraphs = paragraphs_of(pool, SHOWN)
    parts = {"route": "\n\n".join(paragraphs["route"]), "all-gather": paragraphs["all-gather"][2]}
    parts |= {name: paragraphs[name][1] for name in ("skew", "capacity", "aux")}
    return {name: f"```text\n{text}\n```" for name, text in parts.items()}


def verdicts(pool: Pools) -> str:
    """The answers' table: a way, and its gradients' error at each number of expert ranks."""
    paragraphs = paragraphs_of(pool, WAYS)
    rows = ["| | EP = 4 | EP = 2 | EP = 1 |", "|---|---|---|---|"]
    for way in "abcd":
        for part in ("router", "experts"):
            cells = [
                re.sub(r"off by (\S+), (\S+) x as long", r"\1, ×\2", match[1].strip())
                for ep in (4, 2, 1)
                if (match := re.search(rf"^  {part} +(.*)$", paragraphs[f"{way}{ep}"][3], re.M))
            ]
            rows.append(f"| {way}, {part} | {' | '.join(c.replace('equal', '=') for c in cells)} |")
    return "\n".join(rows)


@pytest.mark.ci
def test_the_pages_show_what_a_run_prints(pool: Pools) -> None:
    for name, text in blocks(pool).items():
        for language in LANGUAGES:
            assert shown(page(LAB, language), name) == text, (name, language)


def test_only_one_way_is_right_and_one_rank_of_experts_hides_the_others(pool: Pools) -> None:
    table = verdicts(pool)
    for language in LANGUAGES:
        assert shown(answers(LAB, language), "ways") == table
    wrong = {line.split(",")[0][2:] for line in table.splitlines() if "×" in line}
    assert wrong == {"a", "c", "d"}
    assert all(line.endswith("| = |") for line in table.splitlines()[2:])  # at EP = 1


@pytest.mark.ci
def test_skewed_tokens_all_go_to_one_rank_and_a_capacity_drops_them(pool: Pools) -> None:
    paragraphs = paragraphs_of(pool, SHOWN)
    assert "4.00 x the mean; 1024 rows, of 1024 chosen" in paragraphs["skew"][1]
    assert "321 rows, of 1024 chosen" in paragraphs["capacity"][1]
    assert "1.05 x the mean" in paragraphs["aux"][1]


def pages(pool: Pools) -> None:
    """Write what the pages show."""
    for language in LANGUAGES:
        write(page(LAB, language), blocks(pool))
        write(answers(LAB, language), {"ways": verdicts(pool)})
