"""Formats the numbers of a figure; docs/assets/javascripts/figures/figures.js does the same."""

from decimal import ROUND_HALF_UP, Decimal


def format_three_figures(number: float) -> str:
    """Return a number from 1 to 999 with three significant figures."""
    return f"{number:#.3g}".rstrip(".")


def format_bytes(number: float) -> str:
    """Return bytes in the unit that leaves one to three figures before the point: 12.3 GB."""
    return _format_scaled(number, ("B", "kB", "MB", "GB", "TB", "PB"), 0)


def format_seconds(seconds: float) -> str:
    """Return seconds in the unit that leaves one to three figures before the point: 12.3 µs."""
    return _format_scaled(seconds, ("ns", "µs", "ms", "s"), -3)


def drop_zeros(quantity: str) -> str:
    """Return a formatted quantity without zeros behind its point, for an axis: 2 GB."""
    return quantity.replace(".00", "").replace(".0", "")


def _format_scaled(number: float, units: tuple[str, ...], power: int) -> str:
    if number <= 0:
        return f"0 {units[-power]}"
    index = 0
    scaled = number * 1000.0**-power
    while scaled >= 999.5 and index + 1 < len(units):
        scaled /= 1000
        index += 1
    if scaled >= 999.5:
        return f"{scaled:.0f} {units[index]}"
    return f"{format_three_figures(scaled) if scaled >= 1 else f'{scaled:.2f}'} {units[index]}"


def format_percent(share: float) -> str:
    """Return a share as a percentage: 27.3 %."""
    return f"{Decimal(100 * share).quantize(Decimal('0.1'), ROUND_HALF_UP)} %"  # as scripts round


def format_binary(number: int) -> str:
    """Return a power of two of bytes in a binary unit: 256 KiB."""
    index = 0
    while number >= 1024 and index < 3:
        number //= 1024
        index += 1
    return f"{number} {('B', 'KiB', 'MiB', 'GiB')[index]}"
