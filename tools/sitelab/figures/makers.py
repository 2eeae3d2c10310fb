"""The figures that exist, by the name that marks their place in a page."""

from sitelab.figures import (
    collective,
    fsdp,
    grid,
    memory,
    memory_step,
    ring,
    schedule,
    trace,
    zigzag,
)
from sitelab.figures.embed import Maker

MAKERS: dict[str, Maker] = {
    "collective": collective.make_figure,
    "fsdp": fsdp.make_figure,
    "grid": grid.make_figure,
    "memory": memory.make_figure,
    "memory-step": memory_step.make_figure,
    "ring": ring.make_figure,
    "schedule": schedule.make_figure,
    "trace": trace.make_figure,
    "zigzag": zigzag.make_figure,
}
