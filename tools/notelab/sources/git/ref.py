"""Resolves a tag, a branch or the first digits of a commit to the full commit id."""

import re
from collections.abc import Callable
from pathlib import Path

from notelab.lines import split_lines
from notelab.sources.answers import Source, SourceError, is_commit
from notelab.sources.git.git_command import GitCommand, open_clone
from notelab.sources.git.git_files import explain_shallowness, has_commit
from notelab.sources.git.url import host_of
from notelab.sources.timeouts import progress_if_slow

TYPE_CHECKING = False
if TYPE_CHECKING:
    from notelab.sources.git.fetch import Remote

_REF = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._/+@-]{0,199}$")
_SHORT = re.compile(r"^[0-9a-f]{4,39}$")


def resolve(
    source: Source,
    ref: str,
    mirror: Path | None,
    remote: "Remote | None",
    progress: Callable[[str], None],
) -> str:
    """Return the commit id, 40 hex digits, that a tag, branch or commit names.

    Args:
        source: the repository.
        ref: the name.
        mirror: the clone on disk, if there is one.
        remote: the remotes, or None if they must not be asked.
        progress: called with a line if asking takes longer than a second.

    Raises:
        SourceError: there is no such ref, its digits are ambiguous, or no repository could be
            asked.
    """
    if not _REF.match(ref) or ".." in ref or "//" in ref or ref.endswith(("/", ".", ".lock")):
        # git might take it for an option or an expression
        raise SourceError(
            f"{ref[:80]!r} is no tag, branch or commit",
            hint="write a tag (core_v0.16.1), a branch (main) or a commit's 40 hex digits",
        )
    clone = open_clone(mirror) if mirror else None
    if mirror and clone is None:
        raise SourceError(f"{mirror} is no git repository")
    if clone and (commit := _resolve_in_clone(clone, ref, bool(source.local_repository))):
        return commit
    deepen = explain_shallowness(clone) if clone else ""
    deepen = f": {deepen}" if deepen else ""
    if source.local_repository:
        nothing = f"this repository has no tag, branch or commit {ref!r}"
        raise SourceError(f"{source.name}: {nothing}{deepen}")
    in_mirror = f"; the mirror {mirror} has no {ref!r}{deepen}" if mirror else ""
    if remote is None:
        raise SourceError(f"{source.name}: {ref!r} can't be looked up offline{in_mirror}")
    try:
        with progress_if_slow(progress, f"{source.name}: asking {source.url} for {ref}"):
            return _resolve_at_remote(remote, source.url, ref)
    except SourceError as fault:
        hint = fault.hint or "a clone on disk works too: --mirror NAME=DIR"
        raise SourceError(f"{source.name}: {fault}{in_mirror}", hint=hint) from None


def _resolve_in_clone(git: GitCommand, ref: str, is_workbook: bool) -> str | None:
    """Return the commit that `ref` names in a repository on disk, or None if it names none.

    If the repository is the workbook itself, HEAD and local branches count before its origin's.
    """
    candidates = [f"refs/tags/{ref}", f"refs/remotes/origin/{ref}", f"refs/heads/{ref}"]
    if is_workbook:
        candidates = ["HEAD"] if ref == "HEAD" else [candidates[0], candidates[2], candidates[1]]
    if is_commit(ref.lower()) or _SHORT.match(ref.lower()):
        candidates.append(ref.lower())
    for candidate in candidates:
        ran = git.run("rev-parse", "--verify", f"{candidate}^{{commit}}")
        if ran.status == 0 and is_commit(ran.text):
            return ran.text
        if "ambiguous" in ran.error:
            hint = "give more digits, or all 40"
            raise SourceError(f"several commits begin with {ref}", hint=hint)
    return None


def _resolve_at_remote(remote: "Remote", url: str, ref: str) -> str:
    if is_commit(ref.lower()):
        return remote.peel(url, ref.lower())
    names = (f"refs/tags/{ref}^{{}}", f"refs/tags/{ref}", f"refs/heads/{ref}")
    refs = remote.list_refs(url, *names)
    for name in names:
        if name in refs:
            remote.replace_tag(url, ref, refs[name])
            return refs[name]
    hint = "name a tag, a branch or a full commit id of that repository"
    if _SHORT.match(ref.lower()):
        heads = remote.list_refs(url, "refs/tags/*", "refs/heads/*")
        # The id of a tag object is not its commit's id, so only the peeled entry counts.
        commits = {commit for name, commit in heads.items() if f"{name}^{{}}" not in heads}
        commits = {commit for commit in commits if commit.startswith(ref.lower())}
        if len(commits) == 1:
            return commits.pop()
        if commits:
            raise SourceError(f"several commits begin with {ref}", hint="give all 40 digits")
        hint = "a remote finds few commits by their first digits; give all 40, or use --mirror"
    raise SourceError(f"{host_of(url)} has no tag, branch or commit {ref!r}", hint=hint)


def commit_of_tag(git: GitCommand, tag: str, commit: str) -> str | None:
    """Return the commit that a tag names in a clone on disk, or '' if there is no such tag.

    None means that the clone can't tell: it has no tags at all, or it is shallow, or it lacks
    `commit`.
    """
    name = f"refs/tags/{tag}"
    ran = git.run("show-ref", "--verify", "--dereference", "--", name)
    named = {ref: id_ for id_, ref in (line.split(" ", 1) for line in split_lines(ran.text))}
    if name in named:
        return named.get(f"{name}^{{}}", named[name])
    whole = not explain_shallowness(git) and has_commit(git, commit)
    return "" if whole and git.run("tag", "--list").text else None
