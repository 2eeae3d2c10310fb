"""Makes `make serve` refuse other hosts' names, and lets its reload script run under the policy.

Another site can make its own name lead to this machine (DNS rebinding) and then read the pages that
are served here. The browser still sends that name as the Host header, so the server can refuse it.
"""

import re
from collections.abc import Callable, Iterable
from ipaddress import ip_address
from typing import Any

from mkdocs.livereload import LiveReloadServer

from sitelab.theme.content_policy import hash_script

_HOST = re.compile(r"(\[[^\]]*\]|[^:]*)(?::\d+)?")
_LAST_SCRIPT = re.compile(rb"<script>((?:(?!<script>).)*)</script></body>", re.DOTALL)
_SOURCES = b"script-src 'self'"


def guard_server(server: LiveReloadServer, configured_host: str) -> None:
    """Make `server` refuse other hosts, and allow its pages to run the script that reloads them.

    Args:
        server: mkdocs's server, before it serves.
        asked: the host that `--dev-addr` or mkdocs.yml names; it is answered too.
    """
    answer: Any = server.get_app()

    def refuse_other_hosts(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        host = environ.get("HTTP_HOST", "")
        if is_local(host, configured_host):
            return answer(environ, start)  # type: ignore[no-any-return]
        start("403 Forbidden", [("Content-Type", "text/plain; charset=utf-8")])
        return [f"This server answers no host named {host!r}; ask for {server.url}\n".encode()]

    server.set_app(refuse_other_hosts)
    inject: Any = server._inject_js_into_html

    def inject_under_policy(content: bytes, epoch: int) -> bytes:
        page: bytes = inject(content, epoch)
        script = _LAST_SCRIPT.search(page)
        if not script:
            return page
        allowed = _SOURCES + b" " + hash_script(script[1].decode()).encode()
        return page.replace(_SOURCES, allowed, 1)

    server._inject_js_into_html = inject_under_policy  # type: ignore[method-assign]


def is_local(host: str, configured_host: str) -> bool:
    """Return whether a Host header is an IP address, localhost or the configured host.

    >>> is_local("localhost:8000", ""), is_local("[::1]", ""), is_local("evil.example:8000", "")
    (True, True, False)
    """
    match = _HOST.fullmatch(host)
    name = match[1].strip("[]").lower() if match else ""
    if name in ("localhost", configured_host.lower()):
        return bool(name)
    try:
        ip_address(name)
    except ValueError:
        return False
    return True  # no other site's name is an IP address
