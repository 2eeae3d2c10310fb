"""Numbers as a figure says them; docs/assets/javascripts/figures/figures.js says them alike."""


def three(number: float) -> str:
    """Return a number of three figures, from 1 to 999."""
    return f"{number:#.3g}".rstrip(".")


def size(number: float) -> str:
    """Return bytes in the unit that leaves one to three figures before the point: 12.3 GB."""
    return _scaled(number, ("B", "kB", "MB", "GB", "TB", "PB"), 0)


def time(seconds: float) -> str:
    """Return seconds likewise: 12.3 µs."""
    return _scaled(seconds, ("ns", "µs", "ms", "s"), -3)


def _scaled(number: float, units: tuple[str, ...], power: int) -> str:
    if number <= 0:
        return f"0 {units[-power]}"
    index = 0
    scaled = number * 1000.0**-power
    while scaled >= 999.5 and index + 1 < len(units):
        scaled /= 1000
        index += 1
    if scaled >= 999.5:
        return f"{scaled:.0f} {units[index]}"
    return f"{three(scaled) if scaled >= 1 else f'{scaled:.2f}'} {units[index]}"


def percent(share: float) -> str:
    """Return a share: 27.3 %."""
    return f"{100 * share:.1f} %"


def binary(number: int) -> str:
    """Return a power of two of bytes: 256 KiB."""
    index = 0
    while number >= 1024 and index < 3:
        number //= 1024
        index += 1
    return f"{number} {('B', 'KiB', 'MiB', 'GiB')[index]}"
