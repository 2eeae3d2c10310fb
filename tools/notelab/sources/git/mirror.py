"""The provider that reads a clone on disk; the user says where it is, blob ids prove its files."""

from pathlib import Path

from notelab.sources.answers import (
    Answers,
    Refused,
    Source,
    SourceError,
    UnknownCommitError,
    Wanted,
)
from notelab.sources.git import tree as git_tree
from notelab.sources.git.command import GitCommand

_GITDIR = "gitdir:"


def find_git_dir(folder: Path) -> Path | None:
    """Return the git directory of a clone, a linked worktree or a bare clone, or None."""
    inner = folder / ".git"
    try:
        if inner.is_file() and inner.stat().st_size < 4096:
            text = inner.read_text("utf-8", "replace").strip()
            if not text.startswith(_GITDIR):
                return None
            inner = folder / text.removeprefix(_GITDIR).strip()
        for candidate in (inner, folder):
            if (candidate / "HEAD").exists():
                return candidate.resolve()
    except OSError:
        return None
    return None


def offer(folder: Path, source: Source, wanted: Wanted) -> Answers:
    """Return what the mirror in `folder` has at the pin; the mirror never fetches anything.

    Raises:
        UnknownCommitError: it doesn't have the pinned commit.
        SourceError: it is a shallow clone, so the commit may exist although it is missing here.
    """
    who = f"mirror {folder}"
    git_dir = find_git_dir(folder)
    if git_dir is None:
        return dict.fromkeys(wanted, Refused(f"{who}: no git repository"))
    git = GitCommand(git_dir)
    if not git_tree.has_commit(git, source.commit):
        lacks = f"has no commit {source.commit[:12]}"
        if deepen := git_tree.explain_shallowness(git):
            raise SourceError(f"{lacks}: {deepen}")
        raise UnknownCommitError(lacks)
    return git_tree.read(git, source.commit, list(wanted), who)
