"""Published wheels as a provider: opened where the index keeps them, what was learnt is kept."""

import os
import threading
from collections.abc import Callable
from typing import TypeVar

import msgspec

from notelab.sources import package
from notelab.sources.answers import Answers, Refused, Source, SourceError, Wanted, Wheel
from notelab.sources.in_time import within
from notelab.sources.kept import Kept

TYPE_CHECKING = False
if TYPE_CHECKING:
    from notelab.sources.index.address import Address
    from notelab.sources.index.settings import Settings
    from notelab.sources.index.wheel import WheelPackage

T = TypeVar("T")
_SECONDS = 120  # for all that is asked of one wheel at a time: a server may send a byte a minute


class Published:
    """The wheels on the package index, each opened once.

    Args:
        kept: what was learnt in earlier runs.
        tell: is told what the user should know though nothing failed.
    """

    def __init__(self, kept: Kept, tell: Callable[[str], None]) -> None:
        """Nothing is asked yet."""
        self._kept, self._tell = kept, tell
        self._opened: dict[tuple[str, ...], WheelPackage | str] = {}
        self._settings_: Settings | None = None
        self._reading = threading.Lock()

    def offer(self, source: Source, wanted: Wanted) -> Answers:
        """Return what the source's wheel has of `wanted`.

        A wheel other than the one that the lock knows delivers only files that the lock knows.

        Raises:
            SourceError: there is no such wheel, it can't be read, or it isn't the one locked.
        """
        if not source.wheel:
            return {}
        answers = self._known_to_lack(source, wanted)
        wanted = {path: blob for path, blob in wanted.items() if path not in answers}
        if not wanted:
            return answers
        wheel = self.package(source)
        if source.known and wheel.identity.file != source.known.file:
            reason = (
                f"{wheel.who}: {wheel.identity.file} is not {source.known.file}, which the lock "
                "knows, so it proves only files that the lock knows"
            )
            answers |= {path: Refused(reason) for path, blob in wanted.items() if blob is None}
            wanted = {path: blob for path, blob in wanted.items() if blob}
        return answers | self._in_time(source, lambda: package.offer(wheel, source, wanted))

    def identity(self, source: Source) -> Wheel:
        """Return which wheel the index has for the source.

        Raises:
            SourceError: there is no such wheel, or it can't be read.
        """
        opened = self.package(source)
        if opened.identity.sha256 or not opened.address.local:
            return opened.identity
        from notelab.sources.index.wheel import sha256_of

        return msgspec.structs.replace(opened.identity, sha256=sha256_of(opened.address))

    def package(self, source: Source) -> "WheelPackage":
        """Return the source's wheel, opened; only what is asked of it is moved.

        Raises:
            SourceError: there is no such wheel, or it can't be read.
        """
        key = _asked(source)
        opened = self._opened.get(key) or self._kept.refusal("wheel", *key)
        if not opened:
            opened = self._in_time(source, lambda: self._found(source))
            self._kept.refuse("", "wheel", *key)
        self._opened[key] = opened
        if isinstance(opened, str):
            raise SourceError(opened)
        return opened

    def built_from(self, source: Source) -> str:
        """Return the commit that the source's wheel names.

        Raises:
            SourceError: it names none, there is no such wheel, or it can't be read.
        """
        wheel = self.package(source)
        commit = self._in_time(source, lambda: package.commit_of(wheel))
        if not commit:
            raise SourceError("names no commit that it was built from")
        return commit

    def _known_to_lack(self, source: Source, wanted: Wanted) -> Answers:
        """Return the files that the wheel is known not to hold: nobody need be asked for them."""
        wheel = source.known or self._kept.get("identity", _asked(source), Wheel)
        names = wheel and self._kept.get("members", (wheel.record,), frozenset[str])
        if not names:
            return {}
        who = f"wheel {source.wheel}"
        return {
            path: package.absent(who, path, names, blob)
            for path, blob in wanted.items()
            if path not in names
        }

    def _in_time(self, source: Source, work: Callable[[], T]) -> T:
        try:
            return within(_SECONDS, f"wheel {source.wheel}", work)
        except SourceError as fault:
            self._opened[_asked(source)] = str(fault)
            self._kept.refuse(str(fault), "wheel", *_asked(source))
            raise

    def _found(self, source: Source) -> "WheelPackage":
        from notelab.sources.index.address import Address, find

        before = self._kept.get("address", _asked(source), Address)
        if before:
            try:
                return self._opened_at(source, before)
            except SourceError:
                pass  # moved, or never right: the index is asked again
        known = source.known or Wheel("", "")
        address = find(source.wheel or "", self._settings(), known.file, known.sha256)
        opened = self._opened_at(source, address)
        if not address.local and not address.telling:
            self._kept.put("address", _asked(source), address)
        self._kept.put("identity", _asked(source), opened.identity)
        self._kept.put("members", (opened.identity.record,), sorted(opened.names))
        return opened

    def _opened_at(self, source: Source, address: "Address") -> "WheelPackage":
        from notelab.sources.index.wheel import open_wheel

        known = source.known if source.known and source.known.file == address.file else None
        if known and known.sha256 and address.sha256 not in ("", known.sha256):
            raise SourceError(
                f"{address.file} is another than the lock's and is not read: the index gives "
                f"sha256 {address.sha256}, the lock has {known.sha256}"
            )
        opened = open_wheel(address, self._settings(), f"wheel {source.wheel}")
        if known and opened.identity.record != known.record:
            raise SourceError(
                f"{address.file} is another than the lock's and is not read: its RECORD has "
                f"sha256 {opened.identity.record}, the lock knows {known.record}"
            )
        if known and known.sha256 and not address.sha256 and not address.local:
            self._tell(f"the index gives no hash for {address.file}: only its RECORD was compared")
        return opened

    def _settings(self) -> "Settings":
        from notelab.sources.index import settings

        with self._reading:
            if self._settings_ is None:
                self._settings_ = settings.read()
                if self._settings_.remark:
                    self._tell(self._settings_.remark)
            return self._settings_


def _asked(source: Source) -> tuple[str, ...]:
    """Return all that decides which wheel is found; pip's files aside, which only pip reads."""
    own = sorted(f"{name}={value}" for name, value in os.environ.items() if name[:4] == "PIP_")
    known = source.known
    return (source.wheel or "", *((known.file, known.record, known.sha256) if known else ()), *own)
