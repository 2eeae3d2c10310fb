"""What a vendored script holds of others' packages, and on what terms: its notices.

A bundler's source map names every module that went into the script, the package and the version it
came from; each package's own archive holds its licence. Texts that are alike stand there once.
"""

import json
import re
import tarfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

# pnpm's folders: `.pnpm/@iconify+utils@3.0.2/`, also in the comments of what was bundled before.
_MODULE = re.compile(r"\.pnpm/((?:@[^+/@]+\+)?[^@/\s]+)@(\d[^_/\s]*)[_/]")
_LICENCE = re.compile(r"package/(licen[cs]e|copying)[\w.-]*", re.IGNORECASE)
_README = re.compile(r"package/readme[\w.-]*", re.IGNORECASE)
_SECTION = re.compile(r"^#+\s*licen[cs]e\b.*?\n(.*?)(?=^#|\Z)", re.IGNORECASE | re.M | re.DOTALL)
RULE = "-" * 80


class Notice(NamedTuple):
    """A package in the bundle, the name of its licence, and the licence's text."""

    package: str
    licence: str
    text: str


def packages(source_map: bytes) -> list[str]:
    """Return the packages that a source map names, each as name@version, sorted.

    Raises:
        ValueError: it names none, so the notices would be empty.
    """
    held = json.loads(source_map)
    places = [*held["sources"], *(text or "" for text in held.get("sourcesContent", ()))]
    found = {m for place in places for m in _MODULE.findall(f"{place}/")}
    if not found:
        raise ValueError("its source map names no package, where pnpm's folders were expected")
    return sorted(f"{name.replace('+', '/')}@{version}" for name, version in found)


def notice(package: str, archive: Path) -> Notice:
    """Return a package's notice from its archive: its licence's file, or what its README says.

    Raises:
        ValueError: its archive doesn't say what its licence is.
    """
    with tarfile.open(archive) as tar:
        texts = {member.name: member for member in tar.getmembers() if member.isfile()}

        def read(pattern: re.Pattern[str]) -> str:
            for name in sorted(texts):
                stream = tar.extractfile(texts[name]) if pattern.fullmatch(name) else None
                if stream:
                    return stream.read().decode("utf-8", "replace")
            return ""

        facts = json.loads(read(re.compile("package/package.json")))
        section = _SECTION.search(read(_README))
        text = read(_LICENCE) or (section[1] if section else "")
    if not text and not facts.get("license"):
        raise ValueError(f"{package} says nowhere what its licence is")
    lines = [line.rstrip() for line in text.strip().splitlines()]
    return Notice(package, str(facts.get("license", "as below")), "\n".join(lines))


def written(title: str, names: Iterable[str], fetch: Callable[[str], Path]) -> str:
    """Return the notices of packages as a file's text; `fetch` gives a package's archive."""
    notices = [notice(name, fetch(name)) for name in names]
    lines = [title, "Written by `make vendor` from the script's source map.", ""]
    lines += [f"{each.package} ({each.licence})" for each in notices]
    for text in dict.fromkeys(each.text for each in notices if each.text):
        whose = ", ".join(each.package for each in notices if each.text == text)
        lines += ["", RULE, whose, RULE, "", text]
    return "\n".join(lines) + "\n"
