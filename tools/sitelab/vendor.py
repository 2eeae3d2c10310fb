"""Refresh the vendored bundles: `python tools/sitelab/vendor.py mermaid=11.17.2 katex=0.19.1`.

`make vendor` does the same. npm fetches a package from its configured registry and checks the
package's integrity. Kept are the files that are served or run, the licence, the notices of bundled
packages, and VERSION, which holds the version and the SHA-256 of the script.

A bundler's source map names every module in the script, with the module's package and version. Each
package's archive holds its licence. Equal licence texts are written once.
"""

import json
import re
import subprocess
import sys
import tarfile
import tempfile
from base64 import b64encode
from collections.abc import Callable, Iterable
from hashlib import sha256, sha512
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

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


TOOLS = Path(__file__).parents[1]


class Bundle(msgspec.Struct):
    """A vendored package: `members` maps patterns of its files to names in `folder`."""

    folder: str
    script: str
    members: list[tuple[str, str]]
    source_map: str = ""  # names the packages that are bundled into the script


_TABLE = Path(__file__).with_suffix(".toml").read_text("utf-8")
BUNDLES = msgspec.toml.decode(_TABLE, type=dict[str, Bundle])


def main(arguments: list[str]) -> int:
    """Vendor the requested versions (mermaid=11, katex=0.19.1); return the exit status."""
    requests = [re.fullmatch(r"(\w+)=(\d+(?:\.\d+){0,2})", argument) for argument in arguments]
    if not requests or not all(match and match[1] in BUNDLES for match in requests):
        names = " or ".join(f"{name}=VERSION" for name in BUNDLES)
        print(f"expected {names}, such as mermaid=11.17.2; found {arguments}", file=sys.stderr)
        return 2
    for match in filter(None, requests):
        try:
            print(_vendor(match[1], match[2]))
        except (OSError, subprocess.CalledProcessError, KeyError, ValueError) as fault:
            print(f"{match[1]} {match[2]} could not be fetched with npm: {fault}", file=sys.stderr)
            return 2
    return 0


def _vendor(name: str, wanted: str) -> str:
    bundle = BUNDLES[name]
    with tempfile.TemporaryDirectory() as scratch:
        version, archive = _pack(f"{name}@{wanted}", Path(scratch))
        files = _extract(archive, bundle.members)
        if bundle.source_map:
            [source_map] = _extract(archive, [(bundle.source_map, "map")]).values()
            files[f"{name}.NOTICES"] = format_notices(
                f"{bundle.script} ({name} {version}) holds parts of these packages.",
                list_packages(source_map),
                lambda package: _pack(package, Path(scratch))[1],
            ).encode()
    folder = TOOLS / bundle.folder
    for old in folder.glob("fonts/*"):
        old.unlink()
    for place, data in files.items():
        (folder / place).parent.mkdir(exist_ok=True)
        (folder / place).write_bytes(data)
    digest = sha256(files[bundle.script]).hexdigest()
    (folder / "VERSION").write_text(f"{version}\n{digest}\n", "ascii")
    return f"{name} {version} (sha256 {digest[:12]}…)"


def _pack(package: str, scratch: Path) -> tuple[str, Path]:
    # A range such as 11 matches many versions; `npm pack` takes the newest of them.
    output = subprocess.run(
        ["npm", "pack", "--json", "--ignore-scripts", package],
        cwd=scratch, check=True, stdout=subprocess.PIPE, text=True,
    ).stdout  # fmt: skip
    packed: Any = json.loads(output)
    [facts] = packed if isinstance(packed, list) else packed.values()
    archive = scratch / Path(facts["filename"]).name
    integrity = "sha512-" + b64encode(sha512(archive.read_bytes()).digest()).decode()
    if integrity != facts["integrity"]:
        raise ValueError(f"integrity {facts['integrity']} expected, {integrity} found")
    return str(facts["version"]), archive


def _extract(archive: Path, wanted: list[tuple[str, str]]) -> dict[str, bytes]:
    files: dict[str, bytes] = {}
    with tarfile.open(archive) as tar:
        for pattern, name in wanted:
            files_there = (member for member in tar.getmembers() if member.isfile())
            members = [member for member in files_there if re.fullmatch(pattern, member.name)]
            if not members:
                raise ValueError(f"the package has no file {pattern}")
            for member in members:
                stream = tar.extractfile(member)
                assert stream is not None  # it is a file
                files[re.sub(pattern, name, member.name)] = stream.read()
    return files


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
