"""Resolves a tag, a branch or the first digits of a commit to the full commit id."""

import re

from notelab.lines import split_lines
from notelab.sources.answers import Source, SourceError, is_commit
from notelab.sources.git.command import GitCommand
from notelab.sources.git.fetch import Remote, host_of
from notelab.sources.git.tree import explain_shallowness, has_commit

_REF = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._/+@-]{0,199}$")
_SHORT = re.compile(r"^[0-9a-f]{4,39}$")


def check_ref(ref: str) -> None:
    """Accept a text that can name a tag, a branch or a commit.

    Raises:
        SourceError: it can't; git might take it for an option or an expression.
    """
    if not _REF.match(ref) or ".." in ref or "//" in ref or ref.endswith(("/", ".", ".lock")):
        raise SourceError(
            f"{ref[:80]!r} is no tag, branch or commit",
            hint="write a tag (core_v0.16.1), a branch (main) or a commit's 40 hex digits",
        )


def resolve_in_repository(git: GitCommand, ref: str, *, is_workbook: bool = False) -> str | None:
    """Return the commit that `ref` names in a repository on disk, or None if it names none.

    If the repository is the workbook itself, HEAD and local branches count before its origin's.

    Raises:
        SourceError: several commits begin with the digits.
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
            raise SourceError(
                f"several commits begin with {ref}", hint="give more digits, or all 40"
            )
    return None


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
    return "" if whole and git.run("tag", "--list").out.strip() else None


def list_tags_at(git: GitCommand, commit: str) -> list[str]:
    """Return the tags of a clone on disk that name a commit."""
    ran = git.run("tag", "--points-at", commit)
    return split_lines(ran.text) if ran.status == 0 else []


def resolve_at_remote(remote: Remote, source: Source, ref: str) -> str:
    """Return the commit that `ref` names at the source's remote.

    Raises:
        SourceError: the remote can't be asked, has no such ref, or has several such commits.
    """
    if is_commit(ref.lower()):
        return remote.peel(source.url, ref.lower())
    names = (f"refs/tags/{ref}", f"refs/tags/{ref}^{{}}", f"refs/heads/{ref}")
    refs = remote.list_refs(source.url, *names)
    for name in (names[1], names[0], names[2]):
        if name in refs:
            return refs[name]
    hint = "name a tag, a branch or a full commit id of that repository"
    if _SHORT.match(ref.lower()):
        heads = remote.list_refs(source.url, "refs/tags/*", "refs/heads/*")
        # The id of a tag object is not its commit's id, so only the peeled entry counts.
        commits = {commit for name, commit in heads.items() if f"{name}^{{}}" not in heads}
        commits = {commit for commit in commits if commit.startswith(ref.lower())}
        if len(commits) == 1:
            return commits.pop()
        if commits:
            raise SourceError(f"several commits begin with {ref}", hint="give all 40 digits")
        hint = "a remote finds few commits by their first digits; give all 40, or use --mirror"
    raise SourceError(f"{host_of(source.url)} has no tag, branch or commit {ref!r}", hint=hint)
