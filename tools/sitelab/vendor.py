"""Refresh the vendored bundles: `python tools/sitelab/vendor.py mermaid=11.17.2 katex=0.19.1`.

`make vendor` does the same. npm fetches a package from its configured registry and checks the
package's integrity. Kept are the files that are served or run, the licence, the notices of bundled
packages, and VERSION, which holds the version and the SHA-256 of the script.
"""

import json
import re
import subprocess
import sys
import tarfile
import tempfile
from base64 import b64encode
from hashlib import sha256, sha512
from pathlib import Path
from typing import Any

import msgspec

from sitelab import notices

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
            files[f"{name}.NOTICES"] = notices.format_notices(
                f"{bundle.script} ({name} {version}) holds parts of these packages.",
                notices.list_packages(source_map),
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
