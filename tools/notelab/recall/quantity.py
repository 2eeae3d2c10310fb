"""A number with its unit, as a card gives it and as a learner types it."""

import re
from math import isclose

import msgspec

TOLERANCE = 0.01  # of bytes: tells 16 GB from 16 GiB, and allows for rounding
_WRITTEN = re.compile(r"(\d[\d\s_,.'’]*?(?:[eE][+-]?\d+)?)\s*([^\W\d_]+)?\.?")
_GROUPED = re.compile(r"\d{1,3}([,.])\d{3}(?:\1\d{3})*")
_BYTES = re.compile(r"(?:([kmgtp])(i?))?b(?:ytes?)?", re.IGNORECASE)


class Quantity(msgspec.Struct, frozen=True):
    """A number of bytes (unit "B"), or of whatever the unit's word says; "" where none is given."""

    value: float
    unit: str


def read(text: str) -> Quantity | None:
    """Return the quantity that a text is, or None.

    >>> read("16 GB") == read("16e9 B") == read("16 000 000 000 B") == read("16.000.000.000 bytes")
    True
    >>> read("1.5 KiB"), read("1,5 kib"), read("4 ranks"), read("1,024"), read("many")
    (Quantity(value=1536.0, unit='B'), Quantity(value=1536.0, unit='B'), \
Quantity(value=4.0, unit='ranks'), Quantity(value=1024.0, unit=''), None)
    """
    written = _WRITTEN.fullmatch(text.strip())
    value = _value(written[1]) if written else None
    if not written or value is None:
        return None
    unit = written[2] or ""
    counted = _BYTES.fullmatch(unit)
    if not counted:
        return Quantity(value, unit)
    power = " kmgtp".index((counted[1] or " ").lower())
    return Quantity(value * (1024 if counted[2] else 1000) ** power, "B")


def _value(digits: str) -> float | None:
    digits = re.sub(r"[\s_'’]", "", digits)
    if "," in digits and "." in digits:  # the last of the two is the decimal mark
        grouping = min(",.", key=digits.rindex)
        digits = digits.replace(grouping, "")
    # A single point is a decimal mark in both languages, as in the workbook's pages.
    elif _GROUPED.fullmatch(digits) and digits.count(".") != 1:
        digits = digits.replace(",", "").replace(".", "")
    try:
        return float(digits.replace(",", "."))
    except ValueError:
        return None


def same(typed: Quantity, asked: Quantity) -> bool:
    """Tell whether what was typed is what was asked for; bytes may be typed without a unit.

    >>> same(read("17.18 GB"), read("16 GiB")), same(read("16 GB"), read("16 GiB"))
    (True, False)
    """
    if (typed.unit == "B") != (asked.unit == "B") and typed.unit:
        return False
    return isclose(typed.value, asked.value, rel_tol=TOLERANCE if asked.unit == "B" else 1e-9)
