"""What a run was measured on, said in its file."""

import os
import platform
import re
import shutil
import subprocess
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from costlab.record.options import Settings

ROOT = Path(__file__).parents[3]
_PACKAGES = ("torch", "megatron-core", "numpy")
# What makes another machine of it: results that differ in one of these are not of one run.
MACHINE = ("processor", "cores", "gpus", "links", "driver", "nccl", "torch", "megatron-core")
_SECONDS = 10.0  # for a tool that may hang, as nvidia-smi does where a driver is ill


def provenance(settings: Settings, arguments: list[str], *, ranks: int | None) -> dict[str, Any]:
    """Return processor, cores, pinning, load, GPUs and their links, versions, commit, command.

    The host's name is left out: a result may be published.

    Args:
        settings: of the run.
        arguments: of the command line.
        ranks: that torchrun launched, or None where each section starts its own.
    """
    facts: dict[str, Any] = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": " ".join(["tools/bench", *(_public(argument) for argument in arguments)]),
        "seed": settings.seed,
        "device": "cuda, and cpu where a row says so" if settings.device == "cuda" else "cpu",
        "backend": "nccl on cuda, gloo on cpu" if settings.device == "cuda" else "gloo",
        "launcher": "own processes" if ranks is None else f"torchrun, {ranks} ranks",
        "processor": _processor(),
        "cores": cores(),
        "cores-online": os.cpu_count() or 1,
        "pinning": _pinning(),
        "memory-bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "load-before": round(os.getloadavg()[0], 2),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "python": platform.python_version(),
        "commit": _output("git", "rev-parse", "HEAD"),
        "clean": _output("git", "status", "--porcelain", "--untracked-files=no") == "",
    }
    for package in _PACKAGES:
        try:
            facts[package] = version(package)
        except PackageNotFoundError:
            facts[package] = "not installed"
    return facts | (_gpus() if settings.device == "cuda" else {})


def uncommitted(*folders: str) -> str:
    """Return what in some folders of the repository differs from the commit, or "unknown"."""
    return _output("git", "status", "--porcelain", "--", *folders)


def cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _pinning() -> str:
    """Say which cores the ranks may run on; among those the scheduler moves them."""
    if not hasattr(os, "sched_getaffinity"):
        return "unknown"
    allowed = sorted(os.sched_getaffinity(0))
    limit = _quota()
    return f"ranks unpinned on cores {','.join(map(str, allowed))}{limit}; one thread a rank"


def _quota() -> str:
    """Say how much of the cores a container leaves."""
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
    except (OSError, ValueError):
        return ""
    return "" if quota == "max" else f", limited to {int(quota) / int(period):g} cores' time"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or "unknown"
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _gpus() -> dict[str, Any]:
    """Return what driver and torch say of the GPUs: names, versions, and how they are linked."""
    import torch

    rows = _output("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader")
    pairs = [row.split(", ") for row in rows.splitlines() if ", " in row]
    facts: dict[str, Any] = {
        "gpus": [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())],
        "cuda": torch.version.cuda or "none",
        "driver": pairs[0][1] if pairs else "unknown",
    }
    if torch.distributed.is_nccl_available():
        facts["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))  # type: ignore[no-untyped-call]
    return facts | {"links": links(_output("nvidia-smi", "topo", "-m"))}


def links(matrix: str) -> list[str]:
    """Return the links between GPUs from the driver's topology matrix, as "GPU0-GPU1: NV18"."""
    lines = (re.sub(r"\x1b\[[0-9;]*m", "", line).split() for line in matrix.splitlines())
    rows = [row for row in lines if row and re.fullmatch(r"GPU\d+", row[0]) and "X" in row]
    return [
        f"{row[0]}-GPU{peer}: {link}"
        for row in rows
        for peer, link in enumerate(row[1 : 1 + len(rows)])
        if peer > int(row[0][3:])
    ]


def _public(argument: str) -> str:
    """Return an argument without the folders of an absolute path."""
    return Path(argument).name if argument.startswith("/") else argument


def _output(*command: str) -> str:
    """Return what a command printed, or "unknown"."""
    if shutil.which(command[0]) is None:
        return "unknown"
    try:
        done = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired):
        return "unknown"
    return done.stdout.strip() if done.returncode == 0 else "unknown"
