"""Reading files out of a git repository at one commit."""

import io

from notelab.lines import split_lines
from notelab.sources.answers import MAX_FILE_BYTES, Absent, Answers, Offered, Refused
from notelab.sources.blob import blob_id
from notelab.sources.git.command import GitCommand, Ran
from notelab.sources.near import nearest

_REGULAR = ("100644", "100755", "100664")
_KINDS = {
    "120000": "a symbolic link; cite the file that it leads to",
    "160000": "a submodule, another repository",
    "040000": "a folder",
}
_DEEPEN = (
    "it is a shallow clone; `git fetch --unshallow` brings the rest, and so does "
    "`fetch-depth: 0` for the checkout in a workflow"
)
_ARGUMENTS = 200  # paths a command, well below any system's limit
_BATCH = 32  # blobs a command: of the longest that are read, 256 MiB


def has_commit(git: GitCommand, commit: str) -> bool:
    """Say whether the repository itself holds `commit`."""
    return git.run("cat-file", "-e", f"{commit}^{{commit}}").status == 0


def shallowness(git: GitCommand) -> str:
    """Return how to deepen a repository that is a shallow clone; '' for a whole one.

    What a shallow clone lacks may be in its repository all the same.
    """
    asked = git.run("rev-parse", "--is-shallow-repository")
    return _DEEPEN if asked.out.strip() == b"true" else ""


def entries(git: GitCommand, commit: str, paths: list[str]) -> dict[str, tuple[str, str]] | Ran:
    """Return the mode and object id of each of `paths` that the commit has, or what failed."""
    found: dict[str, tuple[str, str]] = {}
    for start in range(0, len(paths), _ARGUMENTS):
        some = paths[start : start + _ARGUMENTS]
        ran = git.run("ls-tree", "-z", "--full-tree", commit, "--", *some, timeout=300)
        if ran.status:
            return ran
        for line in ran.out.split(b"\0"):
            about, tab, name = line.partition(b"\t")
            if tab:
                mode, _, identity = about.decode("ascii").split()
                found[name.decode("utf-8", "replace")] = mode, identity
    return found


def read(git: GitCommand, commit: str, paths: list[str], who: str) -> Answers:
    """Return what the commit has at each path: its bytes, that it has none, or why not.

    Args:
        git: the repository, which may fetch what it lacks if its transports allow that.
        commit: a commit that the repository holds.
        paths: from the repository's root.
        who: how a reason names the repository.
    """
    found = entries(git, commit, paths)
    if isinstance(found, Ran):
        return dict.fromkeys(paths, Refused(f"{who}: {found.why()}"))
    answers: Answers = {}
    blobs: dict[str, str] = {}
    names: list[str] | None = None
    for path in paths:
        if path not in found:
            names = all_names(git, commit) if names is None else names
            ends = [name for name in names if name.endswith(f"/{path}")]
            answers[path] = Absent(path, definite=True, near=nearest(path, names), ends=ends)
            continue
        mode, blob = found[path]
        if mode in _REGULAR:
            blobs[path] = blob
        else:
            kind = _KINDS.get(mode, f"no regular file (mode {mode})")
            answers[path] = Refused(f"{who}: {path} is {kind}", final=True)
    contents = _contents(git, set(blobs.values()), who)
    return answers | {path: contents[blob] for path, blob in blobs.items()}


def all_names(git: GitCommand, commit: str) -> list[str]:
    """Return the path of every file that the commit has."""
    ran = git.run("ls-tree", "-r", "-z", "--full-tree", "--name-only", commit, timeout=300)
    return [name.decode("utf-8", "replace") for name in ran.out.split(b"\0") if name]


def _contents(git: GitCommand, blobs: set[str], who: str) -> Answers:
    """Read blobs, first asking their sizes, so that a huge one is not read."""
    sizes, ran = sizes_of(git, blobs)
    held = _read_out(git, [blob for blob, size in sizes.items() if size <= MAX_FILE_BYTES])
    contents: Answers = {}
    for blob in sorted(blobs):
        if blob not in sizes:
            contents[blob] = Refused(f"{who}: has no object {blob[:12]} ({ran.why()})")
        elif sizes[blob] > MAX_FILE_BYTES:
            contents[blob] = Refused(
                f"{who}: {sizes[blob]:,} bytes, above the {MAX_FILE_BYTES:,} that are read",
                final=True,
            )
        elif blob_id(held[blob]) == blob:
            contents[blob] = Offered(held[blob], "git")
        else:
            contents[blob] = Refused(f"{who}: object {blob[:12]} is damaged or can't be read")
    return contents


def sizes_of(git: GitCommand, blobs: set[str]) -> tuple[dict[str, int], Ran]:
    """Return how long each blob is that the repository has, and how git ended."""
    asked = "".join(f"{blob}\n" for blob in sorted(blobs)).encode()
    ran = git.run("cat-file", "--batch-check", stdin=asked, timeout=300)
    lines = (line.split() for line in split_lines(ran.out.decode("ascii", "replace")))
    return {one[0]: int(one[2]) for one in lines if len(one) == 3 and one[1] == "blob"}, ran


def _read_out(git: GitCommand, blobs: list[str]) -> dict[str, bytes]:
    """Return what git says is in each blob; nothing where it says none."""
    held: dict[str, bytes] = {}
    for start in range(0, len(blobs), _BATCH):
        asked = "".join(f"{blob}\n" for blob in blobs[start : start + _BATCH]).encode()
        out = io.BytesIO(git.run("cat-file", "--batch", stdin=asked, timeout=300).out)
        while len(about := out.readline().split()) == 3:
            held[about[0].decode()] = out.read(int(about[2]))
            out.readline()
    for blob in blobs:
        if blob not in held:  # a damaged one ends git, with those after it unread
            held[blob] = git.run("cat-file", "blob", blob).out
    return held
