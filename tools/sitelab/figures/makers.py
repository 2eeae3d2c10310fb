"""The figures that exist, by the name that marks their place in a page.

The figure `memory-step` is made by `make_figure` of the module memory_step in this folder.
"""

from importlib import import_module

from sitelab.figures import schedule
from sitelab.figures.embed import Maker

_FIGURES = "collective fsdp grid memory memory-step ring schedule trace zero zigzag"
MAKERS: dict[str, Maker] = {
    name: import_module(f"sitelab.figures.{name.replace('-', '_')}").make_figure
    for name in _FIGURES.split()
} | {"two-schedules": schedule.make_two_schedules, "zero-bubble": schedule.make_zero_bubble}
