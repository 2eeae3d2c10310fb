"""Reads files of a git repository at one commit, with GitPython."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from notelab.sources.answers import (
    MAX_FILE_BYTES,
    Absent,
    Answers,
    Offered,
    Refused,
    Source,
    SourceError,
    UnknownCommitError,
    Wanted,
)
from notelab.sources.git.command import GitCommand, open_clone
from notelab.sources.store import blob_id
from notelab.sources.suggest_paths import suggest_paths

if TYPE_CHECKING:
    from git import Repo

_KINDS = {
    0o120000: "a symbolic link; cite the file that it leads to",
    0o160000: "a submodule, another repository",
    0o040000: "a folder",
}
_DEEPEN = (
    "it is a shallow clone; `git fetch --unshallow` brings the rest, and so does "
    "`fetch-depth: 0` for the checkout in a workflow"
)


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


def read(git: GitCommand, commit: str, wanted: Wanted, who: str) -> Answers:
    """Return what a commit of the repository has at each path: bytes, no file, or a reason.

    Args:
        git: the repository.
        commit: a commit that the repository holds.
        wanted: paths from the repository's root.
        who: how reasons name the repository.
    """
    names: list[str] = []
    answers: Answers = {}
    with git.open() as repository:
        for path, entry in find_entries(repository, commit, wanted).items():
            if isinstance(entry, str):
                answers[path] = Refused(f"{who}: {entry}")
            elif entry is None:
                names = names or list_names(git, commit)
                ends = [name for name in names if name.endswith(f"/{path}")]
                suggestions = suggest_paths(path, names)
                answers[path] = Absent(path, definite=True, suggestions=suggestions, ends=ends)
            elif not is_regular(entry):
                kind = _KINDS.get(entry.mode, f"no regular file (mode {entry.mode:o})")
                answers[path] = Refused(f"{who}: {path} is {kind}", final=True)
            else:
                answers[path] = _read_blob(repository, entry.hexsha, who)
    return answers


def find_entries(repository: "Repo", commit: str, wanted: Wanted) -> dict[str, Any]:
    """Return the tree's entry at each path: None if there is none, a text if it can't be read."""
    from git import Commit

    entries: dict[str, Any] = {}
    try:
        root = Commit(repository, bytes.fromhex(commit)).tree
        for path in wanted:
            try:
                entries[path] = root / path
            except KeyError:
                entries[path] = None
    except Exception as fault:  # a repository may hold anything
        repository.git.clear_cache()
        line = " ".join(str(fault).split())[:200]
        entries |= dict.fromkeys(wanted.keys() - entries.keys(), f"has no such tree ({line})")
    return entries


def is_regular(entry: Any) -> bool:
    """Tell whether an entry of a tree is a regular file."""
    return getattr(entry, "mode", 0) & 0o170000 == 0o100000


def _read_blob(repository: "Repo", blob: str, who: str) -> Offered | Refused:
    """Read a blob; its size is asked first, so that a huge one is not read."""
    try:
        size = repository.git.get_object_header(blob)[2]
        if size > MAX_FILE_BYTES:
            reason = f"{who}: {size:,} bytes, above the {MAX_FILE_BYTES:,} that are read"
            return Refused(reason, final=True)
        data = repository.git.get_object_data(blob)[3]
        if blob_id(data) == blob:
            return Offered(data, "git")
        reason = "is damaged or can't be read"
    except Exception:  # a repository may hold anything
        reason = "is missing or damaged"
    repository.git.clear_cache()  # git ends at a damaged object, so another process goes on
    return Refused(f"{who}: object {blob[:12]} {reason}")
