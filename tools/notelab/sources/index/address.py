"""Where an index keeps a wheel: unearth reads its pages, with the user's own settings."""

import logging
import os
import re
from concurrent.futures import as_completed
from functools import partial
from urllib.parse import urlsplit

import msgspec

from notelab.sources.answers import SourceError
from notelab.sources.in_time import begin
from notelab.sources.index.settings import Settings

_SECONDS = 60  # for all the indexes together
_SHA256 = re.compile(r"[0-9a-f]{64}")
_FAMILIAR = ("-none-any.whl", "x86_64.whl")


class Address(msgspec.Struct, frozen=True):
    """A wheel's address and file name, and its SHA-256 as the index gives it ('' if it doesn't)."""

    url: str
    file: str
    sha256: str = ""

    @property
    def local(self) -> bool:
        """Tell whether it is a file on this machine."""
        return urlsplit(self.url).scheme == "file"

    @property
    def telling(self) -> bool:
        """Tell whether the address may hold a secret, or goes out of date: it is not kept."""
        parts = urlsplit(self.url)
        return bool("@" in parts.netloc or parts.query)


def find(requirement: str, settings: Settings, preferred: str, sha256: str) -> Address:
    """Return where a wheel of `requirement` (`name==version`) is kept.

    A wheel is only read, so it need not be for this machine: any that was published will do. All
    indexes are asked at the same time.

    Args:
        requirement: the distribution and its version.
        settings: where to look.
        preferred: the file name of the wheel wanted, or ''.
        sha256: its hash, where it is known: of two of that name, the one that has it.

    Raises:
        SourceError: no index has such a wheel, or none could be asked.
    """
    listed = partial(_listed, requirement, settings)
    indexes = [*settings.indexes, *([""] if settings.public else [])]
    asked = [begin(partial(listed, index=one)) for one in indexes]
    asked += [begin(partial(listed, folder=one)) for one in settings.find_links]
    found: list[Address] = []
    reasons: list[str] = []
    try:
        for done in as_completed(asked, _SECONDS):
            try:
                found += done.result()
            except SourceError as fault:
                reasons.append(str(fault))
            if any(one.file == preferred and one.sha256 == sha256 for one in found):
                break
    except TimeoutError:
        reasons.append(f"an index gave no whole answer in {_SECONDS} s")
    if not found:
        none = "no index is set" if not asked else f"no index has a wheel of {requirement}"
        why = [*dict.fromkeys(reasons), *([settings.remark] if settings.remark else [])]
        raise SourceError("; ".join(why if reasons else [none, *why]))
    named = [one for one in found if one.file == preferred]
    if named:
        return next((one for one in named if one.sha256 == sha256), named[0])
    return min(found, key=_order)


def _order(address: Address) -> tuple[bool, bool, str]:
    """Published builds before local ones (+cpu), then what most machines can use."""
    return "+" in address.file, not address.file.endswith(_FAMILIAR), address.file


def _listed(
    requirement: str, settings: Settings, *, index: str = "", folder: str = ""
) -> list[Address]:
    """Return what one index, or one folder or page of links, has of `requirement`."""
    from unearth import PackageFinder
    from unearth.collector import is_secure_origin

    from notelab.sources.index.session import Fetcher, said

    logging.getLogger("unearth").setLevel(logging.CRITICAL)  # what it logs is said as a reason
    place = os.path.expanduser(folder)  # noqa: PTH111 (it may be an address)
    if place and "://" not in place and not os.path.exists(place):  # noqa: PTH110
        return []
    fetcher = Fetcher(settings)
    try:
        finder = PackageFinder(
            session=fetcher,
            index_urls=[index] if index else [],
            find_links=[place] if place else [],
            ignore_compatibility=True,
            only_binary=[":all:"],
        )
        links = [one.link for one in finder.find_matches(requirement)]
        # A page of the network's may not send us to a file of this machine's.
        here = bool(place and "://" not in place) or (index or place).startswith("file:")
        links = [one for one in links if here or not one.is_file]
        links = [one for one in links if is_secure_origin(fetcher, one)]
    except Exception as fault:  # an index's answer may be anything at all
        raise SourceError(said(fault)) from None
    if not links and fetcher.trouble:
        raise SourceError(fetcher.trouble)
    return [
        Address(one.url_without_fragment, one.filename, _sha256(one.hash_option or {}))
        for one in links
    ]


def _sha256(hashes: dict[str, list[str]]) -> str:
    value = "".join(hashes.get("sha256", [])).lower()
    return value if _SHA256.fullmatch(value) else ""
