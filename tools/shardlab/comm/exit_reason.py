"""The reason why a rank ends, in a sentence that the program that launched it prints last.

torchrun prints a summary of some twenty lines where a rank fails, after whatever that rank printed.
It ends with the reason that the rank left in a file, and without one with a link.
"""

import json
import os
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
