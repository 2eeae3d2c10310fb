"""Which host and process a rank is, as ranks show each other through their store."""

from __future__ import annotations

import json
import os
import platform
import uuid
from pathlib import Path
from typing import NamedTuple

_BOOT = Path("/proc/sys/kernel/random/boot_id")
_STATES = {"T": "stopped", "t": "stopped", "Z": "dead", "X": "dead"}


class Card(NamedTuple):
    """A rank's host and process.

    Attributes:
        host: its name.
        boot: what only this host has, since it last started.
        pid: the process.
    """

    host: str
    boot: str
    pid: int

    @classmethod
    def own(cls) -> Card:
        """Return the card of this process."""
        boot = _BOOT.read_text().strip() if _BOOT.exists() else f"{uuid.getnode():x}"
        return cls(platform.node(), boot, os.getpid())

    @classmethod
    def read(cls, text: bytes | str) -> Card:
        """Return the card that `write` wrote."""
        return cls(*json.loads(text))

    def write(self) -> str:
        """Return the card as text."""
        return json.dumps(self)

    def same_host(self, other: Card) -> bool:
        """Whether both processes run on one host."""
        return (self.host, self.boot) == (other.host, other.boot)


def state_of(pid: int) -> str:
    """Say how a process of this host is: "alive", "stopped" or "dead"."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return "dead"
    except PermissionError:  # another user's
        return "alive"
    try:
        # The second field of stat is the program's name, in parentheses, and may hold anything.
        after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2]
    except OSError:  # a system without /proc
        return "alive"
    return _STATES.get(after_name.split()[0], "alive")
