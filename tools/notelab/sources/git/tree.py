"""Reads files from a git repository at one commit."""

import io

from notelab.lines import split_lines
from notelab.sources.answers import MAX_FILE_BYTES, Absent, Answers, Offered, Refused
from notelab.sources.blob import blob_id
from notelab.sources.git.command import GitCommand, GitResult
from notelab.sources.suggest_paths import suggest_paths

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
_ARGUMENTS = 200  # paths per command, well below any system's limit
_BATCH = 32  # blobs per command, so at most 256 MiB


def has_commit(git: GitCommand, commit: str) -> bool:
    """Tell whether the repository holds `commit`."""
    return git.run("cat-file", "-e", f"{commit}^{{commit}}").status == 0


def explain_shallowness(git: GitCommand) -> str:
    """Return how to deepen a repository if it is a shallow clone, else ''.

    A commit that a shallow clone lacks may exist all the same.
    """
    answer = git.run("rev-parse", "--is-shallow-repository")
    return _DEEPEN if answer.out.strip() == b"true" else ""


def list_entries(
    git: GitCommand, commit: str, paths: list[str]
) -> dict[str, tuple[str, str]] | GitResult:
    """Return mode and object id of each of `paths` that the commit has, or git's failure."""
    entries: dict[str, tuple[str, str]] = {}
    for start in range(0, len(paths), _ARGUMENTS):
        some = paths[start : start + _ARGUMENTS]
        ran = git.run("ls-tree", "-z", "--full-tree", commit, "--", *some, timeout=300)
        if ran.status:
            return ran
        for line in ran.out.split(b"\0"):
            about, tab, name = line.partition(b"\t")
            if tab:
                mode, _, identity = about.decode("ascii").split()
                entries[name.decode("utf-8", "replace")] = mode, identity
    return entries


def read(git: GitCommand, commit: str, paths: list[str], who: str) -> Answers:
    """Return what the commit has at each path: bytes, no file, or a reason.

    Args:
        git: the repository; it may fetch missing objects if its transports allow that.
        commit: a commit that the repository holds.
        paths: paths from the repository's root.
        who: how reasons name the repository.
    """
    entries = list_entries(git, commit, paths)
    if isinstance(entries, GitResult):
        return dict.fromkeys(paths, Refused(f"{who}: {entries.why()}"))
    answers: Answers = {}
    blobs: dict[str, str] = {}
    names: list[str] | None = None
    for path in paths:
        if path not in entries:
            names = list_names(git, commit) if names is None else names
            matching_ends = [name for name in names if name.endswith(f"/{path}")]
            answers[path] = Absent(
                path, definite=True, suggestions=suggest_paths(path, names), ends=matching_ends
            )
            continue
        mode, blob = entries[path]
        if mode in _REGULAR:
            blobs[path] = blob
        else:
            kind = _KINDS.get(mode, f"no regular file (mode {mode})")
            answers[path] = Refused(f"{who}: {path} is {kind}", final=True)
    contents = _read_blobs(git, set(blobs.values()), who)
    return answers | {path: contents[blob] for path, blob in blobs.items()}


def list_names(git: GitCommand, commit: str) -> list[str]:
    """Return the paths of all files of the commit."""
    ran = git.run("ls-tree", "-r", "-z", "--full-tree", "--name-only", commit, timeout=300)
    return [name.decode("utf-8", "replace") for name in ran.out.split(b"\0") if name]


def _read_blobs(git: GitCommand, blobs: set[str], who: str) -> Answers:
    """Read blobs; sizes are asked first, so that huge ones are not read."""
    sizes, ran = read_sizes(git, blobs)
    data_by_blob = _cat_blobs(git, [blob for blob, size in sizes.items() if size <= MAX_FILE_BYTES])
    contents: Answers = {}
    for blob in sorted(blobs):
        if blob not in sizes:
            contents[blob] = Refused(f"{who}: has no object {blob[:12]} ({ran.why()})")
        elif sizes[blob] > MAX_FILE_BYTES:
            contents[blob] = Refused(
                f"{who}: {sizes[blob]:,} bytes, above the {MAX_FILE_BYTES:,} that are read",
                final=True,
            )
        elif blob_id(data_by_blob[blob]) == blob:
            contents[blob] = Offered(data_by_blob[blob], "git")
        else:
            contents[blob] = Refused(f"{who}: object {blob[:12]} is damaged or can't be read")
    return contents


def read_sizes(git: GitCommand, blobs: set[str]) -> tuple[dict[str, int], GitResult]:
    """Return the size of each blob that the repository has, and git's result."""
    stdin = "".join(f"{blob}\n" for blob in sorted(blobs)).encode()
    ran = git.run("cat-file", "--batch-check", stdin=stdin, timeout=300)
    lines = (line.split() for line in split_lines(ran.out.decode("ascii", "replace")))
    return {
        fields[0]: int(fields[2]) for fields in lines if len(fields) == 3 and fields[1] == "blob"
    }, ran


def _cat_blobs(git: GitCommand, blobs: list[str]) -> dict[str, bytes]:
    """Return the contents of each blob as git prints them; empty if it prints nothing."""
    data_by_blob: dict[str, bytes] = {}
    for start in range(0, len(blobs), _BATCH):
        stdin = "".join(f"{blob}\n" for blob in blobs[start : start + _BATCH]).encode()
        out = io.BytesIO(git.run("cat-file", "--batch", stdin=stdin, timeout=300).out)
        while len(about := out.readline().split()) == 3:
            data_by_blob[about[0].decode()] = out.read(int(about[2]))
            out.readline()
    for blob in blobs:
        if blob not in data_by_blob:  # git stops at a damaged blob and leaves the later ones unread
            data_by_blob[blob] = git.run("cat-file", "blob", blob).out
    return data_by_blob
