"""Checks a pinned tree out for reading: a real clone in which nothing of the remote's runs."""

from pathlib import Path
from shlex import quote
from shutil import rmtree
from tempfile import mkdtemp

from notelab.sources.answers import Source, SourceError, is_commit
from notelab.sources.git import git_files
from notelab.sources.git.fetch import HostProbe
from notelab.sources.git.git_command import NETWORK, GitCommand, find_git_dir
from notelab.sources.git.url import check_url

_SECONDS = 1800  # a whole tree can be hundreds of megabytes


def _is_checked_out(source: Source, directory: Path) -> bool:
    """Tell whether `directory` already is a clone at the source's pin, with its files unchanged."""
    git_dir = directory / ".git"
    if not git_dir.is_dir():
        return False
    git = GitCommand(git_dir, work_tree=directory)
    if git.run("rev-parse", "--verify", "HEAD").text != source.commit:
        return False
    changed = git.run("diff", "--no-ext-diff", "--no-textconv", "--name-only", "-z", "HEAD")
    if names := changed.out.decode("utf-8", "replace").split("\0")[:-1]:
        raise SourceError(
            f"{directory} is {source.name} at the pin, but {len(names)} of its files were "
            f"changed: {', '.join(names[:3])}",
            hint=f"`git -C {quote(str(directory))} checkout HEAD -- .` undoes that",
        )
    return True


def check_out(source: Source, directory: Path, mirror: Path | None, *, offline: bool) -> bool:
    """Make `directory` a clone of the pinned commit, from the mirror or the remote.

    Return False if it already is one.

    Raises:
        SourceError: the folder is not empty or was changed, or no provider has the whole tree;
            then the folder is left as it was.
    """
    if not is_commit(source.commit):
        raise SourceError(f"{source.name} has no usable pin")
    if _is_checked_out(source, directory):
        return False
    if directory.is_symlink() or (
        directory.exists() and (not directory.is_dir() or any(directory.iterdir()))
    ):
        raise SourceError(
            f"{directory} already exists and is not {source.name} at the pin",
            hint="name a folder that is empty or doesn't exist yet",
        )
    check_url(source.url)
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        scratch = Path(mkdtemp(prefix=f".{directory.name}.", dir=directory.parent))
    except OSError as fault:
        raise SourceError(f"{directory.parent}: {fault.strerror or fault}") from None
    try:
        _fill(source, scratch, mirror, offline=offline)
        if directory.exists():
            directory.rmdir()
        scratch.chmod(0o755)
        scratch.rename(directory)
    finally:
        rmtree(scratch, ignore_errors=True)
    return True


def _fill(source: Source, folder: Path, mirror: Path | None, *, offline: bool) -> None:
    init = GitCommand(None).run("init", "--quiet", "--template=", "--", str(folder))
    if init.status:
        raise SourceError(f"{folder}: {init.why()}")
    git_dir = folder / ".git"
    local_git = GitCommand(git_dir)
    for key, value in (("remote.origin.url", source.url), ("core.symlinks", "false")):
        local_git.run("config", key, value)
    reasons: list[str] = []
    if mirror and (clone := find_git_dir(mirror)):
        # With a bare path instead of file://, git would link the clone's objects and alternates.
        reasons.append(_fetch(GitCommand(git_dir, "file"), clone.as_uri(), source.commit))
    elif mirror:
        reasons.append(f"mirror {mirror}: no git repository")
    if not git_files.has_commit(local_git, source.commit) and not offline:
        try:
            HostProbe().check(source.url)
            (git_dir / "shallow.lock").unlink(missing_ok=True)  # of a fetch that was ended
            reasons.append(_fetch(GitCommand(git_dir, NETWORK), "origin", source.commit))
        except SourceError as fault:
            reasons.append(str(fault))
    if not git_files.has_commit(local_git, source.commit):
        why = "; ".join(reason for reason in reasons if reason) or "offline, and no mirror"
        raise SourceError(
            f"no provider has the whole tree of {source.name}: {why}",
            hint="wheels hold only part of a repository; give a clone with --mirror NAME=DIR",
        )
    checkout = GitCommand(git_dir, work_tree=folder).run(
        "checkout", "--quiet", "--detach", source.commit, timeout=_SECONDS
    )
    if checkout.status:
        raise SourceError(f"{source.name} could not be checked out: {checkout.why()}")


def _fetch(git: GitCommand, remote: str, commit: str) -> str:
    """Fetch the commit with its whole tree; return '', or why that failed."""
    options = ("--quiet", "--no-tags", "--depth=1", "--no-write-fetch-head")
    ran = git.run("fetch", *options, "--", remote, commit, timeout=_SECONDS)
    return ran.why() if ran.status else ""
