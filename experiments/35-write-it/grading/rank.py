"""One rank: it meets the other, runs an oracle, then what was written, and says how it ended."""

from __future__ import annotations

import gc
import importlib.util
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from grading import RANKS
from grading.demands import WrongError
from grading.grade_linears import linears
from grading.grade_replicas import replicas
from grading.grade_unit import unit
from grading.watch import Watch

PARTS: dict[str, Callable[[ModuleType, int, Watch], list[str]]] = {
    "linears": linears, "replicas": replicas, "unit": unit,
}  # fmt: skip


def graded(
    rank: int, part: str, folder: Path, meeting: str, tell: Callable[[str, int], None]
) -> tuple[str, str]:
    """Return how it ended, in one word and in more; of what is right, what it sent and held."""
    gc.freeze()  # what is imported by now is never garbage: looking for that is quicker so
    torch.set_num_threads(1)
    one_thread()
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=RANKS)
    try:
        lines = PARTS[part](written(folder, part), rank, Watch(tell))
    except NotImplementedError as missing:
        return "missing", f"{missing}" if str(missing) else where(missing, folder)
    except WrongError as wrong:
        return "wrong", str(wrong)
    except BaseException as raised:  # the learner's own, SystemExit too: it is shown
        return "raised", where(raised, folder)
    return "right", "\n".join(lines)


def one_thread() -> None:
    """Have gloo work in one thread, in order; `init_process_group` takes no options of gloo's."""

    class Gloo(c10d.ProcessGroupGloo):
        def __init__(self, store: Any, rank: int, size: int, timeout: Any, **later: Any) -> None:
            options = self._Options()
            options._devices, options._timeout = [self.create_default_device()], timeout
            options._threads = 1
            super().__init__(store, rank, size, options)

    c10d.ProcessGroupGloo = Gloo


def where(raised: BaseException, folder: Path) -> str:
    """Return an exception in a line, with the last line of written code that it passed."""
    frames = [
        f for f in traceback.extract_tb(raised.__traceback__) if Path(f.filename).parent == folder
    ]
    at = (
        f"{Path(frames[-1].filename).name}:{frames[-1].lineno}, in {frames[-1].name}: "
        if frames
        else ""
    )
    message = str(raised).partition("\nException raised from")[0].strip()
    notes = "".join(f". {note}" for note in getattr(raised, "__notes__", []))
    return f"{at}{type(raised).__name__}: {message}{notes}"


def written(folder: Path, name: str) -> ModuleType:
    """Import a file that was written."""
    spec = importlib.util.spec_from_file_location(name, folder / f"{name}.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # where a dataclass looks for its own
    spec.loader.exec_module(module)
    return module
