"""A published package as a provider: it holds some files of a repository, at the same paths.

The files that define a name are found here, in a package and in a clone.
"""

import ast
import csv
import re
from base64 import urlsafe_b64encode
from collections.abc import Collection, Iterable
from hashlib import sha256
from pathlib import Path

from notelab.lines import split_lines
from notelab.sources.answers import (
    MAX_FILE_BYTES,
    Absent,
    Answers,
    Offered,
    Proof,
    Refused,
    Source,
    Wanted,
    suggest_paths,
)
from notelab.sources.git.git_command import GitCommand

TYPE_CHECKING = False
if TYPE_CHECKING:
    from importlib.metadata import Distribution

_VERSION_FILE = re.compile(r"^[^/]+/version\.py$")


class UnreadableMemberError(Exception):
    """A file of a package can't be read; the message says why in one line."""


class Package:
    """A package, packed or installed; `names` maps each file in its RECORD to the hash there."""

    forged = "doesn't match its hash in RECORD"

    def __init__(self, who: str, record: str) -> None:
        """Parse RECORD; `who` is how reasons name the package."""
        self.who = who
        rows = csv.reader(split_lines(record))
        self.names = {row[0]: row[1] for row in rows if len(row) >= 2}

    def in_order(self, names: Iterable[str]) -> list[str]:
        """Return some of its files in the order in which reading them is fastest."""
        return sorted(names)

    def read(self, name: str) -> bytes:
        """Return a file's bytes; raise UnreadableMemberError if it differs from RECORD."""
        data = self.bytes_of(name)
        digest = urlsafe_b64encode(sha256(data).digest()).rstrip(b"=").decode()
        if self.names[name] != f"sha256={digest}":
            raise UnreadableMemberError(self.forged)
        return data

    def bytes_of(self, name: str) -> bytes:
        """Return a file's bytes without comparing them, or raise UnreadableMemberError."""
        raise NotImplementedError


class InstalledPackage(Package):
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
                raise UnreadableMemberError("leads through a symbolic link; not followed")
        try:
            with place.open("rb") as stream:
                data = stream.read(MAX_FILE_BYTES + 1)
        except OSError as fault:
            raise UnreadableMemberError(fault.strerror or str(fault)) from None
        if len(data) > MAX_FILE_BYTES:
            raise UnreadableMemberError(f"above {MAX_FILE_BYTES:,} bytes; not read")
        return data


def find_installed(source: Source) -> InstalledPackage | str:
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


def offer_installed(source: Source, wanted: Wanted) -> Answers:
    """Return what the installed distribution holds, if it is exactly the pinned one."""
    if not source.wheel:
        return {}
    installed = find_installed(source)
    if isinstance(installed, str):
        return dict.fromkeys(wanted, Refused(installed))
    return offer(installed, source, wanted)


def offer(package: Package, source: Source, wanted: Wanted) -> Answers:
    """Return what the package holds of `wanted`.

    A package proves a file whose blob id is unknown only if it names the commit that it was built
    from and that commit is the pin.
    """
    has_unknown = None in wanted.values()
    proof: Proof | None = "wheel" if has_unknown and source.commit in commits(package) else None
    lacking = {path: blob for path, blob in wanted.items() if path not in package.names}
    answers = make_absent(package.who, package.names, lacking)
    for path in package.in_order(wanted.keys() - lacking.keys()):
        try:
            answers[path] = Offered(package.read(path), proof)
        except UnreadableMemberError as fault:
            answers[path] = Refused(f"{package.who}: {path}: {fault}")
    return answers


def make_absent(who: str, names: Collection[str], wanted: Wanted) -> Answers:
    """Return that a package lacks paths, with suggestions for those that the lock doesn't know."""
    reasons = [f"{who}: holds no such file"]
    return {
        path: Absent(path, False, [] if blob else suggest_paths(path, names), reasons)
        for path, blob in wanted.items()
    }


def commits(package: Package) -> list[str]:
    """Return the commits that a package says it was built from: one, or none."""
    built: list[str | None] = []
    for name in filter(_VERSION_FILE.match, package.names):
        try:
            built.append(built_from(package.read(name)))
        except UnreadableMemberError:
            continue
    return [commit for commit in built if commit]


def built_from(version_file: bytes) -> str | None:
    """Return the `git_version` that a version.py assigns; the file is parsed and never run."""
    try:
        body = ast.parse(version_file).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    for statement in body:
        match statement:
            case (
                ast.Assign(targets=[ast.Name("git_version")], value=ast.Constant(str(commit)))
                | ast.AnnAssign(target=ast.Name("git_version"), value=ast.Constant(str(commit)))
            ):
                return commit
    return None


_AT_MOST = 50  # files: a name that more of them define is as common as `forward`
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,199}")
_ENDINGS = (".py", ".pyi")
_KEYWORDS = "def|class|struct|union|enum|fn|trait|mod|namespace|define"


def find_in_tree(git: GitCommand, commit: str, name: str) -> list[str]:
    """Return the files of a commit that define a name, else those that only contain it.

    Only a keyword before the name shows a definition; a C function has none.
    """
    if not _NAME.fullmatch(name):
        return []
    definition = rf"(^|[^A-Za-z0-9_])({_KEYWORDS})[[:space:]]+{name}([^A-Za-z0-9_]|$)"
    for pattern in (("-E", "-e", definition), ("-w", "-F", "-e", name)):
        ran = git.run("grep", "-I", "-l", "-z", *pattern, commit, timeout=300)
        rows = ran.out.decode("utf-8", "replace").split("\0")
        if paths := [row.partition(":")[2] for row in rows if row]:
            return paths[:_AT_MOST]
    return []


def find_in_package(package: Package, name: str) -> list[str]:
    """Return the Python files of a package that define a name."""
    if not _NAME.fullmatch(name):
        return []
    pattern = re.compile(rf"^\s*(async )?(def|class) {name}\b".encode(), re.MULTILINE)
    paths = []
    for path in package.in_order(each for each in package.names if each.endswith(_ENDINGS)):
        try:
            if pattern.search(package.bytes_of(path)):
                paths.append(path)
        except UnreadableMemberError:
            continue  # a file that can't be read can't be cited either
    return paths[:_AT_MOST]
