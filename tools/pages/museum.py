"""The museum of compositions: its rooms, and the composition of what shardlab offers.

`--record` runs every room of experiments/36-compositions and stores its numbers there. The words
about each room are in rooms.toml.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from pages.blocks import ROOT, in_language
from pages.programs import script

LAB = ROOT / "experiments" / "36-compositions"
RECORD = LAB / "results" / "seen.json"
DRAWN = LAB / "results" / "drawn.json"
Numbers = dict[str, float]
WORDS: dict[str, dict[str, str]] = tomllib.loads(
    Path(__file__).with_name("museum.toml").read_text("utf-8")
)


def page(language: str) -> str:
    """Return the page in a language."""
    words, numbers, museum = WORDS[language], recorded(), load_museum()
    pins = {name: _pin(name) for name in ("megatron", "pytorch")}
    rows = [
        f"| [{room['meets'][language]}](#{room['name']}) "
        f"| {room['short'][language].format(**numbers[room['name']])} "
        f"| {_status(room, language)[0]} |"
        for room in museum["room"]
    ]
    top = "\n".join([words["top"].format(**pins, seen=museum["threads"]["seen"]), *rows])
    rooms = [
        "\n".join(_lines(room, museum["threads"], numbers[room["name"]], language))
        for room in museum["room"]
    ]
    return "\n\n".join([top, *rooms, _drawn(language)])


def load_museum() -> dict[str, Any]:
    """Return the words and states of rooms.toml."""
    return tomllib.loads((LAB / "rooms.toml").read_text("utf-8"))


def _drawn(language: str) -> str:
    """Format the section about the property test."""
    result = json.loads(DRAWN.read_text("utf-8"))
    result["ranks"] = ", ".join(result["ranks"])
    return WORDS[language]["drawn"].format(worst_fp32=result["worst in fp32"], **result)


def _lines(
    room: dict[str, Any], threads: dict[str, Any], numbers: Numbers, language: str
) -> Iterator[str]:
    words = WORDS[language]
    model = words["model"] if room.get("minimal") else ""
    yield f'<a id="{room["name"]}"></a>\n\n## {room["title"][language]}\n'
    yield f"{model}{room['seen'][language].format(**numbers)}\n"
    yield f"- **{words['cause']}.** {room['cause'][language]}"
    links = ", ".join(_thread(name, threads["state"][name], words) for name in room["threads"])
    label = words["threads"].format(seen=threads["seen"]) if links else words["no threads"]
    yield f"- **{label}.** {links or words['none']}."
    status = "; ".join(_status(room, language))
    yield f"- **{words['status']}.** {status[0].upper()}{status[1:]}."
    yield f"- **{words['ours']}.** {room['ours'][language]}"


def _status(room: dict[str, Any], language: str) -> list[str]:
    """Return the parts of a room's status, the decisive one first."""
    words, parts = WORDS[language], []
    for key in ("fixed", "unfixed"):
        if key in room:
            parts.append(words[key].format(release=room[key]))
    if room.get("same_lines"):
        parts.append(words["same lines"])
    if "note" in room:
        parts.append(room["note"][language])
    return parts


def _thread(name: str, state: str, words: dict[str, str]) -> str:
    repository, _, number = name.partition("#")
    return f"[{name}](https://github.com/{repository}/issues/{number}) ({words[state]})"


def _pin(source: str) -> str:
    path = LAB.parent / "35-reading-notes" / f"{source}-sha.txt"
    return path.read_text("utf-8").strip()


def program() -> ModuleType:
    """Return the lab's program, which has all rooms."""
    return script(LAB / "museum.py")


def record() -> None:
    """Run every room, and replace the record by what they show here."""
    seen = program().measure(program().ROOMS)
    RECORD.write_text(json.dumps(dict(sorted(seen.items())), indent=1) + "\n", "utf-8")


def recorded() -> dict[str, Numbers]:
    """Return what every room showed when it was recorded."""
    rooms: dict[str, Numbers] = json.loads(RECORD.read_text("utf-8"))
    return rooms


def render() -> Iterator[tuple[Path, str]]:
    """Yield the page in each language."""
    for language in WORDS:
        yield in_language("experiments/36-compositions/MUSEUM", language), page(language)
