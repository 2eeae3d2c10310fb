"""From a tag, a branch or the digits of a commit to the whole commit id."""

import re

from notelab.lines import split_lines
from notelab.sources.answers import Source, SourceError, is_commit
from notelab.sources.git.command import GitCommand
from notelab.sources.git.fetch import Remote, host_of
from notelab.sources.git.tree import has_commit, shallowness

_REF = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._/+@-]{0,199}$")
_SHORT = re.compile(r"^[0-9a-f]{4,39}$")


def check_ref(ref: str) -> None:
    """Accept what can be the name of a tag or branch, or digits of a commit.

    Raises:
        SourceError: it can't; it might be taken for an option or for an expression.
    """
    if not _REF.match(ref) or ".." in ref or "//" in ref or ref.endswith(("/", ".", ".lock")):
        raise SourceError(
            f"{ref[:80]!r} is no tag, branch or commit",
            hint="write a tag (core_v0.16.1), a branch (main) or a commit's 40 hex digits",
        )


def in_repository(git: GitCommand, ref: str, *, own: bool = False) -> str | None:
    """Return the commit that `ref` names in a repository on disk, or None if it names none.

    In somebody's `own` repository HEAD and branches are that person's, not those of its origin.

    Raises:
        SourceError: its digits begin several commits.
    """
    asked = [f"refs/tags/{ref}", f"refs/remotes/origin/{ref}", f"refs/heads/{ref}"]
    if own:
        asked = ["HEAD"] if ref == "HEAD" else [asked[0], asked[2], asked[1]]
    if is_commit(ref.lower()) or _SHORT.match(ref.lower()):
        asked.append(ref.lower())
    for one in asked:
        ran = git.run("rev-parse", "--verify", f"{one}^{{commit}}")
        found = ran.out.decode("ascii", "replace").strip()
        if ran.status == 0 and is_commit(found):
            return found
        if "ambiguous" in ran.error:
            raise SourceError(
                f"several commits begin with {ref}", hint="give more digits, or all 40"
            )
    return None


def commit_of_tag(git: GitCommand, tag: str, commit: str) -> str | None:
    """Return the commit that a tag names in a clone on disk, '' where the clone has no such tag.

    None says that the clone can't tell: it has no tags at all, or is shallow, or is behind
    `commit`.
    """
    name = f"refs/tags/{tag}"
    ran = git.run("show-ref", "--verify", "--dereference", "--", name)
    refs = [line.split(" ", 1) for line in split_lines(ran.out.decode("utf-8", "replace"))]
    named = {ref: identity for identity, ref in refs}
    if name in named:
        return named.get(f"{name}^{{}}", named[name])
    whole = not shallowness(git) and has_commit(git, commit)
    return "" if whole and git.run("tag", "--list").out.strip() else None


def tags_at(git: GitCommand, commit: str) -> list[str]:
    """Return the tags of a clone on disk that name a commit."""
    ran = git.run("tag", "--points-at", commit)
    return split_lines(ran.out.decode("utf-8", "replace")) if ran.status == 0 else []


def at_remote(remote: Remote, source: Source, ref: str) -> str:
    """Return the commit that `ref` names at the source's own remote.

    Raises:
        SourceError: it can't be asked, has no such ref, or several commits begin so.
    """
    if is_commit(ref.lower()):
        return remote.peeled(source.url, ref.lower())
    names = (f"refs/tags/{ref}", f"refs/tags/{ref}^{{}}", f"refs/heads/{ref}")
    found = dict(remote.refs(source.url, *names))
    for name in (names[1], names[0], names[2]):
        if name in found:
            return found[name]
    hint = "name a tag, a branch or a full commit id of that repository"
    if _SHORT.match(ref.lower()):
        begin = _heads_that_begin(remote, source.url, ref.lower())
        if len(begin) == 1:
            return begin.pop()
        if begin:
            raise SourceError(f"several commits begin with {ref}", hint="give all 40 digits")
        hint = "a remote finds few commits by their first digits; give all 40, or use --mirror"
    raise SourceError(f"{host_of(source.url)} has no tag, branch or commit {ref!r}", hint=hint)


def _heads_that_begin(remote: Remote, url: str, digits: str) -> set[str]:
    refs = dict(remote.refs(url, "refs/tags/*", "refs/heads/*"))
    # A tag object's own id is not its commit's: only the peeled line counts.
    commits = {name: one for name, one in refs.items() if f"{name}^{{}}" not in refs}
    return {one for one in commits.values() if one.startswith(digits)}
