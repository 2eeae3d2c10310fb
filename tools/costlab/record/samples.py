"""The timings behind a result, in a file beside it: NAME.samples.json.gz for NAME.json.

    {"schema": 1, "samples": {"tp.h128.step.shardlab.one": [[0.0412, …], …]}}

By metric the launches, by launch the rounds in the order in which they ran, or the calls; rounds
that were dropped are not among them. In the metric's unit, to five digits. What ran in the same
rounds has as many, so that rounds can be paired:

    json.load(gzip.open("results/local/NAME.samples.json.gz"))["samples"]
"""

import gzip
import zlib
from pathlib import Path

import msgspec

from costlab.record.result import Result, ResultError, write_whole

SCHEMA = 1


class Samples(msgspec.Struct, kw_only=True):
    """What such a file holds."""

    schema: int = SCHEMA
    samples: dict[str, list[list[float]]] = {}


def samples_path(path: Path) -> Path:
    """Return where the samples of the result at `path` are."""
    return path.with_name(f"{path.name.removesuffix('.json')}.samples.json.gz")


def save(result: Result, path: Path) -> None:
    """Write the samples of the result at `path`, if it has any, whole or not at all.

    Raises:
        ResultError: the folder can't be written, or the disk is full; an older file stays.
    """
    series = {
        name: [[float(f"{value:.5g}") for value in launch] for launch in metric.series]
        for name, metric in result.metrics().items()
        if metric.series
    }
    if not series:
        return
    text = msgspec.json.encode(Samples(samples=series))
    write_whole(samples_path(path), gzip.compress(text, mtime=0))


def load(path: Path) -> dict[str, list[list[float]]]:
    """Return the samples of the result at `path` by metric; none where there is no such file.

    Raises:
        ResultError: the file is of another schema, or damaged.
    """
    file = samples_path(path)
    try:
        read = msgspec.json.decode(gzip.decompress(file.read_bytes()), type=Samples)
    except FileNotFoundError:
        return {}
    except (OSError, EOFError, zlib.error, msgspec.DecodeError) as fault:
        raise ResultError(
            f"{file} holds no samples ({fault}); delete it, and they are lacking, no more"
        ) from None
    if read.schema != SCHEMA:
        raise ResultError(f"{file} has schema {read.schema}, this bench reads {SCHEMA}")
    return read.samples
