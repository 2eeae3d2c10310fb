"""Each numeral with a unit in the theory has an entry in `numerals.toml`, which says its origin.

Left out are numerals that a page links to a row of RESULTS, which notelab compares; those that a
command writes between marks; those in fences, code and formulas; and those of the worked problems
(`theory/test_exercises.py`). An entry is one of these, or several with "; " between them:

- an expression, which must give the numeral to its last digit: in bytes, seconds, or shares for %.
  It may use shardlab's formulas, what `theory/account.py` counts, the names in the tables `let`,
  and the numerals with a NAME;
- `given: WORDS` or `given NAME: WORDS`, an assumption of an example, and so `sheet`, a data sheet;
- `source: PATH:Lline`, a line of a wheel at the pin that has the number;
- `test: FILE::NAME`, the test that computes it.
"""

import json
import math
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import torch.distributed

from pages.programs import TRAIN, script
from pages.runs.theory_06 import SWEEP
from shardlab.pipeline.schedule import by_name
from shardlab.proofs import causal_work, formulas
from shardlab.proofs.collective import Call, Traffic
from shardlab.proofs.formulas import experts, seconds
from shardlab.proofs.schedules.timeline import bubble, simulate
from tests.docs.page import EXERCISE, ROOT, spanish_page
from tests.docs.theory import account

PAGES = [page for page in sorted((ROOT / "docs/theory").glob("*.md")) if ".es." not in page.name]
LISTED = tomllib.loads(Path(__file__).with_name("numerals.toml").read_text("utf-8"))
SIZES = {f"{letter}iB": 1024**power for power, letter in enumerate("KMGT", 1)}
SIZES |= {f"{letter}B": 1000**power for power, letter in enumerate("kMGT", 1)}
SCALE = {f"{unit}/s": size for unit, size in SIZES.items()} | SIZES | {"Gbit/s": 1e9}
SCALE |= {"ns": 1e-9, "µs": 1e-6, "ms": 1e-3, "%": 0.01, "million": 1e6, "billion": 1e9}
SCALE |= {"· 10⁶": 1e6, "· 10⁹": 1e9, "· 10¹²": 1e12, "· 10¹⁵": 1e15}
WORDS = {
    "mil millones": "billion", "millones": "million", "veces": "times", "byte": "byte",
    "token": "token", "parámetro": "parameter", "elemento": "element", "número": "number",
    "paso": "step", "segundo": "second", "minuto": "minute", "hora": "hour", "día": "day",
}  # fmt: skip
UNIT = "|".join([*SCALE, r"s(?! [A-Z]\b)", *(f"{word}s?" for word in WORDS.values())])
NUMBER = r"(?<![\w.,/])(?<![A-Za-z] [+−] )\d+(?:,\d{3})*(?:\.\d+)?"  # no part of a formula
NUMERAL = re.compile(rf"({NUMBER})(?:[ -]?({UNIT})(?!\w)| (B)\b|(×)(?! ))")
LEFT_OUT = re.compile(
    r"\A---\n.*?\n---\n|```.*?```|`[^`\n]*`|\$\$.*?\$\$|\$[^$\n]*\$|</?[a-z][^>]*>"
    r"|<!-- ([^>]+?) -->.*?<!-- /\1 -->|<!--.*?-->|\[[^\]]*\]\([^)]*RESULTS[^)]*\)|\]\([^)]*\)",
    re.S,
)
NAMED = re.compile(r"(given|sheet|source|test)(?: (\w+))?: (.+)")
NAMES: dict[str, Any] = {
    **{name: getattr(formulas, name) for name in formulas.__all__},
    **{name: value for name, value in vars(account).items() if name[0] != "_"},
    **{"seconds": seconds.seconds, "steps": seconds.steps},
    **{"Call": Call, "Traffic": Traffic, "COUNT": experts.COUNT},
    **{"count_cells": causal_work.count_cells, "dict": dict, "max": max, "sum": sum},
    **{"log2": math.log2, "ceil": math.ceil, "floor": math.floor, "__builtins__": {}},
    **{"us": 1e-6, "percent": 0.01, **SIZES},
    "bubble": lambda *schedule: bubble(simulate(by_name(*schedule))),
    "payload": lambda traffic: sum(call.payload * n for call, n in traffic.all.items()),
    "first_bucket": torch.distributed._DEFAULT_FIRST_BUCKET_BYTES,
    "sweep": [size for size, _ in json.loads(SWEEP.read_text("utf-8"))["rows"]],
    "tutor": script(TRAIN.with_name("settings.py")).Settings(),
}


def normalize(text: str, *, spanish: bool) -> str:
    """Return a text on one line, its numerals and units in English, without what is left out."""
    text = re.sub(r"\s+", " ", LEFT_OUT.sub(" ", text)).replace("·10", "· 10")
    if spanish:
        text = re.sub(r"(?<=\d) (?=\d{3}(?!\d))", "", text).replace("000 millones", " mil millones")
        for word, english in WORDS.items():
            text = re.sub(rf"(?<=\d )(?:de )?{word}(?=s?\b)", english, text)
    return text


def read_numerals(page: Path) -> list[str]:
    """Return a page's numerals, each with its unit, in English and in the page's order."""
    text = EXERCISE.sub("", page.read_text("utf-8"))
    plain = normalize(text, spanish=page.name.endswith(".es.md"))
    return [" ".join(filter(None, match.groups())) for match in NUMERAL.finditer(plain)]


def find_fault(numeral: str, origin: str, names: dict[str, Any]) -> str:
    """Return what is wrong with one origin of a numeral, or nothing."""
    number, unit = numeral.split(" ", 1)
    if not (named := NAMED.fullmatch(origin)):
        computed = eval(origin, names) / SCALE.get(unit, 1)
        written = f"{computed:,.{len(number.partition('.')[2])}f}"
        return "" if written == number else f"{origin} gives {written}"
    if named[1] == "source":
        path, line = named[3].split(":L")
        lines = (Path(torch.__file__).parents[1] / path).read_text("utf-8").splitlines()
        expected = float(number.replace(",", "")) * (0.01 if unit == "%" else 1)
        numbers = map(float, re.findall(r"\d+(?:\.\d+)?", lines[int(line) - 1]))
        return "" if expected in numbers else f"{named[3]} has another number"
    if named[1] == "test":
        path, name = named[3].split("::")
        return "" if f"def {name}(" in (ROOT / path).read_text("utf-8") else f"no {named[3]}"
    return ""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_numerals_of_a_page_in_both_languages_are_from_where_their_entries_say(
    page: Path,
) -> None:
    entries, names = dict(LISTED[page.stem]), dict(NAMES)
    expressions = LISTED["let"] | entries.pop("let", {})
    for numeral, origins in entries.items():
        if (named := NAMED.fullmatch(origins)) and named[2]:
            number, unit = numeral.replace(",", "").split(" ", 1)
            names[named[2]] = float(number) * SCALE.get(unit, 1)
    for name, expression in expressions.items():
        names[name] = eval(expression, names)
    listed = read_numerals(page)
    assert set(listed) == entries.keys(), "page and numerals.toml differ"
    parts = [(numeral, part) for numeral in entries for part in entries[numeral].split("; ")]
    faults = [(numeral, find_fault(numeral, part, names)) for numeral, part in parts]
    assert [fault for fault in faults if fault[1]] == []
    spanish = sorted(read_numerals(spanish_page(page)))
    assert spanish == sorted(numeral.replace(",", "") for numeral in listed)
