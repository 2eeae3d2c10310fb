"""A fault in one line, and the status that the bench ends with."""

from __future__ import annotations

from costlab.judge.claims import ClaimsError
from costlab.record.result import ResultError
from costlab.run.launch import LaunchError
from costlab.run.measuring import RunInterruptedError
from costlab.sections.plan import SectionError

BROKE_OFF, MISUSE, INTERRUPTED = 1, 2, 130


def line_of(fault: Exception) -> tuple[str, int]:
    """Return what to say of an exception that ended the bench, and the status to exit with."""
    if isinstance(fault, SectionError):
        return str(fault), MISUSE
    if isinstance(fault, RunInterruptedError):
        return str(fault), INTERRUPTED
    if isinstance(fault, ResultError | LaunchError | ClaimsError):
        return str(fault), BROKE_OFF
    if isinstance(fault, OSError):
        what = fault.filename or "the output"
        return f"{what} can't be read or written: {fault.strerror or fault}", BROKE_OFF
    said = " ".join(f"{type(fault).__name__}: {fault}".split())[:300]
    return f"a fault of the bench: {said} (set SHARDBOOK_TRACEBACK=1 and report it)", BROKE_OFF
