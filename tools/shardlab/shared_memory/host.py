"""Which host and process this is: what ranks show each other before they share memory."""

from __future__ import annotations

import json
import os
import platform
import uuid
from dataclasses import asdict, dataclass
from pathlib import Path

_BOOT = Path("/proc/sys/kernel/random/boot_id")
_STATES = {"T": "stopped", "t": "stopped by a debugger", "Z": "dead", "D": "waiting for a disk"}


@dataclass(frozen=True)
class Card:
    """A rank's host and process.

    Attributes:
        host: its name, for errors.
        boot: what only this host has, since it last started.
        pid: the process, for errors.
    """

    host: str
    boot: str
    pid: int

    @classmethod
    def own(cls) -> Card:
        """Return the card of this process."""
        boot = _BOOT.read_text().strip() if _BOOT.exists() else f"{uuid.getnode():x}"
        return cls(platform.node(), boot, os.getpid())

    def same_host(self, other: Card) -> bool:
        """Whether both processes run on one host."""
        return (self.host, self.boot) == (other.host, other.boot)

    def fields(self) -> dict[str, str | int]:
        """Return the attributes by name."""
        return asdict(self)


def state_of(pid: int) -> str:
    """Say how the process is, in a word: "alive" where the system doesn't tell more."""
    try:
        # The second field of stat is the program's name, in parentheses, and may hold anything.
        after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2]
    except OSError:
        return "alive"
    return _STATES.get(after_name.split()[0], "alive")


def parse(record: bytes) -> dict[str, str | int]:
    """Read what a rank wrote into the store."""
    fields: dict[str, str | int] = json.loads(record)
    return fields
