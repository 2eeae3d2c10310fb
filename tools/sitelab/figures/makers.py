"""Which figures there are, by the name that marks their place in a page."""

from sitelab.figures import collective, memory, schedule, trace
from sitelab.figures.shown import Maker

MAKERS: dict[str, Maker] = {
    "collective": collective.figure,
    "memory": memory.figure,
    "schedule": schedule.figure,
    "trace": trace.figure,
}
