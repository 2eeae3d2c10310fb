"""An installed distribution of exactly the pinned wheel."""

import csv
from base64 import urlsafe_b64encode
from collections.abc import Iterable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from notelab.sources import package
from notelab.sources.answers import MAX_FILE_BYTES, Answers, Refused, Source, Wanted

if TYPE_CHECKING:
    from importlib.metadata import Distribution


class InstalledPackage:
    """A distribution in this interpreter; its RECORD says which files it has and their hashes."""

    def __init__(self, distribution: "Distribution", who: str) -> None:
        """Read RECORD, and nothing else."""
        self.who = who
        self._root = Path(str(distribution.locate_file("")))
        rows = csv.reader((distribution.read_text("RECORD") or "").splitlines())
        self._hashes = {row[0]: row[1] for row in rows if len(row) >= 2}

    def names(self) -> Mapping[str, str]:
        """Return the paths that RECORD lists, each with its hash."""
        return self._hashes

    def in_order(self, names: Iterable[str]) -> list[str]:
        """Return files by name: here none is faster."""
        return sorted(names)

    def read(self, name: str) -> bytes:
        """Return the file as it was published; an edited one is refused."""
        place = self._root
        for part in name.split("/"):
            place = place / part
            if part == ".." or place.is_symlink():
                raise package.UnreadableMemberError("leads through a symbolic link; not followed")
        try:
            with place.open("rb") as stream:
                data = stream.read(MAX_FILE_BYTES + 1)
        except OSError as fault:
            raise package.UnreadableMemberError(fault.strerror or str(fault)) from None
        if len(data) > MAX_FILE_BYTES:
            raise package.UnreadableMemberError(f"above {MAX_FILE_BYTES:,} bytes; not read")
        digest = urlsafe_b64encode(sha256(data).digest()).rstrip(b"=").decode()
        if self._hashes[name] != f"sha256={digest}":
            raise package.UnreadableMemberError("was changed after it was installed")
        return data


def find(source: Source) -> InstalledPackage | str:
    """Return the installed distribution of exactly the pinned wheel, or why there is none."""
    from importlib.metadata import PackageNotFoundError, distribution

    name, _, version = (source.wheel or "").partition("==")
    who = f"installed {name}"
    try:
        found = distribution(name)
        there = found.version
    except (PackageNotFoundError, ValueError):
        return f"{who}: not installed"
    # A local version (2.13.0+cpu) is the same release, built otherwise.
    if version not in (there, there.partition("+")[0]):
        return f"{who}: is {there}, the pin is {version}"
    return InstalledPackage(found, f"{who} {there}")


def offer(source: Source, wanted: Wanted) -> Answers:
    """Return what the installed distribution has, where it is exactly the pinned one."""
    if not source.wheel:
        return {}
    found = find(source)
    if isinstance(found, str):
        return dict.fromkeys(wanted, Refused(found))
    return package.offer(found, source, wanted)
