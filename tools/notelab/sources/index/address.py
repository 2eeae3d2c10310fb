"""Finds a wheel's address on the indexes, which unearth reads with the user's settings of pip."""

import ast
import logging
import os
import re
import subprocess
import sys
from functools import partial
from pathlib import Path
from shutil import which
from urllib.parse import urlsplit
from urllib.request import url2pathname

import msgspec

from notelab.sources.answers import SourceError
from notelab.sources.timeouts import run_within

_SETTINGS_SECONDS = 60
_SECTIONS = ("global", "install")  # the later section wins, and the environment wins over both
_YES = ("1", "true", "yes", "y", "on", "t")


class Settings(msgspec.Struct, frozen=True):
    """The indexes and what a client needs for them; addresses may hold credentials.

    `public` says whether the public index is asked too. `remark` says what could not be read.
    """

    public: bool = True
    indexes: tuple[str, ...] = ()
    find_links: tuple[str, ...] = ()
    trusted_hosts: tuple[str, ...] = ()
    certificates: str = ""
    client_certificate: str = ""
    proxy: str = ""
    remark: str = ""


def read() -> Settings:
    """Return pip's settings; if there is no pip, those in its environment variables."""
    listing, remark = _ask_pip()
    options: dict[str, str] = {}
    for section in _SECTIONS:
        lines = re.findall(rf"^{section}\.([^=\n]+)=(.*)$", listing, re.MULTILINE)
        options |= {key: _unquote(value.strip()) for key, value in lines}
    for name, value in os.environ.items():
        if name.startswith("PIP_") and value:
            options[name.removeprefix("PIP_").lower().replace("_", "-")] = value
    index, extra = options.get("index-url", "").strip(), options.get("extra-index-url", "").split()
    no_index = options.get("no-index", "").lower() in _YES
    return Settings(
        public=not no_index and not index,
        indexes=() if no_index else tuple([index, *extra] if index else extra),
        find_links=tuple(options.get("find-links", "").split()),
        trusted_hosts=tuple(options.get("trusted-host", "").split()),
        certificates=options.get("cert", ""),
        client_certificate=options.get("client-cert", ""),
        proxy=options.get("proxy", ""),
        remark=remark,
    )


def _ask_pip() -> tuple[str, str]:
    """Return the options in pip's files as it lists them, and why there are none if pip fails."""
    commands = [[sys.executable, "-m", "pip"]]
    commands += [[pip] for name in ("pip3", "pip") if (pip := which(name))]
    remark = "pip is not installed, so its configuration files are not read"
    for command in commands:
        try:
            ran = subprocess.run(
                [*command, "--no-input", "--disable-pip-version-check", "config", "list"],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                encoding="utf-8",
                errors="replace",
                timeout=_SETTINGS_SECONDS,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            continue
        if ran.returncode == 0:
            return ran.stdout, ""
        if "No module named" not in ran.stderr:
            remark = "`pip config list` fails"
    return "", f"{remark}: only the PIP_* variables are used"


def _unquote(text: str) -> str:
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text.strip("'\"")
    return value if isinstance(value, str) else text


_SECONDS = 60  # for one index
_SHA256 = re.compile(r"[0-9a-f]{64}")
_FAMILIAR = ("-none-any.whl", "x86_64.whl")


class Address(msgspec.Struct, frozen=True):
    """A wheel's address, its file name, and its SHA-256 if the index gives one."""

    url: str
    file: str
    sha256: str = ""

    @property
    def local(self) -> bool:
        """Tell whether the wheel is a file on this machine."""
        return urlsplit(self.url).scheme == "file"

    @property
    def place(self) -> Path:
        """Return the path of a wheel on this machine."""
        return Path(url2pathname(urlsplit(self.url).path))

    @property
    def is_sensitive(self) -> bool:
        """Tell whether the address may hold a secret or expire, so that it must not be cached."""
        parts = urlsplit(self.url)
        return bool("@" in parts.netloc or parts.query)


def find(requirement: str, settings: Settings, preferred: str, sha256: str) -> Address:
    """Return the address of a wheel of `requirement` (`name==version`).

    The wheel is only read, so one for another platform will do.

    Args:
        requirement: the distribution and its version.
        settings: the indexes, folders and credentials.
        preferred: the file name of the wheel that is preferred, or ''.
        sha256: the hash of that wheel, if it is known; it decides between two of the same name.

    Raises:
        SourceError: no index has such a wheel, or no index could be asked.
    """
    places = [*settings.indexes, *([""] if settings.public else []), *settings.find_links]
    addresses: list[Address] = []
    reasons: list[str] = []
    for number, place in enumerate(places):
        is_index = number < len(places) - len(settings.find_links)
        listing = partial(_list_wheels, requirement, settings, place, is_index=is_index)
        try:
            addresses += run_within(_SECONDS, "an index", listing)
        except SourceError as fault:
            reasons.append(str(fault))
        if any(each.file == preferred and each.sha256 == sha256 for each in addresses):
            break
    if not addresses:
        nothing = f"no index has a wheel of {requirement}" if places else "no index is set"
        why = list(dict.fromkeys(filter(None, [*reasons, settings.remark])))
        raise SourceError("; ".join(why if reasons else [nothing, *why]))
    named = [each for each in addresses if each.file == preferred]
    return next(
        (each for each in named if each.sha256 == sha256), min(named or addresses, key=_rank)
    )


def _rank(address: Address) -> tuple[bool, bool, str]:
    """Return the sort key: published builds before local ones (+cpu), then common platforms."""
    return "+" in address.file, not address.file.endswith(_FAMILIAR), address.file


def _list_wheels(
    requirement: str, settings: Settings, place: str, *, is_index: bool
) -> list[Address]:
    """Return the wheels of `requirement` on an index, or in a folder or on a page of links."""
    from unearth import PackageFinder
    from unearth.collector import is_secure_origin

    from notelab.sources.index.session import Fetcher, describe_error

    logging.getLogger("unearth").setLevel(logging.CRITICAL)  # a reason reports what it would log
    if not is_index and "://" not in place:
        place = os.path.expanduser(place)  # noqa: PTH111 (it may be an address)
        if not os.path.exists(place):  # noqa: PTH110
            return []
    fetcher = Fetcher(settings)
    places = [place] if place else []
    try:
        finder = PackageFinder(
            session=fetcher,
            index_urls=places if is_index else [],
            find_links=[] if is_index else places,
            ignore_compatibility=True,
            only_binary=[":all:"],
        )
        links = [match.link for match in finder.find_matches(requirement)]
        # A page from the network must not lead to a file of this machine.
        may_be_local = place.startswith("file:") or not (is_index or "://" in place)
        links = [link for link in links if may_be_local or not link.is_file]
        links = [link for link in links if is_secure_origin(fetcher, link)]
    except Exception as fault:  # an index may answer anything
        raise SourceError(describe_error(fault)) from None
    if not links and fetcher.trouble:
        raise SourceError(fetcher.trouble)
    return [
        Address(link.url_without_fragment, link.filename, _sha256(link.hash_option or {}))
        for link in links
    ]


def _sha256(hashes: dict[str, list[str]]) -> str:
    value = "".join(hashes.get("sha256", [])).lower()
    return value if _SHA256.fullmatch(value) else ""
