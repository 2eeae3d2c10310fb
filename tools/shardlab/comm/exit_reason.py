"""Why a rank ended, in words: its own reason for torchrun's summary, and its exit code's meaning.

torchrun prints a summary of some twenty lines where a rank fails, after whatever that rank printed.
It ends with the reason that the rank left in a file, and without one with a link.
"""

import json
import os
import signal
import time
from pathlib import Path

FILE = "TORCHELASTIC_ERROR_FILE"  # torchrun names a file for each rank


def report_reason(reason: str) -> None:
    """Leave the reason why this rank ends, so that torchrun's summary ends with it.

    `record` of torch.distributed.elastic.multiprocessing.errors writes the same file for an
    exception, with its traceback. A refused setting has none that helps. Without torchrun nothing
    happens.

    Args:
        reason: in a sentence.
    """
    if file := os.environ.get(FILE):
        details = {"py_callstack": reason, "timestamp": str(int(time.time()))}
        message = {"message": {"message": reason, "extraInfo": details}}
        Path(file).write_text(json.dumps(message), "utf-8")


def describe_exit(code: int | None) -> str:
    """Return how a process ended that said nothing, after "the process" or "rank 1".

    Args:
        code: its exit code, negative for a signal; None if it still runs.
    """
    if code is None:
        return "closed its pipe"
    if code >= 0:
        return f"ended with status {code}"
    name = signal.Signals(-code).name
    return f"was killed by {name}" + (" (out of memory?)" if name == "SIGKILL" else "")
