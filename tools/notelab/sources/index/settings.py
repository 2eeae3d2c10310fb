"""Reads the user's settings for package indexes from pip."""

import ast
import os
import re
import subprocess
import sys
from shutil import which

import msgspec

_SECONDS = 60
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
                timeout=_SECONDS,
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
