"""Whether a git host answers at all, asked once a run and for ten seconds at most."""

import os
import socket

from notelab.sources.answers import SourceError
from notelab.sources.git.command import GitCommand
from notelab.sources.git.url import endpoint
from notelab.sources.in_time import within

_SECONDS = 10
_OWN_WAYS = (
    *("https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"),
    *("GIT_SSH_COMMAND", "GIT_SSH", "GIT_PROXY_COMMAND"),
)


class Reach:
    """Remembers, for the length of a run, which hosts can't be reached."""

    def __init__(self) -> None:
        """Nothing is asked yet."""
        self._known: dict[tuple[str, int], str] = {}

    def check(self, url: str, git: GitCommand) -> None:
        """Connect to the host of `url`, as git's own settings would have it.

        Raises:
            SourceError: it can't be reached; a proxy is taken on trust.
        """
        rewritten = git.run("ls-remote", "--get-url", "--", url)
        where = rewritten.out.decode("utf-8", "replace").strip() if not rewritten.status else ""
        place = endpoint(where or url)
        if place is None or any(map(os.environ.get, _OWN_WAYS)):
            return
        if git.run("config", "--get-urlmatch", "http.proxy", where or url).status == 0:
            return
        if place not in self._known:
            self._known[place] = _connected(*place)
        if self._known[place]:
            raise SourceError(self._known[place])


def _connected(host: str, port: int) -> str:
    """Return '' once a connection stands, else why none does; name servers may hang for longer."""
    try:
        within(_SECONDS, host, lambda: socket.create_connection((host, port), _SECONDS).close())
    except OSError as fault:
        return f"{host} can't be reached ({fault.strerror or fault})"
    except SourceError:
        return f"{host} can't be reached (no answer in {_SECONDS} s)"
    return ""
