"""Interactive figures: drawn here for readers without scripts, with data for the page's script.

A page marks the place with `<div class="figure" id="figure-memory">…</div>`. The numbers come from
`shardlab`'s arithmetic, which imports no torch, and from the committed results.

`MAKERS` has them by the name that marks their place in a page: the figure `memory-step` is made by
`make_figure` of the module memory_step.
"""

from functools import partial
from importlib import import_module

from sitelab.figures import schedule
from sitelab.figures.embed import Maker

_FIGURES = "collective dispatch fsdp grid memory memory-step ring schedule trace zero zigzag"
MAKERS: dict[str, Maker] = {
    name: import_module(f"sitelab.figures.{name.replace('-', '_')}").make_figure
    for name in _FIGURES.split()
}
# The kinds, the micro-batches, and a backward's time in forwards.
MAKERS["two-schedules"] = partial(schedule.compare_schedules, ("gpipe", "1f1b"), 8, 1)
MAKERS["zero-bubble"] = partial(schedule.compare_schedules, ("1f1b", "zb-h1"), 6, 2)
