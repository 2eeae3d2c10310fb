"""What came out on top: the results page's first lines, each number with its interval and its row.

The words stand in words.toml, one line a headline, with a metric's id in braces where its value
goes. A line whose metrics a run hasn't is left out.
"""

import re
from collections.abc import Mapping

from costlab.publish import page
from costlab.record import quantity
from costlab.record.result import Metric
from costlab.record.words import texts

_METRIC = re.compile(r"\{([\w.-]+)\}")


def text(metrics: Mapping[str, Metric], language: str) -> str:
    """Return the lines as a list, or nothing."""
    lines = (headline.of(language) for headline in texts("headlines").values())
    return "".join(
        f"- {_METRIC.sub(lambda match: linked(metrics[match[1]]), line)}\n"
        for line in lines
        if all(name in metrics for name in _METRIC.findall(line))
    )


def linked(metric: Metric, *, place: bool = False) -> str:
    """Return a value that leads to its row, and its interval where it has one.

    Args:
        metric: what is shown.
        place: the value leads nowhere: links to its row lead here.
    """
    row, value = page.row_of(metric.id), quantity.format_metric(metric)
    shown = f'<a id="{row}"></a>{value}' if place else f"[{value}](#{row})"
    spread = quantity.spread(metric)
    return f"{shown} ({spread})" if spread else shown
