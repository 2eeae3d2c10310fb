"""A rank's host, its cores and its process, as ranks tell each other through their store."""

from __future__ import annotations

import json
import os
import platform
import uuid
from pathlib import Path
from typing import NamedTuple

_BOOT = Path("/proc/sys/kernel/random/boot_id")
_STATES = {"T": "stopped", "t": "stopped", "Z": "dead", "X": "dead"}


class ProcessInfo(NamedTuple):
    """A rank's host and process.

    Attributes:
        host: the host's name.
        boot: an identifier of the host's last boot, which no other host has.
        pid: the process's identifier.
    """

    host: str
    boot: str
    pid: int

    @classmethod
    def current(cls) -> ProcessInfo:
        """Return the host and process that this code runs in."""
        boot = _BOOT.read_text().strip() if _BOOT.exists() else f"{uuid.getnode():x}"
        return cls(platform.node(), boot, os.getpid())

    @classmethod
    def from_json(cls, text: bytes | str) -> ProcessInfo:
        """Return what `to_json` wrote."""
        return cls(*json.loads(text))

    def to_json(self) -> str:
        """Return it as JSON text."""
        return json.dumps(self)

    def same_host(self, peer: ProcessInfo) -> bool:
        """Return whether both processes run on one host."""
        return (self.host, self.boot) == (peer.host, peer.boot)


def count_cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def state_of(pid: int) -> str:
    """Return the state of a process of this host: "alive", "stopped" or "dead"."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return "dead"
    except PermissionError:  # another user's
        return "alive"
    try:
        # The second field of stat is the program's name, in parentheses, and may hold anything.
        after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2]
    except OSError:  # it ended just now, or this system has no /proc
        return "dead" if Path("/proc/self").exists() else "alive"
    return _STATES.get(after_name.split()[0], "alive")
