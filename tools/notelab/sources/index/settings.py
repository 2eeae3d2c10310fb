"""The user's own settings for package indexes, as pip knows them."""

import ast
import os
import re
import subprocess
import sys
from shutil import which

import msgspec

from notelab.lines import split_lines

_SECONDS = 60
_LINE = re.compile(r"^(?P<section>:env:|[^.=]*)\.(?P<key>[^=]+)=(?P<value>.*)$")
_SECTIONS = ("global", "install")  # the later one wins, and the environment over both
_YES = ("1", "true", "yes", "y", "on", "t")


class Settings(msgspec.Struct, frozen=True):
    """Where packages are looked for, and what lets a client in; addresses may hold credentials.

    `public` says that the public index is asked too. `remark` says what could not be read.
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
    """Return pip's settings; where no pip answers, those of its environment variables."""
    told, remark = _told_by_pip()
    found: dict[str, str] = {}
    for section in _SECTIONS:
        found |= told.get(section, {})
    for name, value in os.environ.items():
        if name.startswith("PIP_") and value:
            found[name.removeprefix("PIP_").lower().replace("_", "-")] = value
    index, extra = found.get("index-url", "").strip(), found.get("extra-index-url", "").split()
    none = found.get("no-index", "").lower() in _YES
    return Settings(
        public=not none and not index,
        indexes=() if none else tuple([index, *extra] if index else extra),
        find_links=tuple(found.get("find-links", "").split()),
        trusted_hosts=tuple(found.get("trusted-host", "").split()),
        certificates=found.get("cert", ""),
        client_certificate=found.get("client-cert", ""),
        proxy=found.get("proxy", ""),
        remark=remark,
    )


def _told_by_pip() -> tuple[dict[str, dict[str, str]], str]:
    """Return what pip's files say, by section, and why nothing if no pip could be asked."""
    commands = [[sys.executable, "-m", "pip"]]
    commands += [[pip] for name in ("pip3", "pip") if (pip := which(name))]
    remark = "there is no pip to say what its files hold"
    for command in commands:
        try:
            ran = subprocess.run(
                [*command, "--no-input", "--disable-pip-version-check", "config", "list"],
                capture_output=True,
                stdin=subprocess.DEVNULL,
                text=True,
                encoding="utf-8",
                errors="replace",
                timeout=_SECONDS,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            continue
        if ran.returncode == 0:
            return _parsed(ran.stdout), ""
        if "No module named" not in ran.stderr:
            remark = "`pip config list` fails"
    return {}, f"{remark}: only PIP_* of the environment is heeded"


def _parsed(listing: str) -> dict[str, dict[str, str]]:
    told: dict[str, dict[str, str]] = {}
    for line in split_lines(listing):
        match = _LINE.match(line)
        if match:
            told.setdefault(match["section"], {})[match["key"]] = _unquoted(match["value"])
    return told


def _unquoted(text: str) -> str:
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text.strip("'\"")
    return value if isinstance(value, str) else text
