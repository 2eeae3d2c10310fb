"""Runs git safely on repositories that may be hostile."""

import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile

import msgspec

from notelab.lines import split_lines
from notelab.sources.answers import SourceError

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
# Variables by which a hook describes *its* repository (git rev-parse --local-env-vars).
_HANDED_DOWN = (
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_COMMON_DIR",
    "GIT_CONFIG",
    "GIT_CONFIG_COUNT",
    "GIT_CONFIG_PARAMETERS",
    "GIT_DIR",
    "GIT_GRAFT_FILE",
    "GIT_INDEX_FILE",
    "GIT_NAMESPACE",
    "GIT_OBJECT_DIRECTORY",
    "GIT_PREFIX",
    "GIT_QUARANTINE_PATH",
    "GIT_REPLACE_REF_BASE",
    "GIT_SHALLOW_FILE",
    "GIT_WORK_TREE",
)
_SPAWNING = threading.Lock()  # these variables are removed for the whole process
_RUNNING: "set[subprocess.Popen[bytes]]" = set()
NO_PROTOCOL = "none"  # no transport of this name exists


class GitResult(msgspec.Struct, frozen=True):
    """How a git command ended."""

    status: int
    out: bytes
    error: str

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
        protocols: the allowed transports, joined by ':'; with `NO_PROTOCOL` git fetches nothing,
            not even objects that a partial clone lacks.
        work_tree: the working tree, for commands that need one.
    """

    def __init__(
        self, git_dir: Path | None, protocols: str = NO_PROTOCOL, work_tree: Path | None = None
    ) -> None:
        """Bind the command; nothing runs yet."""
        # git runs inside that folder, where a relative path would lead elsewhere.
        self.git_dir = git_dir and git_dir.absolute()
        self.work_tree = work_tree and work_tree.absolute()
        self._protocols = protocols

    def run(self, *arguments: str, stdin: bytes = b"", timeout: float = 60) -> GitResult:
        """Run git and return how it ended.

        Args:
            arguments: the subcommand and its arguments.
            stdin: the standard input.
            timeout: the number of seconds after which git is terminated.

        Raises:
            SourceError: git is not installed.
        """
        os.environ.setdefault("GIT_PYTHON_REFRESH", "quiet")
        import git

        with TemporaryFile() as input_file:
            input_file.write(stdin)
            input_file.seek(0)
            try:
                with _SPAWNING, _without_git_environment():
                    running = git.Git(self.work_tree or self.git_dir).execute(
                        ["git", *self._options(), *arguments],
                        istream=input_file,
                        as_process=True,
                        env=self._environment(),
                    )
            except git.GitCommandNotFound:
                raise SourceError("git is not installed", hint="install git ≥ 2.30") from None
            process = running.proc
            assert process is not None
            return _wait_for(process, timeout)

    def _options(self) -> list[str]:
        options = ["--literal-pathspecs", "--no-pager"]
        for setting in _QUIET:
            options += ["-c", setting]
        if self.git_dir:
            options.append(f"--git-dir={self.git_dir}")
        if self.work_tree:
            options.append(f"--work-tree={self.work_tree}")
        return options

    def _environment(self) -> dict[str, str]:
        environment = {
            "GIT_ALLOW_PROTOCOL": self._protocols,
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_ASKPASS": "",
            "SSH_ASKPASS": "",
            "GIT_LFS_SKIP_SMUDGE": "1",
            "GIT_NO_REPLACE_OBJECTS": "1",
            "GIT_OPTIONAL_LOCKS": "0",
            "LC_ALL": "C",
        }
        if self._protocols == NO_PROTOCOL:
            environment["GIT_NO_LAZY_FETCH"] = "1"
        if "GIT_SSH_COMMAND" not in os.environ and "GIT_SSH" not in os.environ:
            environment["GIT_SSH_COMMAND"] = "ssh -oBatchMode=yes -oConnectTimeout=10"
        return environment


@contextmanager
def _without_git_environment() -> Iterator[None]:
    """Remove a hook's variables: GitPython can add to an environment, but not remove from it."""
    removed = {name: os.environ.pop(name) for name in _HANDED_DOWN if name in os.environ}
    try:
        yield
    finally:
        os.environ.update(removed)


def end_all() -> None:
    """Terminate every git process, because the threads that started them are abandoned."""
    for process in list(_RUNNING):
        process.terminate()


def _wait_for(process: "subprocess.Popen[bytes]", timeout: float) -> GitResult:
    """Wait for git; if the wait is interrupted, terminate git and let it clean up."""
    _RUNNING.add(process)
    try:
        out, error = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        _end(process)
        return GitResult(-1, b"", f"error: git gave no answer in {timeout:g} s")
    except BaseException:
        _end(process)
        raise
    finally:
        _RUNNING.discard(process)
    return GitResult(process.returncode, out, error.decode("utf-8", "replace"))


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    try:
        process.communicate(timeout=5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
