"""Start the ranks of a program, as torchrun would, and hear from each how it ended.

torchrun ends the others as soon as one fails; here what those say is what is asked for.
"""

import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from tempfile import TemporaryFile

from costlab.gpu_report.report import tell


@dataclass(frozen=True)
class Ended:
    """How a rank ended.

    Attributes:
        status: its exit status, negative for a signal; None if it had to be killed.
        output: all that it printed.
        stacks: of a rank that was late, where each thread stood.
    """

    status: int | None
    output: str
    stacks: str = ""

    @property
    def last(self) -> str:
        """Its last line."""
        return (self.output.strip().splitlines() or ["(nothing)"])[-1]


def run(count: int, command: list[str], *, limit: float) -> list[Ended]:
    """Run `command` (after the interpreter) as `count` ranks of this host.

    Args:
        limit: seconds for all of them together.
    """
    import torch.distributed as dist

    # Held here, as by torchrun: rank 0 may end before the others have read what became of it.
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)  # type: ignore[attr-defined]
    shared = os.environ | {
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(store.port), "OMP_NUM_THREADS": "1",
        "PYTHONFAULTHANDLER": "1",
        "TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RESTART_COUNT": "0",
        "WORLD_SIZE": str(count), "LOCAL_WORLD_SIZE": str(count),
    }  # fmt: skip
    files = [TemporaryFile() for _ in range(count)]  # noqa: SIM115  read below
    processes = [
        subprocess.Popen(
            [sys.executable, *command], stdout=file, stderr=subprocess.STDOUT,
            env=shared | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
        )
        for rank, file in enumerate(files)
    ]  # fmt: skip
    ends, ended = time.monotonic() + limit, []
    for process, file in zip(processes, files, strict=True):
        try:
            status: int | None = process.wait(max(0.0, ends - time.monotonic()))
        except subprocess.TimeoutExpired:
            status = None
        length = os.fstat(file.fileno()).st_size
        if status is None:
            _end_with_its_stacks(process)
        file.seek(0)
        printed = file.read()
        output, stacks = (
            part.decode(errors="replace") for part in (printed[:length], printed[length:])
        )
        ended.append(Ended(status, output, stacks))
        file.close()
    return ended


def _end_with_its_stacks(process: subprocess.Popen[bytes]) -> None:
    """End a rank that is late; Python's fault handler prints first where each thread stands."""
    process.send_signal(signal.SIGABRT)
    try:
        process.wait(5.0)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def fault(name: str, ended: list[Ended]) -> bool:
    """Tell which rank of some failed, if one did, and print the end of what it said."""
    worst = next((rank for rank in ended if rank.status != 0), None)
    if worst:
        print(worst.output[-4000:], worst.stacks[:6000], sep="\n")
        how = "it ran out of time" if worst.status is None else f"status {worst.status}"
        tell(name, f"{how}: {worst.last}", ok=False)
    return worst is not None


def counts(device: str) -> list[tuple[int, bool]]:
    """Return how many ranks to try, and whether they share a GPU: 1, 2, 4 … all GPUs.

    One GPU is shared by two, so that what needs two ranks is tried at all; so on a CPU are 1 to 4.
    """
    if device == "cpu":
        return [(1, False), (2, False), (4, False)]
    import torch

    devices = torch.cuda.device_count()
    sizes = sorted({1 << power for power in range(devices.bit_length())} | {devices})
    return [(size, False) for size in sizes if size] + ([(2, True)] if devices == 1 else [])
