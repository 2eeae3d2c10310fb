"""Runs the README's two commands as a new user does: a bare clone, an empty home, any Python.

    python3 -m tests.fresh                          every case; of `make test`, the set-up alone
    python3 -m tests.fresh 3.13.0 blanks            these
    python3 -m tests.fresh --full 3.11.2            with `make test` in full

A case is a Python that this machine has (`.ci/pythons --list`), or one of those below. In each,
every step must end green or with one clear line; a table of seconds and outcomes comes last.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
LIMIT_S = 3600
NOBODY = "http://127.0.0.1:9"  # refuses at once
CASES = {
    "no-index": "the set-up is tried without an index, then made with one; both checks have none",
    "no-git-host": "no git host answers",
    "blanks": "the clone's path and the home's hold blanks",
    "read-only-home": "nothing can be written in the home",
    "no-home": "HOME is not set",
}
PASSED_ON = ("PATH", "LANG", "LC_ALL", "TERM", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "TMPDIR")


@dataclass
class Step:
    """One command: its duration and its outcome."""

    seconds: float
    outcome: str

    @property
    def sound(self) -> bool:
        """Whether the command was green, or stopped with one clear line."""
        return self.outcome.startswith(("green", "one line"))


@dataclass
class Case:
    """A clone with its own home, and the fault of this case."""

    name: str
    python: str
    folder: Path
    steps: dict[str, Step] = field(default_factory=dict)

    def run(self, full: bool) -> None:
        """Clone, set up, check twice, set up the tests, and run the tests if `full` is true."""
        blank = " of mine" if self.name == "blanks" else ""
        self.clone, self.home = self.folder / f"clone{blank}", self.folder / f"home{blank}"
        self.home.mkdir()
        subprocess.run(["git", "clone", "--quiet", ROOT, self.clone], check=True)
        here = self._environment()
        away = {**here, "PIP_INDEX_URL": f"{NOBODY}/simple", "PIP_CONFIG_FILE": os.devnull}
        for name in ("PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS"):
            away.pop(name, None)
        later = here
        if self.name == "no-index":
            later = away
            self._step("set-up, no index", "check-env", away)
        self._step("set-up", "check-env", here)
        self._step("first check", "check", later)
        self._step("second check", "check", later)
        self._step("set-up of the tests", "test-env", here)
        if full:
            self._step("test", "test", later)

    def _environment(self) -> dict[str, str]:
        variables = {name: value for name, value in os.environ.items() if name in PASSED_ON}
        variables |= {
            k: v for k, v in os.environ.items() if k.startswith("PIP_") or "proxy" in k.lower()
        }
        # Without HOME a program asks who it runs as; the store shall be empty there too.
        home = "XDG_CACHE_HOME" if self.name == "no-home" else "HOME"
        variables[home] = str(self.home)
        if self.name == "no-git-host":
            variables |= {
                "GIT_CONFIG_COUNT": "1",
                "GIT_CONFIG_KEY_0": f"url.{NOBODY}/.insteadOf",
                "GIT_CONFIG_VALUE_0": "https://",
            }
        return variables

    def _step(self, title: str, target: str, environment: dict[str, str]) -> None:
        command = ["make", "--no-print-directory", f"PYTHON={self.python}", target]
        if self.name == "read-only-home":
            command = self._read_only(command)
        print(f"-- {self.name}: {title}", file=sys.stderr, flush=True)
        started = time.monotonic()
        try:
            done = subprocess.run(
                command, cwd=self.clone, env=environment, capture_output=True, text=True,
                stdin=subprocess.DEVNULL, timeout=LIMIT_S, check=False,
            )  # fmt: skip
            outcome = describe_outcome(done.returncode, done.stdout, done.stderr)
            (self.folder / f"{title}.log").write_text(done.stdout + done.stderr, "utf-8")
        except subprocess.TimeoutExpired:
            outcome = f"HANGS: nothing after {LIMIT_S} s"
        self.steps[title] = Step(time.monotonic() - started, outcome)

    def _read_only(self, command: list[str]) -> list[str]:
        """Make the home read-only for `command`; for root this needs a mount."""
        if os.geteuid() != 0:
            self.home.chmod(0o555)
            return command
        mount = 'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && exec "$@"'
        return ["unshare", "--mount", "sh", "-c", mount, str(self.home), *command]


def describe_outcome(code: int, out: str, err: str) -> str:
    """Return a command's outcome: green, one line, or a fault that no user must meet."""
    if "Traceback (most recent call last)" in out + err:
        return "TRACEBACK"
    if code == 0:
        counted = re.findall(r"^=+ (.*\d+ passed.*) =+$|^(\d+ pages, .*)$", out, re.MULTILINE)
        return f"green: {''.join(counted[-1])}" if counted else "green"
    lines = [line for line in err.splitlines() if line and not line.startswith("make: ***")]
    return f"one line: {lines[0]}" if len(lines) == 1 else f"RED: {(lines or ['?'])[-1]}"


def list_pythons() -> dict[str, str]:
    """Return this machine's Pythons by version."""
    output = subprocess.run(
        [ROOT / ".ci" / "pythons", "--list"], capture_output=True, text=True, check=True
    )
    return dict(line.split(" ", 1) for line in output.stdout.splitlines())


def format_table(cases: list[Case]) -> str:
    """Return the table of seconds, a row for each case, and the outcomes below it."""
    titles = list(dict.fromkeys(title for case in cases for title in case.steps))
    rows = [["case", *titles], ["---"] * (len(titles) + 1)]
    outcomes = []
    for case in cases:
        cells = [case.name]
        for title in titles:
            step = case.steps.get(title)
            cells.append(f"{step.seconds:.0f} s, {step.outcome.partition(':')[0]}" if step else "")
            if step and ":" in step.outcome:
                outcomes.append(f"{case.name}, {title}: {step.outcome}")
        rows.append(cells)
    return "\n".join(["| " + " | ".join(row) + " |" for row in rows] + ["", *outcomes])


def main() -> None:
    """Run the requested cases; exit 1 if a step is neither green nor one clear line."""
    pythons = list_pythons()
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("cases", nargs="*", metavar="CASE", help=", ".join([*pythons, *CASES]))
    parser.add_argument("--full", action="store_true", help="run `make test` too")
    parser.add_argument("--keep", type=Path, help="where each step's output is kept")
    options = parser.parse_args()
    names = options.cases or [*pythons, *CASES]
    for name in names:
        if name not in pythons and name not in CASES:
            parser.error(f"no case {name!r}; there are: {', '.join([*pythons, *CASES])}")
    done = []
    for name in names:
        python = pythons.get(name) or shutil.which("python3") or sys.executable
        with tempfile.TemporaryDirectory(prefix="fresh-") as folder:
            case = Case(name, python, Path(folder))
            done.append(case)
            case.run(options.full)
            if options.keep:
                folder_of_logs = options.keep / name
                folder_of_logs.mkdir(parents=True, exist_ok=True)
                for log in Path(folder).glob("*.log"):
                    shutil.copy(log, folder_of_logs)
    print(format_table(done))
    sys.exit(not all(step.sound for case in done for step in case.steps.values()))


if __name__ == "__main__":
    main()
