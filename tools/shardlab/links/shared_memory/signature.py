"""One word that says what a rank brings, to be compared with what its peers bring.

It rides beside the flag that is read anyway, so the comparison is always on: a rank that calls
another collective, or brings another dtype or length, is named before its bytes are read.
"""

from __future__ import annotations

import torch

from shardlab.proofs.agreement import DTYPES

COLLECTIVES = (
    "barrier", "all_reduce sum", "all_reduce max", "all_gather", "reduce_scatter sum",
    "reduce_scatter max", "all_to_all", "broadcast", "message",
)  # fmt: skip
_NUMBER = {dtype: number for number, dtype in enumerate(DTYPES)}
_OTHER = len(DTYPES)
_ELEMENTS = 44  # bits; above them 6 for the dtype, 8 for the source, 4 for the collective


def stem(collective: str, dtype: torch.dtype, source: int = 0) -> int:
    """Return the signature of a tensor without elements; add their number to it."""
    kind = COLLECTIVES.index(collective)
    return ((kind << 8 | source & 255) << 6 | _NUMBER.get(dtype, _OTHER)) << _ELEMENTS


def describe(signature: int) -> str:
    """Put a signature into words."""
    elements = signature & (1 << _ELEMENTS) - 1
    number = signature >> _ELEMENTS & 63
    source = signature >> _ELEMENTS + 6 & 255
    name = COLLECTIVES[signature >> _ELEMENTS + 14]
    if name == "barrier":
        return name
    dtype = str(DTYPES[number]).removeprefix("torch.") if number < _OTHER else "another dtype"
    origin = f" from its rank {source}" if name == "broadcast" else ""
    return f"{name}{origin} of {elements} × {dtype}"
