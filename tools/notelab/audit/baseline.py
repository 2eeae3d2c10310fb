"""The baseline of a lab: findings that it had when it was adopted, which make no check fail.

The file is next to `lab.toml`. It has hashes and codes, no text of the notes. A finding's row is
not part of it, so that an edit above a finding changes nothing. It only ever gets shorter.
"""

import os
from collections import Counter
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path
from typing import Literal

import msgspec

from notelab.errors import NotelabError, display_path
from notelab.files import write_files
from notelab.finding import Finding
from notelab.lab.lab_file import read_limited

BASELINE = "baseline.json"
_MAX_BYTES = 20_000_000


class _Baseline(msgspec.Struct, forbid_unknown_fields=True):
    """The findings of each page, as `CODE hash`, with how often the page has each."""

    version: Literal[1]
    findings: dict[str, dict[str, int]]


def _key(folder: Path, finding: Finding) -> tuple[str, str]:
    """Return the page of a finding, by its path from the lab, and its code with a hash."""
    page = Path(os.path.relpath(Path.cwd() / finding.filename, folder)).as_posix()
    text = "\0".join((finding.message, finding.expected, finding.found))
    return page, f"{finding.code} {sha256(text.encode()).hexdigest()[:16]}"


def read(folder: Path) -> Counter[tuple[str, str]]:
    """Return the findings of a lab's baseline, each with its count; none if there is no file.

    Raises:
        NotelabError: the file is not a baseline.
    """
    path = folder / BASELINE
    data = read_limited(_MAX_BYTES, path)
    if data is None:
        return Counter()
    try:
        baseline = msgspec.json.decode(data, type=_Baseline)
    except msgspec.MsgspecError as fault:
        raise NotelabError(
            f"{display_path(path)}: not a baseline: {fault}",
            hint="restore it from git, or delete it",
        ) from None
    rows = baseline.findings.items()
    return Counter({(page, key): n for page, keys in rows for key, n in keys.items() if n > 0})


def dump(counts: Counter[tuple[str, str]]) -> bytes:
    """Return the content of a baseline."""
    findings: dict[str, dict[str, int]] = {}
    for (page, key), count in sorted(counts.items()):
        findings.setdefault(page, {})[key] = count
    return msgspec.json.format(msgspec.json.encode(_Baseline(1, findings)), indent=1) + b"\n"


def write(folder: Path, counts: Counter[tuple[str, str]]) -> None:
    """Write a lab's baseline, or remove it if no finding is left in it."""
    if counts:
        write_files({folder / BASELINE: dump(counts)})
    else:
        (folder / BASELINE).unlink(missing_ok=True)


def split(
    folder: Path, findings: Iterable[Finding]
) -> tuple[list[Finding], Counter[tuple[str, str]]]:
    """Return the findings that are not in a lab's baseline, and what is left of the baseline."""
    known, used, new = read(folder), Counter[tuple[str, str]](), []
    for finding in findings:
        key = _key(folder, finding)
        if used[key] < known[key]:
            used[key] += 1
        else:
            new.append(finding)
    return new, used


def count(folder: Path, findings: Iterable[Finding]) -> Counter[tuple[str, str]]:
    """Return a baseline of a lab's findings."""
    return Counter(_key(folder, finding) for finding in findings)
