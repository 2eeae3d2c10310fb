"""Reads files of a git repository at one commit, or of its working tree."""

import errno
from pathlib import Path

from notelab.files import read_regular
from notelab.sources.answers import (
    MAX_FILE_BYTES,
    Answers,
    Offered,
    Refused,
    Source,
    SourceError,
    UnknownCommitError,
    Wanted,
    make_absent,
)
from notelab.sources.git.git_command import GitCommand, find_git_dir, open_clone
from notelab.sources.store import blob_id

TYPE_CHECKING = False
if TYPE_CHECKING:
    from git import Git

REGULAR = "100"  # how the mode of a regular file begins
_KINDS = {
    "120000": "a symbolic link; cite the file that it leads to",
    "160000": "a submodule, another repository",
    "040000": "a folder",
}
_DEEPEN = (
    "it is a shallow clone; `git fetch --unshallow` brings the rest, and so does "
    "`fetch-depth: 0` for the checkout in a workflow"
)
_ARGUMENTS = 200  # paths per command, well below any system's limit


def has_commit(git: GitCommand, commit: str) -> bool:
    """Tell whether the repository holds `commit`."""
    return git.run("cat-file", "-e", f"{commit}^{{commit}}").status == 0


def explain_shallowness(git: GitCommand) -> str:
    """Return how to deepen a repository if it is a shallow clone, else ''.

    A commit that a shallow clone lacks may exist all the same.
    """
    return _DEEPEN if git.run("rev-parse", "--is-shallow-repository").text == "true" else ""


def list_names(git: GitCommand, commit: str) -> list[str]:
    """Return the paths of all files of the commit."""
    ran = git.run("ls-tree", "-r", "-z", "--full-tree", "--name-only", commit, timeout=300)
    return [name.decode("utf-8", "replace") for name in ran.out.split(b"\0") if name]


def offer_from_mirror(folder: Path, source: Source, wanted: Wanted) -> Answers:
    """Return what the clone in `folder` has at the pin; nothing is fetched into it.

    Raises:
        UnknownCommitError: it doesn't have the pinned commit.
        SourceError: it is a shallow clone, so the commit may exist although it is missing here.
    """
    git = open_clone(folder)
    if git is None:
        return dict.fromkeys(wanted, Refused(f"mirror {folder}: no git repository"))
    if not has_commit(git, source.commit):
        lacks = f"has no commit {source.commit[:12]}"
        if deepen := explain_shallowness(git):
            raise SourceError(f"{lacks}: {deepen}")
        raise UnknownCommitError(lacks)
    return read(git, source.commit, wanted, f"mirror {folder}")


def list_entries(git: GitCommand, commit: str, wanted: Wanted) -> dict[str, tuple[str, str]]:
    """Return mode and object id of each wanted path that the commit has.

    Raises:
        SourceError: the tree can't be read.
    """
    entries: dict[str, tuple[str, str]] = {}
    paths = list(wanted)
    for start in range(0, len(paths), _ARGUMENTS):
        some = paths[start : start + _ARGUMENTS]
        ran = git.run("ls-tree", "-z", "--full-tree", commit, "--", *some, timeout=300)
        if ran.status:
            raise SourceError(ran.why())
        for line in filter(None, ran.out.split(b"\0")):
            about, _, name = line.partition(b"\t")
            mode, _, identity = about.decode("ascii").split()
            entries[name.decode("utf-8", "replace")] = mode, identity
    return entries


def read(git: GitCommand, commit: str, wanted: Wanted, who: str) -> Answers:
    """Return what a commit of the repository has at each path: bytes, no file, or a reason.

    Args:
        git: the repository.
        commit: a commit that the repository holds.
        wanted: paths from the repository's root.
        who: how reasons name the repository.

    Raises:
        SourceError: the tree can't be read.
    """
    entries = list_entries(git, commit, wanted)
    names = list_names(git, commit) if wanted.keys() - entries.keys() else []
    batch = git.open_batch()
    answers: Answers = {}
    for path in wanted:
        mode, blob = entries.get(path, ("", ""))
        if not mode:
            answers[path] = make_absent(path, names)
        elif not mode.startswith(REGULAR):
            kind = _KINDS.get(mode, f"no regular file (mode {mode})")
            answers[path] = Refused(f"{who}: {path} is {kind}", final=True)
        else:
            answers[path] = _read_blob(batch, blob, who)
    batch.clear_cache()
    return answers


def _read_blob(batch: "Git", blob: str, who: str) -> Offered | Refused:
    """Read a blob; its size is asked first, so that a huge one is not read."""
    try:
        size = batch.get_object_header(blob)[2]
        if size > MAX_FILE_BYTES:
            reason = f"{who}: {size:,} bytes, above the {MAX_FILE_BYTES:,} that are read"
            return Refused(reason, final=True)
        data = batch.get_object_data(blob)[3]
        if blob_id(data) == blob:
            return Offered(data, "git")
        reason = "is damaged or can't be read"
    except (ValueError, OSError):
        reason = "is missing or damaged"
    batch.clear_cache()  # git ends at a damaged object; the next one is read by a new process
    return Refused(f"{who}: object {blob[:12]} {reason}")


def offer_from_worktree(root: Path, wanted: Wanted) -> Answers:
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
            names = list_worktree(root) if names is None else names
            answers[path] = make_absent(path, names)
        except OSError as fault:
            answers[path] = Refused(f"the working tree: {fault.strerror or fault}", final=True)
    return answers


def list_worktree(root: Path) -> list[str]:
    """Return the paths of the working tree that git tracks or would add."""
    git_dir = find_git_dir(root)
    if git_dir is None:
        return []
    git = GitCommand(git_dir, work_tree=root)
    ran = git.run("ls-files", "-z", "--cached", "--others", "--exclude-standard", timeout=300)
    names = [name.decode("utf-8", "replace") for name in ran.out.split(b"\0") if name]
    return [name for name in dict.fromkeys(names) if (root / name).is_file()]
