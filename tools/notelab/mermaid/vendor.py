"""Refresh the vendored mermaid: `python tools/notelab/mermaid/vendor.py 11.17.2` (`make vendor`).

npm fetches the package from the registry it is configured for and checks its integrity; only the
browser bundle and the licence are kept, and VERSION says which they are.
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

HERE = Path(__file__).parent
KEPT = {
    "package/dist/mermaid.min.js": "mermaid.min.js",
    "package/LICENSE": "mermaid.LICENSE",
}


def main(arguments: list[str]) -> int:
    """Vendor the version named (11, 11.17 or 11.17.2); return the exit status."""
    if len(arguments) != 1 or not re.fullmatch(r"\d+(\.\d+){0,2}", arguments[0]):
        print("expected one version of mermaid, such as 11 or 11.17.2", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as scratch:
        try:
            version, files = _pack(arguments[0], Path(scratch))
        except (OSError, subprocess.CalledProcessError, KeyError, ValueError) as fault:
            print(f"mermaid {arguments[0]} could not be fetched with npm: {fault}", file=sys.stderr)
            return 2
    for name, data in files.items():
        (HERE / name).write_bytes(data)
    digest = sha256(files["mermaid.min.js"]).hexdigest()
    (HERE / "VERSION").write_text(f"{version}\n{digest}\n", "ascii")
    print(f"mermaid {version} (sha256 {digest[:12]}…)")
    return 0


def _pack(wanted: str, scratch: Path) -> tuple[str, dict[str, bytes]]:
    # A range such as 11 matches many versions; `npm pack` takes the newest of them.
    said = subprocess.run(
        ["npm", "pack", "--json", "--ignore-scripts", f"mermaid@{wanted}"],
        cwd=scratch, check=True, stdout=subprocess.PIPE, text=True,
    ).stdout  # fmt: skip
    packed = json.loads(said)
    [facts] = packed if isinstance(packed, list) else packed.values()
    archive = scratch / Path(facts["filename"]).name
    found = "sha512-" + b64encode(sha512(archive.read_bytes()).digest()).decode()
    if found != facts["integrity"]:
        raise ValueError(f"integrity {facts['integrity']} expected, {found} found")
    with tarfile.open(archive) as tar:
        files = {}
        for member, name in KEPT.items():
            stream = tar.extractfile(member)
            if stream is None:
                raise ValueError(f"the package has no file {member}")
            files[name] = stream.read()
    return str(facts["version"]), files


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
