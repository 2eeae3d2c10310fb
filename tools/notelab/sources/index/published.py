"""The provider that reads published wheels on the index; facts about them are cached."""

import os
from collections.abc import Callable
from contextlib import suppress
from functools import cached_property, partial
from typing import TypeVar

import msgspec

from notelab.sources import package
from notelab.sources.answers import Answers, Refused, Source, SourceError, Wanted, Wheel
from notelab.sources.index.address import Address, find
from notelab.sources.store import Store
from notelab.sources.timeouts import run_within

TYPE_CHECKING = False
if TYPE_CHECKING:
    from notelab.sources.index.address import Settings
    from notelab.sources.index.wheel import WheelPackage
_SECONDS = 120  # for one batch of questions to a wheel, because a server may be endlessly slow
T = TypeVar("T")


class _StoredWheel(msgspec.Struct, frozen=True):
    """What the store keeps of a wheel: its files, and its address unless that is secret."""

    address: Address | None
    names: frozenset[str]


class Published:
    """Reads wheels on the package index; each wheel is opened once.

    Args:
        store: the answers of earlier runs.
        tell: reports what the user should know although nothing failed.
    """

    def __init__(self, store: Store, tell: Callable[[str], None]) -> None:
        """Remember the store; nothing is asked yet."""
        self._store, self._tell = store, tell
        self._opened: dict[tuple[str, ...], WheelPackage | str] = {}

    def offer(self, source: Source, wanted: Wanted) -> Answers:
        """Return what the source's wheel holds of `wanted`.

        If the wheel differs from the one in the lock, it delivers only files that the lock knows.

        Raises:
            SourceError: there is no such wheel, it can't be read, or it isn't the locked one.
        """
        if not source.wheel:
            return {}
        stored = self._store.get_answer("wheel", _StoredWheel, *_key_of(source))
        if stored and stored.names.isdisjoint(wanted):  # nothing of it needs to be asked again
            return package.make_absent(f"wheel {source.wheel}", stored.names, wanted)
        answers: Answers = {}
        wheel = self.package(source)
        if source.known_wheel and wheel.identity.file != source.known_wheel.file:
            reason = (
                f"{wheel.who}: {wheel.identity.file} is not {source.known_wheel.file}, which the "
                "lock knows, so it proves only files that the lock knows"
            )
            answers = {path: Refused(reason) for path, blob in wanted.items() if blob is None}
            wanted = {path: blob for path, blob in wanted.items() if blob}
        return answers | self._ask(source, lambda: package.offer(wheel, source, wanted))

    def identity(self, source: Source) -> Wheel:
        """Return the identity of the wheel that the index has for the source.

        Raises:
            SourceError: there is no such wheel, or it can't be read.
        """
        wheel = self.package(source)
        if wheel.identity.sha256 or not wheel.address.local:
            return wheel.identity
        from notelab.sources.index.wheel import sha256_of

        return msgspec.structs.replace(wheel.identity, sha256=sha256_of(wheel.address))

    def built_from(self, source: Source) -> str:
        """Return the commit from which the source's wheel says that it was built.

        Raises:
            SourceError: it names none, there is no such wheel, or it can't be read.
        """
        wheel = self.package(source)
        commits = self._ask(source, lambda: package.commits(wheel))
        if not commits:
            raise SourceError("names no commit that it was built from")
        return commits[0]

    def package(self, source: Source) -> "WheelPackage":
        """Open the source's wheel; only the requested parts of it are downloaded.

        Raises:
            SourceError: there is no such wheel, or it can't be read.
        """
        key = _key_of(source)
        opened = self._opened.get(key) or self._store.get_failure("wheel", *key)
        if not opened:
            opened = self._ask(source, partial(self._find_and_open, source))
            self._store.put_failure("", "wheel", *key)
        self._opened[key] = opened
        if isinstance(opened, str):
            raise SourceError(opened)
        return opened

    def _ask(self, source: Source, work: Callable[[], T]) -> T:
        """Do work that asks for a wheel within its limit; remember if it fails."""
        try:
            return run_within(_SECONDS, f"wheel {source.wheel}", work)
        except SourceError as fault:
            self._opened[_key_of(source)] = str(fault)
            self._store.put_failure(str(fault), "wheel", *_key_of(source))
            raise

    def _find_and_open(self, source: Source) -> "WheelPackage":
        stored = self._store.get_answer("wheel", _StoredWheel, *_key_of(source))
        if stored and stored.address:
            with suppress(SourceError):  # it may have moved; then the index is asked again
                return self._open_at(source, stored.address)
        locked = source.known_wheel or Wheel("", "")
        address = find(source.wheel or "", self._settings, locked.file, locked.sha256)
        opened = self._open_at(source, address)
        may_store = not (address.local or address.is_sensitive)
        stored = _StoredWheel(address if may_store else None, frozenset(opened.names))
        self._store.put_answer("wheel", stored, *_key_of(source))
        return opened

    def _open_at(self, source: Source, address: Address) -> "WheelPackage":
        """Open a wheel; if it has the file name of the lock's wheel, it must be that wheel."""
        from notelab.sources.index.wheel import open_wheel

        locked = source.known_wheel
        if locked is None or locked.file != address.file:
            return open_wheel(address, self._settings, f"wheel {source.wheel}")
        differs = f"{address.file} differs from the lock's wheel and is not read: "
        if locked.sha256 and address.sha256 not in ("", locked.sha256):
            hashes = f"sha256 {address.sha256}, the lock has {locked.sha256}"
            raise SourceError(f"{differs}the index gives {hashes}")
        opened = open_wheel(address, self._settings, f"wheel {source.wheel}")
        if opened.identity.record != locked.record:
            hashes = f"sha256 {opened.identity.record}, the lock knows {locked.record}"
            raise SourceError(f"{differs}its RECORD has {hashes}")
        if locked.sha256 and not address.sha256 and not address.local:
            self._tell(f"the index gives no hash for {address.file}: only its RECORD was compared")
        return opened

    @cached_property
    def _settings(self) -> "Settings":
        from notelab.sources.index import address

        settings_read = address.read()
        if settings_read.remark:
            self._tell(settings_read.remark)
        return settings_read


def _key_of(source: Source) -> tuple[str, ...]:
    """Return everything that decides which wheel is found, except pip's configuration files."""
    pip = sorted(f"{name}={value}" for name, value in os.environ.items() if name[:4] == "PIP_")
    wheel = source.known_wheel
    identity = (wheel.file, wheel.record, wheel.sha256) if wheel else ()
    return (source.wheel or "", *identity, *pip)
