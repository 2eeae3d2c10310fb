"""Finds the files of a source that define a name: in a clone on disk, or in a package."""

import re

from notelab.sources.git.command import GitCommand
from notelab.sources.package import Package, UnreadableMemberError

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
