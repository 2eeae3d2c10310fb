"""A repository at several commits: its trees, its files and their outlines, each read once."""

from functools import cache, cached_property
from pathlib import Path

from notelab.cited import outline
from notelab.errors import NotelabError, display_path
from notelab.lines import names_in, split_lines
from notelab.repin.changes import CitationChange, Place
from notelab.repin.classify import classify_change
from notelab.repin.line_map import LineMap, map_lines
from notelab.repin.moved_lines import MovedLines, OtherFiles
from notelab.repin.version import CitedLines, Version
from notelab.sources.answers import MAX_FILE_BYTES
from notelab.sources.git.git_command import GitCommand, find_git_dir
from notelab.sources.git.git_files import explain_shallowness

_MAX_OLDER = 12  # versions of a file that are searched for the one that was read

_Key = tuple[str, str, str, int, int, tuple[str, ...]]


class Repository:
    """The files of a repository at any commit; `commit` is the one that citations are carried to.

    Args:
        git: the repository.
        commit: the commit of the code, or a name of it.

    Raises:
        NotelabError: there is no such commit.
    """

    def __init__(self, git: GitCommand, commit: str) -> None:
        """Open the repository; its files are read when they are asked for."""
        self.git = git
        ran = git.run(
            "rev-parse", "--verify", "--quiet", "--end-of-options", f"{commit}^{{commit}}"
        )
        if ran.status:
            hint = "give a commit, a tag or a branch of this repository"
            if commit == "HEAD":
                hint = "the repository has no commit yet: commit the document and the code"
            hint = explain_shallowness(git) or hint
            raise NotelabError(f"{commit[:80]}: no such commit", hint=hint)
        self.commit = ran.text
        if len(self.commit) != 40:
            raise NotelabError("a repository with SHA-256 object names can't be read")
        self.oldest = ""  # a commit before all dates, so that the trees are compared only once
        self._versions: dict[str, Version] = {}
        self._changes: dict[_Key, CitationChange] = {}
        self._line_maps: dict[tuple[str, str], LineMap] = {}

    @cached_property
    def _batch(self):  # type: ignore[no-untyped-def]  # GitPython is imported when it is needed
        return self.git.open_batch()

    @cache  # noqa: B019 - one repository lives as long as the command
    def blobs(self, commit: str) -> dict[str, str]:
        """Return the blob of each file of a commit, by path."""
        ran = self.git.run("ls-tree", "-r", "-z", "--full-tree", commit, timeout=300)
        rows = (row.partition(b"\t") for row in ran.out.split(b"\0") if row.startswith(b"100"))
        return {path.decode("utf-8", "replace"): row.split()[2].decode() for row, _, path in rows}

    @cached_property
    def by_name(self) -> dict[str, list[str]]:
        """Return the paths of the code's commit by file name."""
        names: dict[str, list[str]] = {}
        for path in self.blobs(self.commit):
            names.setdefault(path.rpartition("/")[2], []).append(path)
        return names

    def read(self, commit: str, path: str) -> bytes | None:
        """Return a file's bytes at a commit, or None if it has none or it is too large."""
        blob = self.find_blob(commit, path)
        return self.read_blob(blob) if blob else None

    def version(self, path: str, commit: str = "") -> Version | None:
        """Return a file at a commit, by default that of the code, or None if it has none."""
        blob = self.find_blob(commit or self.commit, path)
        key = f"{blob}:{path}"
        if not blob:
            return None
        if key not in self._versions:
            data = self.read_blob(blob)
            lines = split_lines(data)
            self._versions[key] = Version(path, blob, lines, outline.of_file(path, data))
        return self._versions[key]

    @cache  # noqa: B019
    def find_blob(self, commit: str, path: str) -> str:
        """Return the id of a file's blob, or '' if there is none that is read."""
        if "\n" in path or not {"", ".", ".."}.isdisjoint(path.split("/")):
            return ""  # git would end at a path that leads out of the repository
        try:
            blob, kind, size = self._batch.get_object_header(f"{commit}:{path}")
        except ValueError:
            return ""
        is_read = kind == b"blob" and size <= MAX_FILE_BYTES
        return blob.decode() if is_read else ""

    def read_blob(self, blob: str) -> bytes:
        """Return the bytes of a blob."""
        return bytes(self._batch.get_object_data(blob)[3])

    def line_map(self, old: Version, new: Version) -> LineMap:
        """Return the map of lines between two versions of a file."""
        key = old.blob, new.blob
        if key not in self._line_maps:
            self._line_maps[key] = map_lines([(old, new)])[old, new]
        return self._line_maps[key]

    @cache  # noqa: B019
    def older_commits(self, commit: str, path: str) -> list[str]:
        """Return the last commits before a commit that changed a file, the newest first."""
        ran = self.git.run("log", "--format=%H", f"-n{_MAX_OLDER}", f"{commit}^", "--", path)
        return ran.text.split()

    def has_name(self, commit: str, place: Place, names: frozenset[str]) -> bool:
        """Return whether lines have one of some names at a commit, without reading its outline."""
        blob = self.find_blob(commit, place.path)
        lines = split_lines(self.read_blob(blob))[place.start - 1 : place.end] if blob else []
        return not names.isdisjoint(names_in(b"\n".join(lines).decode("utf-8", "replace")))

    def classify(self, cited: CitedLines, new: Version | None, commit: str) -> CitationChange:
        """Return how a citation changed since a commit; of equal ones, the first is classified."""
        old, blob = cited.old, new.blob if new else ""
        key = (old.path, old.blob, blob, cited.first, cited.last, tuple(cited.anchors))
        if key not in self._changes:
            line_map = self.line_map(old, new) if new else None
            other_files = self._other_files(self.oldest or commit)
            moved_lines = self._moved_lines(self.oldest or commit)
            change = classify_change(cited, new, line_map, other_files.find, moved_lines)
            self._changes[key] = change
        return self._changes[key]

    @cache  # noqa: B019
    def _moved_lines(self, old: str) -> MovedLines:
        return MovedLines(self.version, self.git, (old, self.commit))

    def find_renamed(self, path: str, old: str) -> Version | None:
        """Return what a file of an old commit was renamed to."""
        return self._other_files(old).find_renamed(path)

    @cache  # noqa: B019
    def _other_files(self, old: str) -> OtherFiles:
        commits = old, self.commit
        return OtherFiles(self.version, (), self.git, commits, self._moved_lines(old))


def open_repository(path: Path, ref: str) -> tuple[Path, Repository]:
    """Return the root of the repository that has a file, and the repository.

    Raises:
        NotelabError: the file is in no repository, or the repository has no such commit.
    """
    for folder in path.resolve().parents:
        if git_dir := find_git_dir(folder) if (folder / ".git").exists() else None:
            return folder, Repository(GitCommand(git_dir, work_tree=folder), ref)
    raise NotelabError(
        f"{display_path(path)} is in no git repository, so no commit says what it cites",
        hint="`git init`, and commit the document and the code; for notes about another "
        "repository: `shardbook adopt`",
    )
