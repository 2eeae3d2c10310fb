"""Runs git safely on repositories that may be hostile."""

import os
import subprocess
from collections.abc import Iterable
from pathlib import Path

import msgspec

from notelab.errors import NotelabError
from notelab.lines import split_lines
from notelab.sources.answers import SourceError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from git import Git

# Every command switches off what a repository's configuration could make git run.
_QUIET = (
    "core.fsmonitor=false",
    f"core.hooksPath={os.devnull}",
    "core.pager=cat",
    "gc.auto=0",
    "maintenance.auto=false",
    "fetch.fsckObjects=false",
    "submodule.recurse=false",
    "fetch.recurseSubmodules=false",
    "http.lowSpeedLimit=1000",
    "http.lowSpeedTime=20",
    "http.followRedirects=initial",
    "protocol.allow=never",
    "protocol.version=2",
)
_OPTIONS = ["--literal-pathspecs", "--no-pager", *(o for each in _QUIET for o in ("-c", each))]
_ENVIRONMENT = {
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ASKPASS": "",
    "SSH_ASKPASS": "",
    "GIT_LFS_SKIP_SMUDGE": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "LC_ALL": "C",
}
# Variables by which a hook describes *its* repository (git rev-parse --local-env-vars).
_HANDED_DOWN = (
    *("GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_COMMON_DIR", "GIT_CONFIG", "GIT_CONFIG_COUNT"),
    *("GIT_CONFIG_PARAMETERS", "GIT_DIR", "GIT_GRAFT_FILE", "GIT_INDEX_FILE", "GIT_NAMESPACE"),
    *("GIT_OBJECT_DIRECTORY", "GIT_PREFIX", "GIT_QUARANTINE_PATH", "GIT_REPLACE_REF_BASE"),
    *("GIT_SHALLOW_FILE", "GIT_WORK_TREE"),
)
_NO_PROTOCOL = "none"  # no transport of this name exists
NETWORK = "https:ssh:file"
_RUNNING: "set[subprocess.Popen[bytes]]" = set()


class GitResult(msgspec.Struct, frozen=True):
    """How a git command ended."""

    status: int
    out: bytes
    error: str

    @property
    def text(self) -> str:
        """Return the output as text, without white space around it."""
        return self.out.decode("utf-8", "replace").strip()

    def why(self) -> str:
        """Return git's error message in one line."""
        lines = [line.strip() for line in split_lines(self.error) if line.strip()]
        telling = [line for line in lines if line.startswith(("fatal:", "error:"))]
        return (telling or lines or [f"git ended with status {self.status}"])[-1][:200]


class GitCommand:
    """Runs git in one repository, with the transports that it may use.

    Args:
        git_dir: the repository; because it is named, git doesn't check its owner. None if there is
            no repository yet.
        protocols: the allowed transports; by default git fetches nothing, not even objects that a
            partial clone lacks.
        work_tree: the working tree, for commands that need one.
    """

    def __init__(
        self, git_dir: Path | None, protocols: str = _NO_PROTOCOL, work_tree: Path | None = None
    ) -> None:
        """Bind the command; nothing runs yet."""
        # git runs inside that folder, where a relative path would lead elsewhere.
        self.git_dir = git_dir and git_dir.absolute()
        self._work_tree = work_tree and work_tree.absolute()
        self._environment = {**_ENVIRONMENT, "GIT_ALLOW_PROTOCOL": protocols}
        if protocols == _NO_PROTOCOL:
            self._environment["GIT_NO_LAZY_FETCH"] = "1"
        if "GIT_SSH_COMMAND" not in os.environ and "GIT_SSH" not in os.environ:
            self._environment["GIT_SSH_COMMAND"] = "ssh -oBatchMode=yes -oConnectTimeout=10"

    def run(self, *arguments: str, stdin: bytes = b"", timeout: float = 60) -> GitResult:
        """Run git and return how it ended; after `timeout` seconds it is ended.

        Raises:
            SourceError: git is not installed.
        """
        command = ["git", *_OPTIONS]
        if self.git_dir:
            command += ["-C", str(self._work_tree or self.git_dir), f"--git-dir={self.git_dir}"]
        if self._work_tree:
            command.append(f"--work-tree={self._work_tree}")
        environment = {k: v for k, v in os.environ.items() if k not in _HANDED_DOWN}
        try:
            process = subprocess.Popen(
                [*command, *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env={**environment, **self._environment},
            )
        except FileNotFoundError:
            raise SourceError("git is not installed", hint="install git ≥ 2.30") from None
        with process:
            _RUNNING.add(process)
            try:
                out, error = process.communicate(stdin, timeout)
            except subprocess.TimeoutExpired:
                process.kill()
                return GitResult(-1, b"", f"error: git gave no answer in {timeout:g} s")
            except BaseException:
                process.terminate()  # git then removes its lock files
                raise
            finally:
                _RUNNING.discard(process)
        return GitResult(process.returncode, out, error.decode("utf-8", "replace"))

    def open_batch(self) -> "Git":
        """Return GitPython's git, which reads one object after another from one `git cat-file`.

        Its `Repo` isn't used, because it reads the repository's configuration by itself.
        """
        for name in _HANDED_DOWN:  # GitPython can't remove a variable for its processes alone
            os.environ.pop(name, None)
        os.environ.setdefault("GIT_PYTHON_REFRESH", "quiet")
        from git import Git

        batch = Git(str(self.git_dir))
        batch.set_persistent_git_options(git_dir=str(self.git_dir), c=list(_QUIET))
        batch.update_environment(**self._environment)
        return batch


def end_all() -> None:
    """End every git process, because the threads that started them are abandoned."""
    for process in list(_RUNNING):
        process.terminate()


def find_git_dir(folder: Path) -> Path | None:
    """Return the git directory of a clone, a linked worktree or a bare clone, or None."""
    inner, gitdir = folder / ".git", "gitdir:"
    try:
        if inner.is_file() and inner.stat().st_size < 4096:
            text = inner.read_text("utf-8", "replace").strip()
            if not text.startswith(gitdir):
                return None
            inner = folder / text.removeprefix(gitdir).strip()
        for candidate in (inner, folder):
            if (candidate / "HEAD").exists():
                return candidate.resolve()
    except OSError:
        pass
    return None


def open_clone(folder: Path) -> GitCommand | None:
    """Return git for the clone in a folder, or None if there is none."""
    git_dir = find_git_dir(folder)
    return GitCommand(git_dir) if git_dir else None


def list_uncommitted(root: Path, paths: Iterable[Path]) -> list[str] | None:
    """Return the files that are changed, staged, untracked or ignored; None without a repository.

    Raises:
        NotelabError: git fails.
    """
    git_dir = find_git_dir(root)
    if git_dir is None:
        return None
    ran = GitCommand(git_dir, work_tree=root).run(
        *("status", "--porcelain", "-z", "--untracked-files=all", "--ignored", "--"),
        *(path.relative_to(root).as_posix() for path in paths),
    )
    if ran.status:
        raise NotelabError(f"git can't say what is committed: {ran.why()}")
    return [entry[3:] for entry in ran.out.decode("utf-8", "replace").split("\0") if entry]
