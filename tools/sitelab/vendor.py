"""Refresh the vendored bundles: `python tools/sitelab/vendor.py mermaid=11.17.2 katex=0.19.1`.

`make vendor` does the same. npm fetches a package from the registry it is configured for and checks
its integrity; only what is served or run is kept, with the licence, the notices of what was bundled
into it, and VERSION, which says which version that is, and the SHA-256 of its script.
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
from typing import Any, NamedTuple

from sitelab import notices

TOOLS = Path(__file__).parents[1]


class Bundle(NamedTuple):
    """What is kept of a package: `kept` maps a pattern of its members to names in `folder`."""

    folder: Path
    script: str
    kept: tuple[tuple[str, str], ...]
    source_map: str = ""  # where others' packages went into the script: what names them


BUNDLES = {
    "mermaid": Bundle(
        TOOLS / "notelab" / "mermaid",
        "mermaid.min.js",
        ((r"package/dist/(mermaid\.min\.js)", r"\1"), ("package/LICENSE", "mermaid.LICENSE")),
        "package/dist/mermaid.min.js.map",
    ),
    "katex": Bundle(
        TOOLS / "sitelab" / "katex",
        "katex.min.js",
        (
            (r"package/dist/(katex\.min\.(?:js|css))", r"\1"),
            # Every browser that the site is made for reads this form of a font.
            (r"package/dist/(fonts/[\w-]+\.woff2)", r"\1"),
            ("package/LICENSE", "katex.LICENSE"),
        ),
    ),
}


def main(arguments: list[str]) -> int:
    """Vendor the versions named (mermaid=11, katex=0.19.1); return the exit status."""
    asked = [re.fullmatch(r"(\w+)=(\d+(?:\.\d+){0,2})", argument) for argument in arguments]
    if not asked or not all(match and match[1] in BUNDLES for match in asked):
        names = " or ".join(f"{name}=VERSION" for name in BUNDLES)
        print(f"expected {names}, such as mermaid=11.17.2; found {arguments}", file=sys.stderr)
        return 2
    for match in filter(None, asked):
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
        files = _kept(archive, bundle.kept)
        if bundle.source_map:
            [source_map] = _kept(archive, ((bundle.source_map, "map"),)).values()
            files[f"{name}.NOTICES"] = notices.written(
                f"{bundle.script} ({name} {version}) holds parts of these packages.",
                notices.packages(source_map),
                lambda package: _pack(package, Path(scratch))[1],
            ).encode()
    for old in bundle.folder.glob("fonts/*"):
        old.unlink()
    for place, data in files.items():
        (bundle.folder / place).parent.mkdir(exist_ok=True)
        (bundle.folder / place).write_bytes(data)
    digest = sha256(files[bundle.script]).hexdigest()
    (bundle.folder / "VERSION").write_text(f"{version}\n{digest}\n", "ascii")
    return f"{name} {version} (sha256 {digest[:12]}…)"


def _pack(package: str, scratch: Path) -> tuple[str, Path]:
    # A range such as 11 matches many versions; `npm pack` takes the newest of them.
    said = subprocess.run(
        ["npm", "pack", "--json", "--ignore-scripts", package],
        cwd=scratch, check=True, stdout=subprocess.PIPE, text=True,
    ).stdout  # fmt: skip
    packed: Any = json.loads(said)
    [facts] = packed if isinstance(packed, list) else packed.values()
    archive = scratch / Path(facts["filename"]).name
    found = "sha512-" + b64encode(sha512(archive.read_bytes()).digest()).decode()
    if found != facts["integrity"]:
        raise ValueError(f"integrity {facts['integrity']} expected, {found} found")
    return str(facts["version"]), archive


def _kept(archive: Path, kept: tuple[tuple[str, str], ...]) -> dict[str, bytes]:
    files: dict[str, bytes] = {}
    with tarfile.open(archive) as tar:
        for pattern, name in kept:
            members = [m for m in tar.getmembers() if m.isfile() and re.fullmatch(pattern, m.name)]
            if not members:
                raise ValueError(f"the package has no file {pattern}")
            for member in members:
                stream = tar.extractfile(member)
                assert stream is not None  # it is a file
                files[re.sub(pattern, name, member.name)] = stream.read()
    return files


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
