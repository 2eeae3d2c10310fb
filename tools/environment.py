"""Fills the virtual environment, a layer at a time; `make` runs this before what needs a layer.

    python tools/environment.py {check,bench,test,hf} --venv .venv --torch torch==2.13.0

A layer is what its lock in .ci/lock names, to the byte. torch stands in no lock, since every index
has builds of its own. pip shows its progress on a terminal and nothing elsewhere; what goes wrong
is said in one line, and pip's own account is in pip.log in the environment.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import shlex
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
LOCKS = ROOT / ".ci" / "lock"
# In the order they lie on each other, with the megabytes that are downloaded.
LAYERS = {
    "check": ("the checker", 10),
    "bench": ("what the bench needs", 90),
    "test": ("what the tests, the site and the linters need", 110),
    "hf": ("transformers, against which CI compares", 25),
}
NEIGHBOUR = "megatron-core"  # the one locked package with a compiled part and few wheels
_LOST = re.compile(r"Retrying|[Cc]onnection|timed out|ProxyError|SSLError")
_MISMATCH = re.compile(r"DO NOT MATCH THE HASHES.*\n\s+(\S+).*\n(?:.*\n)*?\s+Got\s+(\w+)")
HERE = (
    "import sysconfig; print('Python', sysconfig.get_python_version(), 'on', "
    "sysconfig.get_platform())"
)


class SetUpError(Exception):
    """What stops the set-up, in one line."""


@dataclass
class Environment:
    """A virtual environment, and the pip in it."""

    folder: Path
    torch: str

    @property
    def python(self) -> str:
        """The environment's interpreter."""
        return str(self.folder / "bin" / "python")

    def make(self) -> None:
        """Make the environment, unless it was made whole before."""
        made = self.folder / ".made"
        if made.exists() and Path(self.python).exists():
            return
        say(f"setting up {self.folder} (once)")
        done = subprocess.run(
            [sys.executable, "-m", "venv", str(self.folder)],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode and "ensurepip" in done.stdout:
            raise SetUpError(
                f"{sys.executable} can't make an environment, it lacks ensurepip; on Debian and "
                "Ubuntu: apt-get install python3-venv"
            )
        if done.returncode:
            raise SetUpError(f"can't make {self.folder}: {last_line(done.stdout + done.stderr)}")
        newer = newer_than_tried()
        if newer:
            say(newer)
        made.touch()

    def fill(self, layer: str) -> None:
        """Install `layer`, unless what stands in it is installed already."""
        stamp, state = self.folder / f".{layer}", self._state(layer)
        if stamp.exists() and stamp.read_text("utf-8") == state:
            return
        lock = LOCKS / f"{layer}.txt"
        if layer == "bench":
            self._demand_wheels(lock)
        what, megabytes = LAYERS[layer]
        say(f"installing {what} (about {megabytes} MB)")
        self._install(what, "--no-deps", "--require-hashes", "--requirement", str(lock))
        if layer == "check":
            here = ["--no-deps", "--no-build-isolation", "--editable", str(ROOT)]
            self._install("this repository", *here)
        if layer == "bench":
            say(
                f"installing torch ({self.torch}; 200 MB for a CPU build, 3 GB with CUDA: "
                "TORCH=… chooses)"
            )
            self._install("torch", *shlex.split(self.torch))
        stamp.write_text(state, "utf-8")

    def _state(self, layer: str) -> str:
        """Return what changes where the layer must be installed anew."""
        of = {"check": (ROOT / "pyproject.toml").read_bytes(), "bench": self.torch.encode()}
        lock = (LOCKS / f"{layer}.txt").read_bytes()
        return hashlib.sha256(lock + of.get(layer, b"")).hexdigest()

    def _demand_wheels(self, lock: Path) -> None:
        """Say what this Python can't have before hundreds of megabytes are on their way."""
        here = self._run("-c", HERE).stdout.strip()
        requirement, *options = shlex.split(self.torch) or [""]
        if self._has_wheel(requirement, options) is False:
            raise SetUpError(
                f"{requirement} has no wheel for {here} on your index; choose another Python "
                "(make PYTHON=python3.13 …) or another build (TORCH=…)"
            )
        (pinned,) = re.findall(rf"^{NEIGHBOUR}==[\w.]+", lock.read_text("utf-8"), re.MULTILINE)
        if self._has_wheel(pinned, []) is False:
            say(
                f"note: {pinned} has no wheel for {here}: pip compiles it, with this machine's C++ "
                "compiler and Python's headers (make PYTHON=python3.13 … where 3.13 has one)"
            )

    def _has_wheel(self, requirement: str, options: list[str]) -> bool | None:
        """Return whether the index has that wheel for this Python; None where it doesn't say."""
        name, exact, version = requirement.partition("==")
        if not exact:
            return None
        asked = self._run("-m", "pip", "index", "versions", name, "--only-binary=:all:", *options)
        listed = re.search(r"^Available versions: (.*)$", asked.stdout, re.MULTILINE)
        if listed:
            versions = listed[1].split(", ")
            return version in versions or version in {each.split("+")[0] for each in versions}
        return (
            False
            if "No matching distribution" in asked.stderr and not _LOST.search(asked.stderr)
            else None
        )

    def _run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self.python, *arguments], capture_output=True, text=True, check=False
        )

    def _install(self, what: str, *arguments: str) -> None:
        """Run pip: its bars on a terminal, silence elsewhere, one line where it fails."""
        command = [self.python, "-m", "pip", "install", "--disable-pip-version-check"]
        command += ["--log", str(self.folder / "pip.log"), *arguments]
        if not sys.stdout.isatty():
            command += ["--quiet", "--progress-bar=off"]
        heard: list[str] = []
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, errors="replace") as pip:
            assert pip.stderr
            for line in pip.stderr:
                if "Retrying" in line and not any("Retrying" in each for each in heard):
                    say("the package index doesn't answer; pip asks again, a few times")
                heard.append(line)
        if pip.returncode:
            raise SetUpError(
                f"{what} can't be installed: {reason(''.join(heard))} "
                f"(all that pip said: {self.folder / 'pip.log'})"
            )


