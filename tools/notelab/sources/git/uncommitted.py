"""Lists the files of a working tree that differ from its last commit."""

from collections.abc import Iterable
from pathlib import Path

from notelab.errors import NotelabError
from notelab.sources.git.command import GitCommand
from notelab.sources.git.mirror import find_git_dir


def list_uncommitted(root: Path, paths: Iterable[Path]) -> list[str] | None:
    """Return the files that are changed, staged, untracked or ignored; None without a repository.

    Raises:
        NotelabError: git fails.
    """
    git_dir = find_git_dir(root)
    if git_dir is None:
        return None
    ran = GitCommand(git_dir, work_tree=root).run(
        *("status", "--porcelain", "-z", "--untracked-files=all", "--ignored", "--"),
        *(path.relative_to(root).as_posix() for path in paths),
    )
    if ran.status:
        raise NotelabError(f"git can't say what is committed: {ran.why()}")
    return [entry[3:] for entry in ran.out.decode("utf-8", "replace").split("\0") if entry]
