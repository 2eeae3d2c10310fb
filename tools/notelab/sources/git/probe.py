"""Finds out whether a git host answers; each host is asked once a run, for ten seconds."""

import os
import socket

from notelab.sources.answers import SourceError
from notelab.sources.git.command import NETWORK, GitCommand
from notelab.sources.git.url import check_url, endpoint
from notelab.sources.timeouts import run_within

_SECONDS = 10
_OWN_WAYS = (
    *("https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"),
    *("GIT_SSH_COMMAND", "GIT_SSH", "GIT_PROXY_COMMAND"),
)


class HostProbe:
    """Remembers during one run which hosts can't be reached."""

    def __init__(self) -> None:
        """Start with no host known."""
        self._known: dict[tuple[str, int], str] = {}

    def check(self, url: str) -> None:
        """Connect to the host of `url`, after git's settings have rewritten the address.

        With a proxy or a command of the user's own, no connection is tried.

        Raises:
            SourceError: it can't be reached, or git isn't allowed to use such an address.
        """
        check_url(url)
        git = GitCommand(None, NETWORK)
        where = git.run("ls-remote", "--get-url", "--", url).text or url
        place = endpoint(where)
        if place is None or any(map(os.environ.get, _OWN_WAYS)):
            return
        if git.run("config", "--get-urlmatch", "http.proxy", where).status == 0:
            return
        if place not in self._known:
            self._known[place] = _connect(*place)
        if self._known[place]:
            raise SourceError(self._known[place])


def _connect(host: str, port: int) -> str:
    """Connect once; return '' or why it failed. A limit applies, as name servers may hang."""
    try:
        run_within(_SECONDS, host, lambda: socket.create_connection((host, port), _SECONDS).close())
    except OSError as fault:
        return f"{host} can't be reached ({fault.strerror or fault})"
    except SourceError:
        return f"{host} can't be reached (no answer in {_SECONDS} s)"
    return ""
