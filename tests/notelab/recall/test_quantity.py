"""A number is read as people write it, and held to the one that was asked for."""

import pytest

from notelab.recall.cards import Quantity, is_same
from notelab.recall.cards import parse_quantity as read

SIXTEEN_GB = Quantity(16e9, "B")


@pytest.mark.parametrize(
    "typed",
    [
        *("16 GB", "16GB", "16 gb.", "16e9 B", "16E9B", "16 000 000 000 B", "1.6e10 bytes"),
        *("16,000,000,000 B", "16.000.000.000 B", "16\u202f000\u202f000\u202fkB", "16_000 MB"),
        *("14.9 GiB", "14,9 GiB", "0.016 TB", "15.9 GB"),
    ],
)
def test_sixteen_gigabytes_however_they_are_written(typed: str) -> None:
    number = read(typed)
    assert number and is_same(number, SIXTEEN_GB), number


@pytest.mark.parametrize("typed", ["16 GiB", "16 MB", "16", "15 GB", "16 ranks", "17e9 B"])
def test_what_is_not_sixteen_gigabytes(typed: str) -> None:
    number = read(typed)
    assert number and not is_same(number, SIXTEEN_GB), number


def test_a_binary_unit_is_a_power_of_1024_and_told_from_a_decimal_one() -> None:
    assert read("1 KiB") == Quantity(1024, "B") and read("1 kB") == Quantity(1000, "B")
    assert read("1.5 MiB") == Quantity(1.5 * 2**20, "B")
    assert not is_same(Quantity(2**10, "B"), Quantity(1000, "B"))


@pytest.mark.parametrize(
    ("typed", "right"),
    [("64", True), ("64 ranks", True), ("64 procesos", True), ("65", False), ("64 B", False)],
)
def test_a_count_is_exact_and_no_bytes(typed: str, right: bool) -> None:
    number = read(typed)
    assert number and is_same(number, Quantity(64, "ranks")) is right


@pytest.mark.parametrize("typed", ["", "many", "GB", "16 GB or so", "1,2,3", "--3", "1e9e9", "NaN"])
def test_what_is_no_number_is_none(typed: str) -> None:
    assert read(typed) is None
