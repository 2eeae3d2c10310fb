"""Running git on data that nobody vouches for."""

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

# What a repository's own configuration could make git run, switched off for every command.
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
# What a hook hands down about *its* repository (git rev-parse --local-env-vars).
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
_SPAWNING = threading.Lock()  # the environment that is taken away is the whole process's
_RUNNING: "set[subprocess.Popen[bytes]]" = set()
NONE = "none"  # no transport of this name exists


class Ran(msgspec.Struct, frozen=True):
    """How a git command ended."""

    status: int
    out: bytes
    error: str

    def why(self) -> str:
        """Return what git complained of, in one line."""
        lines = [line.strip() for line in split_lines(self.error) if line.strip()]
        telling = [line for line in lines if line.startswith(("fatal:", "error:"))]
        return (telling or lines or [f"git ended with status {self.status}"])[-1][:200]


class GitCommand:
    """git, bound to one repository and to the transports that it may use.

    Args:
        git_dir: the repository; naming it keeps git from asking who owns it. None where there is
            none yet.
        protocols: the transports allowed, joined by ':'; `NONE` lets it fetch nothing, not even
            what a partial clone lacks.
    """

    def __init__(
        self, git_dir: Path | None, protocols: str = NONE, work_tree: Path | None = None
    ) -> None:
        """Nothing runs yet."""
        # git runs in that folder, where a relative path would lead elsewhere.
        self.git_dir = git_dir and git_dir.absolute()
        self.work_tree = work_tree and work_tree.absolute()
        self._protocols = protocols

    def run(self, *arguments: str, stdin: bytes = b"", timeout: float = 60) -> Ran:
        """Run git and return how it ended.

        Args:
            arguments: of git, after its own options.
            stdin: what it reads.
            timeout: seconds after which it is ended.

        Raises:
            SourceError: there is no git on this machine.
        """
        os.environ.setdefault("GIT_PYTHON_REFRESH", "quiet")
        import git

        with TemporaryFile() as given:
            given.write(stdin)
            given.seek(0)
            try:
                with _SPAWNING, _own_environment():
                    running = git.Git(self.work_tree or self.git_dir).execute(
                        ["git", *self._options(), *arguments],
                        istream=given,
                        as_process=True,
                        env=self._environment(),
                    )
            except git.GitCommandNotFound:
                raise SourceError("git is not installed", hint="install git ≥ 2.30") from None
            process = running.proc
            assert process is not None
            return _ended(process, timeout)

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
        if self._protocols == NONE:
            environment["GIT_NO_LAZY_FETCH"] = "1"
        if "GIT_SSH_COMMAND" not in os.environ and "GIT_SSH" not in os.environ:
            environment["GIT_SSH_COMMAND"] = "ssh -oBatchMode=yes -oConnectTimeout=10"
        return environment


@contextmanager
def _own_environment() -> Iterator[None]:
    """Take away what a hook handed down: GitPython can add to an environment, not take from it."""
    kept = {name: os.environ.pop(name) for name in _HANDED_DOWN if name in os.environ}
    try:
        yield
    finally:
        os.environ.update(kept)


def end_all() -> None:
    """End every git that runs in some thread: whoever started it won't come back for it."""
    for process in list(_RUNNING):
        process.terminate()


def _ended(process: "subprocess.Popen[bytes]", timeout: float) -> Ran:
    """Wait for git; whatever ends the wait ends git too, and lets it tidy up after itself."""
    _RUNNING.add(process)
    try:
        out, error = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        _end(process)
        return Ran(-1, b"", f"error: git gave no answer in {timeout:g} s")
    except BaseException:
        _end(process)
        raise
    finally:
        _RUNNING.discard(process)
    return Ran(process.returncode, out, error.decode("utf-8", "replace"))


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    try:
        process.communicate(timeout=5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
