"""Reads the files of the lab's own working tree, which a source with `pin = "HEAD"` follows."""

import errno
from pathlib import Path

from notelab.regular_files import read_regular
from notelab.sources.answers import MAX_FILE_BYTES, Absent, Answers, Offered, Refused, Wanted
from notelab.sources.git.command import GitCommand, find_git_dir
from notelab.sources.suggest_paths import suggest_paths


def offer(root: Path, wanted: Wanted) -> Answers:
    """Return what the working tree has at each path, saved or committed.

    Lines end as git stores them, so that a checkout with `\\r\\n` has the same lines.
    """
    answers: Answers = {}
    names: list[str] | None = None
    for path in wanted:
        file = root / path
        try:
            if not file.resolve().is_relative_to(root.resolve()) or file.is_symlink():
                raise OSError(errno.ELOOP, "it is reached by a symbolic link; cite the file itself")
            data = read_regular(file, MAX_FILE_BYTES + 1)
            if len(data) > MAX_FILE_BYTES:
                raise OSError(errno.EFBIG, f"more than the {MAX_FILE_BYTES:,} bytes that are read")
            answers[path] = Offered(data.replace(b"\r\n", b"\n"), "git")
        except (FileNotFoundError, NotADirectoryError):
            names = list_names(root) if names is None else names
            ends = [name for name in names if name.endswith(f"/{path}")]
            answers[path] = Absent(path, True, suggest_paths(path, names), ends=ends)
        except OSError as fault:
            answers[path] = Refused(f"the working tree: {fault.strerror or fault}", final=True)
    return answers


def list_names(root: Path) -> list[str]:
    """Return the paths of the working tree that git tracks or would add."""
    git_dir = find_git_dir(root)
    if git_dir is None:
        return []
    git = GitCommand(git_dir, work_tree=root)
    ran = git.run("ls-files", "-z", "--cached", "--others", "--exclude-standard", timeout=300)
    names = [name.decode("utf-8", "replace") for name in ran.out.split(b"\0") if name]
    return [name for name in dict.fromkeys(names) if (root / name).is_file()]
