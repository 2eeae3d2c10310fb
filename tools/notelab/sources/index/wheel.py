"""Reads a wheel by HTTP ranges: its directory, its RECORD and the requested files only."""

import zipfile
from collections.abc import Iterable
from hashlib import file_digest, sha256
from itertools import pairwise

from notelab.sources.answers import MAX_FILE_BYTES, SourceError, Wheel
from notelab.sources.index.address import Address, Settings
from notelab.sources.package import Package, UnreadableMemberError

_LARGEST_GAP, _LARGEST_SPAN = 1 << 16, 1 << 23  # bytes skipped within, and read by, one request
_PLAIN = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


class WheelPackage(Package):
    """A wheel on the index or on disk; only the requested parts of it are downloaded.

    RECORD lists the hash of every file, and each file that is read must match it. A known hash of
    RECORD therefore identifies the whole wheel, although most of it is never read.
    """

    def __init__(self, archive: zipfile.ZipFile, address: Address, who: str) -> None:
        """Read the archive's directory and its RECORD.

        Raises:
            SourceError: it has no readable RECORD, so it is no wheel.
        """
        self.address, self._archive = address, archive
        self._members = {info.filename: info for info in archive.infolist() if not info.is_dir()}
        records = [name for name in self._members if _is_record(name)]
        if len(records) != 1:
            raise SourceError("it has no RECORD, so it is no wheel")
        try:
            record = self.bytes_of(records[0])
        except UnreadableMemberError as fault:
            raise SourceError(f"its RECORD can't be read: {fault}") from None
        super().__init__(who, record.decode("utf-8", "replace"))
        self.identity = Wheel(address.file, sha256(record).hexdigest(), address.sha256)

    def in_order(self, names: Iterable[str]) -> list[str]:
        """Sort files by their offset, and widen the ranges so that neighbours come together."""
        requested = set(names)
        offsets = sorted((info.header_offset, name) for name, info in self._members.items())
        begins = [*(begin for begin, _ in offsets), self._archive.start_dir]
        sizes = {begin: end - begin for begin, end in pairwise(begins)}
        wanted = [begin for begin, name in offsets if name in requested]
        for begin, after in reversed([*pairwise(wanted)]):
            gap, span = after - begin - sizes[begin], after - begin + sizes[after]
            if gap <= _LARGEST_GAP and span <= _LARGEST_SPAN:
                sizes[begin] = span
        if widen := getattr(self._archive.fp, "set_position_to_size", None):
            widen(sizes)  # remotezip requests that many bytes at an offset
        lacking = sorted(requested - self._members.keys())
        return lacking + [name for _, name in offsets if name in requested]

    def bytes_of(self, name: str) -> bytes:
        """Return a file's bytes; long, encrypted or unusually compressed files are refused."""
        info = self._members.get(name)
        if info is None:
            raise UnreadableMemberError("is in RECORD but not in the archive")
        if max(info.file_size, info.compress_size) > MAX_FILE_BYTES:
            raise UnreadableMemberError(
                f"{info.file_size:,} bytes, above {MAX_FILE_BYTES:,}; not read"
            )
        if info.compress_type not in _PLAIN or info.flag_bits & 1:
            raise UnreadableMemberError("compressed in a way that wheels don't use; not read")
        try:
            with self._archive.open(info) as stream:
                data = stream.read(MAX_FILE_BYTES + 1)
        except Exception as fault:  # a server may send any bytes
            raise UnreadableMemberError(_line(fault)) from None
        if len(data) != info.file_size:
            raise UnreadableMemberError(
                f"{len(data):,} bytes where it announces {info.file_size:,}"
            )
        return data


def open_wheel(address: Address, settings: Settings, who: str) -> WheelPackage:
    """Open the wheel at `address`.

    Raises:
        SourceError: it can't be reached, is no wheel, or its server knows no ranges.
    """
    try:
        if address.local:
            return WheelPackage(zipfile.ZipFile(address.place), address, who)
        from remotezip import RemoteZip  # type: ignore[import-untyped]

        from notelab.sources.index.session import Session

        archive = RemoteZip(address.url, session=Session(settings))
        return WheelPackage(archive, address, who)
    except SourceError:
        raise
    except Exception as fault:  # an index may answer anything
        raise SourceError(_line(fault)) from None


def sha256_of(address: Address) -> str:
    """Return the SHA-256 of a whole wheel on this machine.

    Raises:
        SourceError: it can't be read.
    """
    try:
        with address.place.open("rb") as stream:
            return file_digest(stream, "sha256").hexdigest()
    except OSError as fault:
        raise SourceError(_line(fault)) from None


def _is_record(name: str) -> bool:
    folder, _, last = name.rpartition("/")
    return last == "RECORD" and folder.endswith(".dist-info") and "/" not in folder


def _line(error: Exception) -> str:
    from notelab.sources.index.session import describe_error

    return describe_error(error)
