"""A number with its unit, as cards have it and as learners type it."""

import re
from math import isclose

import msgspec

TOLERANCE = 0.01  # for bytes: distinguishes 16 GB from 16 GiB, and allows rounding
_QUANTITY = re.compile(r"(\d[\d\s_,.'’]*?(?:[eE][+-]?\d+)?)\s*([^\W\d_]+)?\.?")
_GROUPED = re.compile(r"\d{1,3}([,.])\d{3}(?:\1\d{3})*")
_BYTES = re.compile(r"(?:([kmgtp])(i?))?b(?:ytes?)?", re.IGNORECASE)


class Quantity(msgspec.Struct, frozen=True):
    """A number of bytes (unit "B"), or of what the unit says; "" if there is no unit."""

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
    match = _QUANTITY.fullmatch(text.strip())
    value = _parse_value(match[1]) if match else None
    if not match or value is None:
        return None
    unit = match[2] or ""
    byte_unit = _BYTES.fullmatch(unit)
    if not byte_unit:
        return Quantity(value, unit)
    power = " kmgtp".index((byte_unit[1] or " ").lower())
    return Quantity(value * (1024 if byte_unit[2] else 1000) ** power, "B")


def _parse_value(digits: str) -> float | None:
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


def lacks_unit(typed: Quantity, expected: Quantity) -> bool:
    """Return whether a typed number is neither right nor wrong, since it lacks its unit of bytes.

    >>> lacks_unit(read("7"), read("7 MiB")), lacks_unit(read("7"), read("7 ranks"))
    (True, False)
    """
    return expected.unit == "B" and not typed.unit


def is_same(typed: Quantity, expected: Quantity) -> bool:
    """Return whether a typed quantity equals the expected one; a count may have any unit or none.

    >>> is_same(read("17.18 GB"), read("16 GiB")), is_same(read("16 GB"), read("16 GiB"))
    (True, False)
    """
    if (typed.unit == "B") != (expected.unit == "B"):
        return False
    return isclose(typed.value, expected.value, rel_tol=TOLERANCE if expected.unit == "B" else 1e-9)
