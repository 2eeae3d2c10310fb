"""An HTTP session with the access that pip has; unearth and remotezip use it as it is."""

import re
from collections.abc import Iterable, Mapping
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import requests
from requests.adapters import HTTPAdapter
from unearth.auth import MultiDomainBasicAuth
from unearth.fetchers import DEFAULT_SECURE_ORIGINS
from unearth.link import Link
from urllib3 import Retry

from notelab.sources.index.address import Settings

_TIMEOUTS = 10, 30  # seconds, to connect and to read
_RETRY = Retry(
    total=2, backoff_factor=0.3, status_forcelist=(500, 502, 503, 504), raise_on_status=False
)
_ADDRESS = re.compile(r"\b[\w+.-]+://[^\s'\"<>)\]]+")
_PATH = re.compile(r"(?:with|for) url: \S+")


class Session(requests.Session):
    """A session with the user's certificates, proxy, credentials and trusted hosts."""

    def __init__(self, settings: Settings) -> None:
        """Apply the settings; nothing is connected yet."""
        super().__init__()
        self.auth = MultiDomainBasicAuth(prompting=False, index_urls=settings.indexes)
        self.cert = settings.client_certificate or None
        self.verify = settings.certificates or True
        if settings.proxy:
            self.proxies = {"http": settings.proxy, "https": settings.proxy}
            self.trust_env = False  # else the environment's proxy would win; `auth` reads netrc
        for scheme in ("http", "https"):
            self.mount(f"{scheme}://", HTTPAdapter(max_retries=_RETRY))
        for host in settings.trusted_hosts:
            self.mount(f"https://{host}/", _Trusting(max_retries=_RETRY))
            if ":" not in host:
                self.mount(f"https://{host}:", _Trusting(max_retries=_RETRY))

    def request(self, *arguments: Any, **options: Any) -> requests.Response:
        """Send a request with timeouts; configured certificates win over the environment's."""
        options["timeout"] = options.get("timeout") or _TIMEOUTS
        if options.get("verify") is None and self.verify is not True:
            options["verify"] = self.verify
        return super().request(*arguments, **options)


class _Trusting(HTTPAdapter):
    """An adapter for hosts that the user trusts with any certificate."""

    def cert_verify(self, conn: Any, url: str, verify: Any, cert: Any) -> None:
        super().cert_verify(conn, url, False, cert)  # type: ignore[no-untyped-call]

    def send(self, *arguments: Any, **options: Any) -> requests.Response:
        from warnings import catch_warnings, simplefilter

        with catch_warnings():
            simplefilter("ignore")
            return super().send(*arguments, **options)


class Fetcher:
    """Fetches pages for unearth, and remembers the error that unearth only logs."""

    def __init__(self, settings: Settings) -> None:
        """Open a session; nothing is asked yet."""
        self._session, self._trusted = Session(settings), settings.trusted_hosts
        self.trouble = ""

    def get(self, url: str, *, headers: Mapping[str, str] | None = None) -> Any:
        """Return a page of the index or a file on disk."""
        link = Link(url)
        if link.is_file:
            return _read_page(link)
        answer = self._session.get(url, headers=headers)
        if answer.status_code >= 400 and answer.status_code != 404:
            self.trouble = f"{host_of(url)} answers {answer.status_code}"
        return answer

    def head(self, url: str, *, headers: Mapping[str, str] | None = None) -> Any:
        """Ask for the headers of a page."""
        return self._session.head(url, headers=headers, allow_redirects=True)

    def get_stream(self, url: str, *, headers: Mapping[str, str] | None = None) -> Any:
        """Refuse, because unearth would download a whole wheel to hash it."""
        raise NotImplementedError

    def iter_secure_origins(self) -> Iterable[tuple[str, str, str]]:
        """Yield the origins that are secure: https, this machine and the user's trusted hosts."""
        yield from DEFAULT_SECURE_ORIGINS
        for host in self._trusted:
            name, _, port = host.partition(":")
            yield "*", name, port or "*"


def _read_page(link: Link) -> Any:
    try:
        content, status, reason = link.file_path.read_bytes(), 200, "OK"
    except OSError as fault:
        content, status, reason = b"", 404, fault.strerror or "unreadable"
    kind = "json" if content[:1] == b"{" else "html"
    headers = {"Content-Type": f"application/vnd.pypi.simple.v1+{kind}"}
    page = {"content": content, "encoding": "utf-8", "headers": headers, "url": link.url}
    return SimpleNamespace(status_code=status, reason=reason, **page)


def host_of(url: str) -> str:
    """Return how reasons name an address: by its host, without credentials, path or query."""
    parts = urlsplit(url)
    return parts.netloc.rpartition("@")[2] or f"{parts.scheme}:"


def describe_error(fault: BaseException) -> str:
    """Describe an error in one line without any full address, so without credentials."""
    text = _ADDRESS.sub(lambda match: host_of(match[0]), str(fault))
    if isinstance(fault, requests.ConnectionError):
        host = re.search(r"host='([^']+)'", text)
        why = re.search(r"\((?:Caused by )?[\w.]*?(\w+)\((?:.*?: )?([^()]*)\)?", text)
        cause = re.findall(r"\[Errno -?\d+\] ([^')\"]+)", text)
        reason = cause[-1] if cause else (why[1] if why else type(fault).__name__)
        return f"{host[1] if host else 'the index'} can't be reached ({reason})"[:200]
    text = " ".join(_PATH.sub("", text).split())
    return f"{type(fault).__name__}: {text}"[:200]
