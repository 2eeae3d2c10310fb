"""The checker beside rumdl and markdownlint-cli2, on the same files, in the same run, in turns.

`make benchmark` runs it and rewrites the measured table of docs/reference/speed.md (and .es.md).
"""

import os
import platform
import shutil
import statistics
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from notelab.book.relock import relock
from notelab.book.workbook import CheckSession, open_lab
from notelab.cache import DiskCache
from notelab.lab import lock as lock_file
from notelab.sources.store import default_root
from pages.blocks import LANGUAGES, ROOT, fill_blocks, in_language, read_words, table
from pages.faults.planting import LAB
from tests.notelab.benchmark import corpus
from tests.notelab.real import real_bench
from tests.running import run_program

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(1800)]

ROUNDS = 7
MARKDOWNLINT = "markdownlint-cli2@0.18.1"
RUMDL = "rumdl==0.3.0"
WHO = ("ours", "rumdl", "markdownlint")
Runs = dict[str, list[float]]


def timed(command: list[str], folder: Path, environment: dict[str, str]) -> float:
    start = time.perf_counter()
    done = run_program(command, cwd=folder, env=environment)
    seconds = time.perf_counter() - start
    assert done.returncode in (0, 1), done.stderr[-2000:]
    if "shardbook" in command[0]:
        assert done.returncode == 0, done.stdout[:3000]
    return seconds


def spread(values: list[float]) -> str:
    low, high = min(values), max(values)
    return f"{statistics.median(values):.2f} s ({low:.2f}–{high:.2f})"


def test_a_thousand_notes_and_one_against_two_linters(tmp_path: Path) -> None:
    npm, node = shutil.which("npm"), shutil.which("node")
    if not npm or not node:
        pytest.skip("needs npm, for markdownlint-cli2")
    linter = tmp_path / "linter"
    linter.mkdir()
    subprocess.run(
        [
            npm, "install", "--silent", "--no-audit", "--no-fund", "--prefix", str(linter),
            MARKDOWNLINT,
        ],
        check=True,
    )  # fmt: skip
    subprocess.run([sys.executable, "-m", "venv", str(linter / "venv")], check=True)
    rumdl = linter / "venv" / "bin" / "rumdl"
    subprocess.run([rumdl.with_name("python"), "-m", "pip", "install", "-q", RUMDL], check=True)
    real = ROOT / LAB
    book = open_lab(real, real_bench())
    files = [
        file for file in book.evidence.list_files() if file.outline and file.outline.structured
    ]
    assert len(files) >= corpus.FILES, "the real lab cites too few files"
    lab = corpus.write(tmp_path / "book", real, files)
    source = Path(os.environ.get("SHARDBOOK_CACHE") or default_root())
    cache = tmp_path / "cache"
    shutil.copytree(source, cache, ignore=shutil.ignore_patterns("memo", "git"))
    bench = CheckSession(DiskCache(None), real_bench().library)
    (lab / "citations.lock").write_text(lock_file.dump(relock(open_lab(lab, bench)).lock), "utf-8")

    environment = {**os.environ, "SHARDBOOK_CACHE": str(cache)}
    # Compiled modules are cached, as on most machines.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    shardbook = [str(Path(sys.executable).parent / "shardbook"), "check", "--offline"]
    entry = linter / "node_modules/markdownlint-cli2/markdownlint-cli2-bin.mjs"
    config = tmp_path / "book" / ".markdownlint-cli2.jsonc"
    config.write_text('{"noProgress": true}')
    plain = [str(rumdl), "check", "--no-cache"]
    markdownlint = [node, str(entry)]
    folder = tmp_path / "book"
    cold = timed(shardbook, folder, environment)
    note, real_note = "experiments/99-many/note-0500.md", f"{LAB}/fsdp-prefetch.md"
    timed([*shardbook, real_note], ROOT, environment)  # fills the cache
    cases = {
        "many": (shardbook, [*plain, "experiments"], [*markdownlint, "experiments/**/*.md"],
                 folder),
        "one": ([*shardbook, note], [*plain, note], [*markdownlint, note], folder),
        "mine": ([*shardbook, real_note], [*plain, real_note], [*markdownlint, real_note], ROOT),
    }  # fmt: skip
    runs: dict[str, Runs] = {name: {who: [] for who in WHO} for name in cases}
    for _ in range(ROUNDS):
        for name, (*commands, place) in cases.items():
            for who, command in zip(WHO, commands, strict=True):
                runs[name][who].append(timed(command, place, environment))
    facts = {
        "rounds": ROUNDS, "day": f"{datetime.now(UTC):%Y-%m-%d}", "cores": os.cpu_count(),
        "machine": f"{platform.system()} {platform.machine()}", "python": platform.python_version(),
        "linters": f"{RUMDL.replace('==', ' ')}, {MARKDOWNLINT.replace('@', ' ')}",
    }  # fmt: skip
    for language in LANGUAGES:
        words = read_words("speed")[language]
        rows = [_format_row(words[name], run) for name, run in runs.items()]
        rows.append([words["cold"], f"{cold:.1f} s", "–", "–", "–", "–"])
        text = f"{table(words['head'], '<>>>>>', rows)}\n\n{words['about'].format(**facts)}"
        print(f"\n{text}")
        page = in_language("docs/reference/speed", language)
        page.write_text(fill_blocks(page, {"measured": text}), "utf-8")
    assert statistics.median(compute_ratios(runs["many"], "markdownlint")) <= 1 / 6
    assert statistics.median(compute_ratios(runs["mine"], "markdownlint")) <= 0.8


def compute_ratios(run: Runs, to: str) -> list[float]:
    return sorted(
        our_seconds / theirs_seconds
        for our_seconds, theirs_seconds in zip(run["ours"], run[to], strict=True)
    )


def _format_row(name: str, run: Runs) -> list[str]:
    cells = [name, *(spread(run[who]) for who in WHO)]
    for to in WHO[1:]:
        ratios = compute_ratios(run, to)
        cells.append(f"{statistics.median(ratios):.2f}× ({ratios[0]:.2f}–{ratios[-1]:.2f})")
    return cells
