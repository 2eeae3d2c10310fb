"""A wheel on the package index, read by range: its directory and the files asked for, no more."""

import zipfile
from collections.abc import Collection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

from notelab.sources.model import MAX_FILE_BYTES, SourceError
from notelab.sources.package import UnreadableMemberError
from notelab.sources.wheel_address import Address

_PLAIN = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_CONNECT, _READ = 10, 30  # seconds


class WheelPackage:
    """A wheel, opened where it is; only what is asked of it is moved."""

    def __init__(self, archive: zipfile.ZipFile, who: str) -> None:
        """Keep the archive's directory at hand."""
        self.who = who
        self._archive = archive
        self._members = {info.filename: info for info in archive.infolist() if not info.is_dir()}

    def names(self) -> Collection[str]:
        """Return the paths of the wheel's files."""
        return self._members

    def read(self, name: str) -> bytes:
        """Return a member's bytes; one too long, encrypted or otherwise packed is refused."""
        info = self._members[name]
        if max(info.file_size, info.compress_size) > MAX_FILE_BYTES:
            raise UnreadableMemberError(
                f"{info.file_size:,} bytes, above {MAX_FILE_BYTES:,}; not read"
            )
        if info.compress_type not in _PLAIN or info.flag_bits & 1:
            raise UnreadableMemberError("packed in a way that wheels aren't; not read")
        try:
            with self._archive.open(info) as stream:
                data = stream.read(MAX_FILE_BYTES + 1)
        except Exception as fault:  # whatever a server made of the bytes
            raise UnreadableMemberError(_line(fault)) from None
        if len(data) != info.file_size:
            raise UnreadableMemberError(
                f"{len(data):,} bytes where it announces {info.file_size:,}"
            )
        return data


def open_wheel(address: Address, who: str) -> WheelPackage:
    """Open the wheel at `address`.

    Raises:
        SourceError: it can't be reached, is no wheel, or its server knows no ranges.
    """
    parts = urlsplit(address.url)
    try:
        if parts.scheme == "file":
            place = Path(url2pathname(parts.path))
            return WheelPackage(zipfile.ZipFile(place), who)
        import requests
        from remotezip import RemoteZip  # type: ignore[import-untyped]

        archive = RemoteZip(address.url, session=requests.Session(), **_how(address))
        return WheelPackage(archive, who)
    except Exception as fault:  # an index's answer may be anything at all
        raise SourceError(_line(fault)) from None


def _how(address: Address) -> dict[str, Any]:
    how: dict[str, Any] = {"timeout": (_CONNECT, _READ)}
    if address.certificates:
        how["verify"] = address.certificates
    if address.proxy:
        how["proxies"] = {"http": address.proxy, "https": address.proxy}
    return how


def _line(fault: Exception) -> str:
    from notelab.sources.git_url import shown

    return shown(" ".join(f"{type(fault).__name__}: {fault}".split()))
