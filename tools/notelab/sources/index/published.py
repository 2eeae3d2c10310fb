"""The provider that reads published wheels on the index; facts about them are cached."""

import os
import threading
from collections.abc import Callable
from typing import TypeVar

import msgspec

from notelab.sources import package
from notelab.sources.answers import Answers, Refused, Source, SourceError, Wanted, Wheel
from notelab.sources.response_cache import ResponseCache
from notelab.sources.timeouts import run_within

TYPE_CHECKING = False
if TYPE_CHECKING:
    from notelab.sources.index.address import Address
    from notelab.sources.index.settings import Settings
    from notelab.sources.index.wheel import WheelPackage

T = TypeVar("T")
_SECONDS = 120  # for one batch of questions to a wheel, because a server may be endlessly slow


class Published:
    """Reads wheels on the package index; each wheel is opened once.

    Args:
        cache: the answers of earlier runs.
        tell: reports what the user should know although nothing failed.
    """

    def __init__(self, cache: ResponseCache, tell: Callable[[str], None]) -> None:
        """Remember the cache; nothing is asked yet."""
        self._cache, self._tell = cache, tell
        self._opened: dict[tuple[str, ...], WheelPackage | str] = {}
        self._settings_: Settings | None = None
        self._reading = threading.Lock()

    def offer(self, source: Source, wanted: Wanted) -> Answers:
        """Return what the source's wheel holds of `wanted`.

        If the wheel differs from the one in the lock, it delivers only files that the lock knows.

        Raises:
            SourceError: there is no such wheel, it can't be read, or it isn't the locked one.
        """
        if not source.wheel:
            return {}
        answers = self._answer_lacking(source, wanted)
        wanted = {path: blob for path, blob in wanted.items() if path not in answers}
        if not wanted:
            return answers
        wheel = self.package(source)
        if source.known_wheel and wheel.identity.file != source.known_wheel.file:
            reason = (
                f"{wheel.who}: {wheel.identity.file} is not {source.known_wheel.file}, which the "
                "lock knows, so it proves only files that the lock knows"
            )
            answers |= {path: Refused(reason) for path, blob in wanted.items() if blob is None}
            wanted = {path: blob for path, blob in wanted.items() if blob}
        return answers | self._run_within_limit(
            source, lambda: package.offer(wheel, source, wanted)
        )

    def identity(self, source: Source) -> Wheel:
        """Return the identity of the wheel that the index has for the source.

        Raises:
            SourceError: there is no such wheel, or it can't be read.
        """
        opened = self.package(source)
        if opened.identity.sha256 or not opened.address.local:
            return opened.identity
        from notelab.sources.index.wheel import sha256_of

        return msgspec.structs.replace(opened.identity, sha256=sha256_of(opened.address))

    def package(self, source: Source) -> "WheelPackage":
        """Open the source's wheel; only the requested parts of it are downloaded.

        Raises:
            SourceError: there is no such wheel, or it can't be read.
        """
        key = _key_of(source)
        opened = self._opened.get(key) or self._cache.get_failure("wheel", *key)
        if not opened:
            opened = self._run_within_limit(source, lambda: self._find_and_open(source))
            self._cache.put_failure("", "wheel", *key)
        self._opened[key] = opened
        if isinstance(opened, str):
            raise SourceError(opened)
        return opened

    def built_from(self, source: Source) -> str:
        """Return the commit from which the source's wheel says that it was built.

        Raises:
            SourceError: it names none, there is no such wheel, or it can't be read.
        """
        wheel = self.package(source)
        commit = self._run_within_limit(source, lambda: package.commit_of(wheel))
        if not commit:
            raise SourceError("names no commit that it was built from")
        return commit

    def _answer_lacking(self, source: Source, wanted: Wanted) -> Answers:
        """Return answers for the files that the wheel is known to lack, without asking again."""
        wheel = source.known_wheel or self._cache.get("identity", _key_of(source), Wheel)
        names = wheel and self._cache.get("members", (wheel.record,), frozenset[str])
        if not names:
            return {}
        who = f"wheel {source.wheel}"
        return {
            path: package.make_absent(who, path, names, blob)
            for path, blob in wanted.items()
            if path not in names
        }

    def _run_within_limit(self, source: Source, work: Callable[[], T]) -> T:
        try:
            return run_within(_SECONDS, f"wheel {source.wheel}", work)
        except SourceError as fault:
            self._opened[_key_of(source)] = str(fault)
            self._cache.put_failure(str(fault), "wheel", *_key_of(source))
            raise

    def _find_and_open(self, source: Source) -> "WheelPackage":
        from notelab.sources.index.address import Address, find

        cached = self._cache.get("address", _key_of(source), Address)
        if cached:
            try:
                return self._open_at(source, cached)
            except SourceError:
                pass  # the wheel has moved, so the index is asked again
        locked_wheel = source.known_wheel or Wheel("", "")
        address = find(source.wheel or "", self._settings(), locked_wheel.file, locked_wheel.sha256)
        opened = self._open_at(source, address)
        if not address.local and not address.is_sensitive:
            self._cache.put("address", _key_of(source), address)
        self._cache.put("identity", _key_of(source), opened.identity)
        self._cache.put("members", (opened.identity.record,), sorted(opened.names))
        return opened

    def _open_at(self, source: Source, address: "Address") -> "WheelPackage":
        from notelab.sources.index.wheel import open_wheel

        locked_wheel = (
            source.known_wheel
            if source.known_wheel and source.known_wheel.file == address.file
            else None
        )
        if locked_wheel and locked_wheel.sha256 and address.sha256 not in ("", locked_wheel.sha256):
            raise SourceError(
                f"{address.file} differs from the lock's wheel and is not read: the index gives "
                f"sha256 {address.sha256}, the lock has {locked_wheel.sha256}"
            )
        opened = open_wheel(address, self._settings(), f"wheel {source.wheel}")
        if locked_wheel and opened.identity.record != locked_wheel.record:
            raise SourceError(
                f"{address.file} differs from the lock's wheel and is not read: its RECORD has "
                f"sha256 {opened.identity.record}, the lock knows {locked_wheel.record}"
            )
        if locked_wheel and locked_wheel.sha256 and not address.sha256 and not address.local:
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


def _key_of(source: Source) -> tuple[str, ...]:
    """Return everything that decides which wheel is found, except pip's configuration files."""
    pip_variables = sorted(
        f"{name}={value}" for name, value in os.environ.items() if name[:4] == "PIP_"
    )
    locked_wheel = source.known_wheel
    return (
        source.wheel or "",
        *((locked_wheel.file, locked_wheel.record, locked_wheel.sha256) if locked_wheel else ()),
        *pip_variables,
    )
