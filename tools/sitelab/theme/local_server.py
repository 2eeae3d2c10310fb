"""The local server: an answer while the pages are built, and no answer to other hosts' names.

mkdocs answers only after the first build. Until then a page stands at the address that loads itself
again. Its reload script may run under the site's policy.

Another site can make its own name lead to this machine (DNS rebinding) and then read the pages that
are served here. The browser still sends that name as the Host header, so the server can refuse it.
"""

import re
import threading
from collections.abc import Callable, Iterable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from typing import Any

from mkdocs.livereload import LiveReloadServer

from sitelab.theme.content_policy import hash_script

_HOST = re.compile(r"(\[[^\]]*\]|[^:]*)(?::\d+)?")
_LAST_SCRIPT = re.compile(rb"<script>((?:(?!<script>).)*)</script></body>", re.DOTALL)
_SOURCES = b"script-src 'self'"


_WAITING = b"""<!doctype html><meta charset="utf-8"><title>Shardbook</title>
<style>body{font:1.2rem/1.5 system-ui;margin:20vh auto;max-width:30rem;padding:0 1rem}
@media(prefers-color-scheme:dark){body{background:#1e2129;color:#e2e4e9}}</style>
<p>The pages are being built. They appear here by themselves.
<p lang="es">Las p\xc3\xa1ginas se est\xc3\xa1n generando. Aparecer\xc3\xa1n aqu\xc3\xad solas."""


class _Waiting(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(503)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Refresh", "1")
        self.end_headers()
        self.wfile.write(_WAITING)

    def log_message(self, format: str, *args: Any) -> None:
        pass


class WaitingServer:
    """Answers every request with a page that waits for the first build.

    Args:
        host, port: where mkdocs will serve.

    Raises:
        OSError: the address can't be had; another program may serve there.
    """

    def __init__(self, host: str, port: int) -> None:
        """Answer from now on."""
        self._server = ThreadingHTTPServer((host, port), _Waiting)
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def close(self) -> None:
        """Leave the address to mkdocs."""
        self._server.shutdown()
        self._server.server_close()


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
