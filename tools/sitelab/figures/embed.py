"""Embeds figures: replaces each mark in a page by a picture and the data for its script.

Quantities are formatted here as the page's script formats them.
"""

import re
from collections.abc import Callable, Iterable
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path
from typing import Any, NamedTuple

from mkdocs.utils import get_relative_url

from sitelab.pages.tree import Element
from sitelab.rendering import load_words, render

SCRIPTS = "assets/javascripts/figures"
LONG = 18  # letters of a choice that has two columns for itself
_MARK = "figure-"
_BELOW = re.compile(r'(<\w+ class="[^"]*play-below)')  # what stands below the controls


class Figure(NamedTuple):
    """One figure.

    Attributes:
        html: the picture that is shown first, and that stays if no script runs.
        data: the data for the figure's script; None for a figure without controls.

    """

    html: str
    data: dict[str, Any] | None = None


# Makes a figure from the words of the page's language and the repository's folder.
Maker = Callable[[dict[str, str], Path], Figure]


def render_template(figure: str, words: dict[str, str], **values: Any) -> str:
    """Return the HTML of a figure's template, with its lines joined."""
    return "".join(line.strip() for line in render(figure, words, **values).splitlines())


def make_control(
    kind: str, name: str, words: dict[str, str], at: object, values: Iterable[Any] = (), **more: Any
) -> Any:
    """Return the description of a control, from which the page's script makes it.

    Args:
        kind: "choice" (from a list) and "slider", which have `options`, values with their labels;
            "number", of `least` or more in steps of `step` ("any" allows fractions); or "tick".
        name: of the value, and of its label in `words`.
        words: of the page's language.
        at: the value that is shown first.
        values: of the options; `words` have their labels, by `name-value` or by the value alone, or
            the value is its own.
        more: what the kind has besides.
    """
    if values:
        labels = {value: words.get(str(value), str(value)) for value in values}
        labels = {value: words.get(f"{name}-{value}", label) for value, label in labels.items()}
        more = {"options": [*labels.items()], **more}
    is_long = kind == "choice" and max(len(text) for _, text in more["options"]) > LONG
    return {"name": name, "label": words[name], "kind": kind, "at": at, "isLong": is_long, **more}


def embed_figures(
    page: Element, makers: dict[str, Maker], *, language: str, url: str, root: Path
) -> list[str]:
    """Replace the marks in a page by their figures; return the names that no figure has.

    Args:
        page: the page's content.
        makers: the figures' makers by name, `sitelab.figures.MAKERS`.
        language: of the page: "en" or "es".
        url: of the page, relative to the site's root.
        root: of the repository.

    """
    unknown: list[str] = []

    def replace_mark(mark: Element) -> list[Element | str] | None:
        name = mark.attributes.get("id", "")
        if mark.tag != "div" or mark.classes != ["figure"] or not name.startswith(_MARK):
            return None
        name = name.removeprefix(_MARK)
        if name not in makers:
            unknown.append(name)
            return None
        words = load_words(language)["controls"] | load_words(language)[name]
        figure, scripts = makers[name](words, root), get_relative_url(f"{SCRIPTS}/", url)
        place = str(render("controls", words, data=figure.data)) if figure.data else ""
        above, below, rest = (*_BELOW.split(str(figure.html), 1), "", "")[:3]
        picture = f'<div class="play-top">{above}{place}</div>{below}{rest}'
        values = {"name": name, "picture": picture, "data": figure.data, "scripts": scripts}
        return [render("figure", words, **values)]

    page.replace(replace_mark)
    return unknown


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
