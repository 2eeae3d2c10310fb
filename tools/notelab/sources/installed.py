"""The provider that reads an installed distribution, if it is exactly the pinned wheel."""

from pathlib import Path
from typing import TYPE_CHECKING

from notelab.sources import package
from notelab.sources.answers import MAX_FILE_BYTES, Answers, Refused, Source, Wanted

if TYPE_CHECKING:
    from importlib.metadata import Distribution


class InstalledPackage(package.Package):
    """A distribution installed for this interpreter; files that were edited are refused."""

    forged = "was changed after it was installed"

    def __init__(self, distribution: "Distribution", who: str) -> None:
        """Read RECORD and nothing else."""
        super().__init__(who, distribution.read_text("RECORD") or "")
        self._root = Path(str(distribution.locate_file("")))

    def bytes_of(self, name: str) -> bytes:
        """Return a file's bytes from the folder that packages are installed in."""
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
        return data


def find(source: Source) -> InstalledPackage | str:
    """Return the installed distribution of exactly the pinned wheel, or why there is none."""
    from importlib.metadata import PackageNotFoundError, distribution

    name, _, version = (source.wheel or "").partition("==")
    who = f"installed {name}"
    try:
        installed = distribution(name)
        installed_version = installed.version
    except (PackageNotFoundError, ValueError):
        return f"{who}: not installed"
    # A local version (2.13.0+cpu) is another build of the same release.
    if version not in (installed_version, installed_version.partition("+")[0]):
        return f"{who}: is {installed_version}, the pin is {version}"
    return InstalledPackage(installed, f"{who} {installed_version}")


def offer(source: Source, wanted: Wanted) -> Answers:
    """Return what the installed distribution holds, if it is exactly the pinned one."""
    if not source.wheel:
        return {}
    installed = find(source)
    if isinstance(installed, str):
        return dict.fromkeys(wanted, Refused(installed))
    return package.offer(installed, source, wanted)
