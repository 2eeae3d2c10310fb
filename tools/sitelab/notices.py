"""Makes the notices of a vendored script: the packages bundled into it, and their licences.

A bundler's source map names every module in the script, with the module's package and version.
Each package's archive holds its licence. Equal licence texts are written once.
"""

import json
import re
import tarfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

# pnpm's folders: `.pnpm/@iconify+utils@3.0.2/`, also in comments of modules bundled before.
_MODULE = re.compile(r"\.pnpm/((?:@[^+/@]+\+)?[^@/\s]+)@(\d[^_/\s]*)[_/]")
_LICENCE = re.compile(r"package/(licen[cs]e|copying)[\w.-]*", re.IGNORECASE)
_README = re.compile(r"package/readme[\w.-]*", re.IGNORECASE)
_SECTION = re.compile(r"^#+\s*licen[cs]e\b.*?\n(.*?)(?=^#|\Z)", re.IGNORECASE | re.M | re.DOTALL)
RULE = "-" * 80


class Notice(NamedTuple):
    """A package in the bundle, with the name and the text of its licence."""

    package: str
    licence: str
    text: str


def list_packages(source_map: bytes) -> list[str]:
    """Return the packages that a source map names, sorted, each as name@version.

    Raises:
        ValueError: the source map names no package, so the notices would be empty.
    """
    content = json.loads(source_map)
    places = [*content["sources"], *(text or "" for text in content.get("sourcesContent", ()))]
    versions = {match for place in places for match in _MODULE.findall(f"{place}/")}
    if not versions:
        raise ValueError("its source map names no package, where pnpm's folders were expected")
    return sorted(f"{name.replace('+', '/')}@{version}" for name, version in versions)


def read_notice(package: str, archive: Path) -> Notice:
    """Return a package's notice from its archive: its licence file, or its README's section.

    Raises:
        ValueError: the archive doesn't name a licence.
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


def format_notices(title: str, names: Iterable[str], fetch: Callable[[str], Path]) -> str:
    """Return the text of a notices file; `fetch` returns the archive of a package."""
    notices = [read_notice(name, fetch(name)) for name in names]
    lines = [title, "Written by `make vendor` from the script's source map.", ""]
    lines += [f"{notice.package} ({notice.licence})" for notice in notices]
    for text in dict.fromkeys(notice.text for notice in notices if notice.text):
        owners = ", ".join(notice.package for notice in notices if notice.text == text)
        lines += ["", RULE, owners, RULE, "", text]
    return "\n".join(lines) + "\n"
