"""Start the stages one after another, each within its time, and write what they found.

Standard library alone: the image of a GPU machine is what it is.
"""

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path
from typing import Any

from costlab.gpu_report.report import FILE, OUT, SECONDS, SKIPPED, STAGES, Stage, markdown, read

ROOT = Path(__file__).parents[3]
TAIL = 200 * 1024  # bytes of a log that are kept: its end says why
LINES = 60  # of the end of an output that the report shows
LEAST = 20  # seconds: with fewer left a stage isn't begun
PASSED, FAILED, LATE, NOT_RUN = "passed", "failed", "out of time", "not run"
MISSING = "skipped"


def main(arguments: list[str] | None = None) -> int:
    """Run the stages that are asked for and not done; return 1 if any failed, 2 for bad options."""
    options = _options(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    report = _begun(options)
    ends = time.monotonic() + options.budget
    with tempfile.TemporaryDirectory(prefix="gpu-report-") as scratch:
        environment = _environment(options.wheels, Path(scratch))
        for stage in STAGES:
            wanted = options.stage or [stage.name for stage in STAGES]
            done = report["stages"].get(stage.name, {}).get("state") in (PASSED, FAILED)
            if stage.name not in wanted or (done and not options.stage):
                continue
            remaining = min(stage.limit, ends - time.monotonic())
            report["stages"][stage.name] = _run(
                stage, remaining, options, environment, Path(scratch, "rows")
            )
            _write(report, options.out)
    _write(report, options.out)
    states = [report["stages"].get(stage.name, {}).get("state", NOT_RUN) for stage in STAGES]
    print(f"\n{options.out / 'report.md'}")
    return int(any(state in (FAILED, LATE) for state in states))


def _run(
    stage: Stage, limit: float, options: argparse.Namespace, environment: dict[str, str], file: Path
) -> dict[str, Any]:
    """Run one stage; return what is known of it, however it ended."""
    print(f"\n== {stage.name}: {stage.says}", flush=True)
    if limit < LEAST:
        print("not run: the budget is spent")
        return {"state": NOT_RUN, "seconds": 0, "rows": []}
    file.unlink(missing_ok=True)
    log = options.out / f"{stage.name}.log"
    began = time.monotonic()
    with log.open("wb") as output:
        process = subprocess.Popen(
            stage.command(options.device),
            cwd=ROOT,
            stdout=output,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            env=environment | {FILE: str(file), SECONDS: str(int(limit)), OUT: str(options.out)},
        )
        try:
            status: int | None = process.wait(limit)
        except subprocess.TimeoutExpired:
            status = None
        finally:
            _end(process)
    text = log.read_bytes()[-TAIL:].decode(errors="replace")
    log.write_text(text, encoding="utf-8")
    rows_read = read(file)
    wrong = [row for row in rows_read if row["ok"] is False]
    if status == SKIPPED:
        state = MISSING
    else:
        state = LATE if status is None else FAILED if status or wrong or not rows_read else PASSED
    end = {}
    if state != PASSED or not stage.logged:
        end = {"tail": "\n".join(text.splitlines()[-LINES:])}
    if not stage.logged:
        log.unlink()
    seconds = round(time.monotonic() - began, 1)
    for row in wrong:
        print(f"FAILED {row['what']}: {row['seen']}")
    print(f"{state} in {seconds} s, {len(rows_read)} rows", flush=True)
    return {"state": state, "status": status, "seconds": seconds, "rows": rows_read} | end


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a stage, and whatever it has started."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    finally:
        process.wait()


def _environment(wheels: Path | None, scratch: Path) -> dict[str, str]:
    """Return the stages' environment: our rooms, the tests, and the wheels laid out."""
    paths = [str(ROOT / "tools"), str(ROOT)]
    if wheels:
        site = scratch / "site"
        for wheel in sorted(wheels.glob("*.whl")):
            with zipfile.ZipFile(wheel) as content:
                content.extractall(site)
        paths.append(str(site))
    if before := os.environ.get("PYTHONPATH"):
        paths.append(before)
    return dict(os.environ) | {"PYTHONPATH": os.pathsep.join(paths), "PYTHONUNBUFFERED": "1"}


def _begun(options: argparse.Namespace) -> dict[str, Any]:
    """Return the report that the folder holds, to go on with, or a new one.

    Raises:
        SystemExit: the folder holds the report of another commit or device.
    """
    now = {"commit": _commit(), "device": options.device}
    file = options.out / "report.json"
    if not file.exists():
        return now | {"stages": {}}
    try:
        before: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        same = {key: before[key] for key in now} == now
    except (ValueError, KeyError, TypeError):
        _refuse(f"{file} is no report: choose another --out")
    if not same:
        _refuse(
            f"{file} is of commit {before['commit'][:9]} on {before['device']}, this is "
            f"{now['commit'][:9]} on {now['device']}: choose another --out"
        )
    return before


def _refuse(words: str) -> None:
    print(f"error: {words}", file=sys.stderr)
    raise SystemExit(2)


def _commit() -> str:
    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=40"]
    try:
        return subprocess.run(
            command, capture_output=True, text=True, check=True, timeout=30
        ).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return "unknown"


def _write(report: dict[str, Any], out: Path) -> None:
    """Write both files, each whole or not at all."""
    texts = {"report.json": json.dumps(report, indent=1), "report.md": markdown(report)}
    for name, text in texts.items():
        whole = out / f".{name}"
        whole.write_text(text, encoding="utf-8")
        whole.replace(out / name)


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="tools/gpu-report",
        description="Try everything that needs a GPU; write report.md, report.json and a few logs. "
        "Started again, it goes on with what it hasn't done.",
    )
    parser.add_argument("--budget", type=_seconds, default=28 * 60, help="in all, as 28m or 900s")
    parser.add_argument(
        "--stage", action="append", choices=[stage.name for stage in STAGES],
        help="this one alone, done or not; may be given more than once",
    )  # fmt: skip
    parser.add_argument("--out", type=Path, default=ROOT / "gpu-report", help="(gpu-report/)")
    parser.add_argument(
        "--device", choices=("cuda", "cpu"), default="cuda",
        help="cpu: the processor stands in, to try the report itself",
    )  # fmt: skip
    parser.add_argument("--wheels", type=_folder, help="a folder of wheels that Python here lacks")
    options = parser.parse_args(arguments)
    options.out = options.out.resolve()
    return options


def _seconds(text: str) -> int:
    match = re.fullmatch(r"(\d+)(m|s|)", text)
    if not match:
        raise argparse.ArgumentTypeError(f"{text!r} is no time: write 28m or 900s")
    return int(match[1]) * (60 if match[2] == "m" else 1)


def _folder(text: str) -> Path:
    folder = Path(text).resolve()
    if not folder.is_dir():
        raise argparse.ArgumentTypeError(f"there is no folder {text}")
    return folder