def newer_than_tried() -> str:
    """Return a line for a Python newer than those that pyproject.toml names; else nothing."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    found = re.findall(r"Python :: 3\.(\d+)", "\n".join(project["classifiers"]))
    newest = max(int(minor) for minor in found)
    if sys.version_info[:2] <= (3, newest):
        return ""
    here = ".".join(map(str, sys.version_info[:2]))
    return f"note: Python {here} is newer than the newest that Shardbook is tried with, 3.{newest}"


def reason(heard: str) -> str:
    """Return what pip said, in one line, and what to do."""
    if found := _MISMATCH.search(heard):
        return (
            f"your index's {found[1]} (sha256 {found[2][:12]}…) hasn't the bytes that the lock "
            "names; use an index that serves what was published, or find out who changed this"
        )
    if _LOST.search(heard):
        return "the package index doesn't answer; see `pip config list` for whom pip asks"
    if found := re.search(r"No matching distribution found for (\S+)", heard):
        return f"your index has no {found[1]} that this Python can use"
    return last_line(heard)


def last_line(heard: str) -> str:
    """Return the last thing that a program complained of."""
    lines = [line.strip() for line in heard.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR:")]
    return (errors or lines or ["it doesn't say why"])[-1].removeprefix("ERROR: ")


def say(line: str) -> None:
    """Print a line at once, before what takes its time."""
    print(line, flush=True)


def main() -> None:
    """Fill the layers up to the one asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("layer", choices=list(LAYERS))
    parser.add_argument("--venv", type=Path, default=Path(".venv"))
    parser.add_argument("--torch", default="torch")
    asked = parser.parse_args()
    environment = Environment(asked.venv, asked.torch)
    try:
        environment.make()
        for layer in LAYERS:
            environment.fill(layer)
            if layer == asked.layer:
                return
    except KeyboardInterrupt:
        sys.exit(130)
    except (SetUpError, OSError) as fault:
        sys.exit(f"error: {fault}")


if __name__ == "__main__":
    main()
