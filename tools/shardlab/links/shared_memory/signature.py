"""The signature of a rank's input: collective, dtype, size and source in one 64-bit number.

Ranks compare their signatures in every collective. A signature is written next to a flag that the
peers read anyway, so the comparison costs almost nothing. A rank that calls another collective, or
brings another dtype or length, is named before its bytes are read.
"""

from __future__ import annotations

import torch

from shardlab.comm.consistency_check import DTYPES

COLLECTIVES = (
    "barrier", "all_reduce sum", "all_reduce max", "all_gather", "reduce_scatter sum",
    "reduce_scatter max", "all_to_all", "broadcast", "message",
)  # fmt: skip
_NUMBER = {dtype: number for number, dtype in enumerate(DTYPES)}
_OTHER = len(DTYPES)
_ELEMENTS = 44  # bits; above them 6 for the dtype, 8 for the source, 4 for the collective


def encode(collective: str, dtype: torch.dtype, source: int = 0) -> int:
    """Return the signature of an empty tensor; add the number of elements to it."""
    kind = COLLECTIVES.index(collective)
    return ((kind << 8 | source & 255) << 6 | _NUMBER.get(dtype, _OTHER)) << _ELEMENTS


def describe(signature: int) -> str:
    """Return a signature in words, for an error message."""
    elements = signature & (1 << _ELEMENTS) - 1
    number = signature >> _ELEMENTS & 63
    source = signature >> _ELEMENTS + 6 & 255
    name = COLLECTIVES[signature >> _ELEMENTS + 14]
    if name == "barrier":
        return name
    dtype = str(DTYPES[number]).removeprefix("torch.") if number < _OTHER else "another dtype"
    origin = f" from its rank {source}" if name == "broadcast" else ""
    return f"{name}{origin} of {elements} × {dtype}"
