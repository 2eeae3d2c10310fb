"""Where the package index keeps a wheel: pip is asked, so that the user's own settings hold."""

import json
import os
import re
import subprocess
import sys
from urllib.parse import urlsplit, urlunsplit

import msgspec

from notelab.sources.model import SourceError

_OLDEST_PIP = 25
_SECONDS = 60
# A wheel is only read, so the reader's own platform doesn't matter; one that was published does.
_PUBLISHED_FOR = (("3.12", "x86_64"), ("3.11", "x86_64"), ("3.10", "x86_64"), ("3.12", "aarch64"))
_SETTING = re.compile(r"^(?P<scope>[^.]*)\.(?P<key>[^=]+)=(?P<value>.*)$")


class Address(msgspec.Struct, frozen=True):
    """A wheel's address, and what a client needs in order to be let in as pip is."""

    url: str
    certificates: str = ""
    proxy: str = ""


def find(requirement: str) -> Address:
    """Return where the index keeps the wheel of `requirement` (`name==version`).

    Raises:
        SourceError: pip is missing or too old, the index can't be reached, or it has no such wheel.
    """
    _check_pip()
    complaint = ""
    for version, machine in _PUBLISHED_FOR:
        url, complaint = _ask(requirement, version, machine)
        if url:
            settings = _settings()
            return Address(
                url=_with_credentials(url, settings),
                certificates=settings.get("cert", ""),
                proxy=settings.get("proxy", ""),
            )
        if "No matching distribution" not in complaint:
            break
    raise SourceError(complaint)


def _check_pip() -> None:
    from importlib.metadata import PackageNotFoundError, version

    try:
        there = version("pip")
    except PackageNotFoundError:
        raise SourceError("pip is not installed beside shardbook (pip ≥ 25 is asked)") from None
    if int(there.partition(".")[0]) < _OLDEST_PIP:
        raise SourceError(f"pip is {there}; asking the index needs pip ≥ {_OLDEST_PIP}")


def _ask(requirement: str, version: str, machine: str) -> tuple[str, str]:
    """Return the address and '', or '' and pip's complaint in a line."""
    options = ["--dry-run", "--no-deps", "--ignore-installed", "--use-feature=fast-deps"]
    options += ["--quiet", "--report", "-", "--only-binary=:all:", "--python-version", version]
    for tag in ("manylinux_2_28", "manylinux_2_17", "manylinux2014"):
        options += ["--platform", f"{tag}_{machine}"]
    ran = _pip("install", *options, "--", requirement)
    if ran.returncode:
        lines = [line for line in ran.stderr.splitlines() if line.startswith("ERROR:")]
        telling = [line for line in lines if "No matching" in line] or lines or ["ERROR: no answer"]
        return "", _without_credentials(telling[-1].removeprefix("ERROR: "))
    try:
        url = json.loads(ran.stdout)["install"][0]["download_info"]["url"]
    except (ValueError, LookupError, TypeError):
        return "", "pip's report holds no address"
    if not isinstance(url, str) or urlsplit(url).scheme not in ("http", "https", "file"):
        return "", "pip's report holds no address that can be read"
    return url, ""


def _pip(*arguments: str) -> "subprocess.CompletedProcess[str]":
    try:
        return subprocess.run(
            [sys.executable, "-m", "pip", "--no-input", "--disable-pip-version-check", *arguments],
            capture_output=True,
            stdin=subprocess.DEVNULL,
            text=True,
            encoding="utf-8",
            errors="replace",
            timeout=_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise SourceError(f"pip gave no answer in {_SECONDS} s") from None


def _settings() -> dict[str, str]:
    """Return pip's settings by name, the environment's above the files'."""
    found: dict[str, str] = {}
    for line in _pip("config", "list").stdout.splitlines():
        match = _SETTING.match(line)
        if match and match["scope"] in ("global", "install"):
            found[match["key"]] = match["value"].strip("'\"")
    for name in ("cert", "proxy", "index-url", "extra-index-url"):
        value = os.environ.get("PIP_" + name.upper().replace("-", "_"))
        if value:
            found[name] = value
    return found


def _with_credentials(url: str, settings: dict[str, str]) -> str:
    """Carry the index's own credentials over to a file on the same host."""
    parts = urlsplit(url)
    if "@" in parts.netloc or parts.scheme == "file":
        return url
    for index in f"{settings.get('index-url', '')} {settings.get('extra-index-url', '')}".split():
        there = urlsplit(index)
        credentials, at, host = there.netloc.rpartition("@")
        if at and host == parts.netloc and there.scheme == parts.scheme:
            return urlunsplit(parts._replace(netloc=f"{credentials}@{host}"))
    return url


def _without_credentials(text: str) -> str:
    return re.sub(r"//[^/@\s]*@", "//", text)[:200]
