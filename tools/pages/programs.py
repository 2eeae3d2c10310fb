"""The labs' programs: import one, or run it as a learner does and return what it prints."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

from pages.blocks import ROOT, PageError

FFN = ROOT / "experiments" / "35-ffn-by-hand" / "ffn.py"
TRAIN = ROOT / "experiments" / "35-three-d" / "train.py"
ROUTE = ROOT / "experiments" / "36-experts" / "route.py"
LIMIT = 600  # seconds, after which a program hangs


def script(path: Path) -> ModuleType:
    """Import a lab's program, which finds its neighbours as it does when it is run."""
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    return importlib.import_module(path.stem)


def run(path: Path, *arguments: str, ranks: int = 0, **environment: str) -> str:
    """Run a lab's program, with torchrun if `ranks` are given; return what it prints."""
    launch = ["-m", "torch.distributed.run", f"--nproc-per-node={ranks}"] if ranks else []
    done = subprocess.run(
        [sys.executable, *launch, str(path), *arguments],
        capture_output=True,
        check=False,  # below, with what was printed
        text=True,
        encoding="utf-8",
        timeout=LIMIT,
        env={**os.environ, "PYTHONIOENCODING": "utf-8", "OMP_NUM_THREADS": "1", **environment},
    )
    if done.returncode:
        raise PageError(f"{path.relative_to(ROOT)} failed:\n{done.stdout}{done.stderr}")
    return done.stdout
