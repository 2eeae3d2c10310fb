"""What is said of rounds that something else disturbed."""

from __future__ import annotations

from costlab.record.quantity import per_cent
from costlab.record.result import Load
from costlab.record.words import Words, words

BUSY = words("disturbed.busy")
DROPPED = words("disturbed.dropped")
CLEAN = words("disturbed.clean")
UNWATCHED = words("disturbed.unwatched")


def said(load: Load) -> Words:
    """Return one line about some rounds."""
    words = CLEAN
    if load.unwatched:
        words = UNWATCHED
    if load.dropped:
        words = DROPPED
    if load.spoiled:
        words = BUSY
    share = load.foreign / load.there if load.there else 0.0
    facts = {
        "rounds": load.rounds, "dropped": load.dropped, "spoiled": load.spoiled,
        "unwatched": load.unwatched, "share": per_cent(share), "most": per_cent(load.most),
    }  # fmt: skip
    return Words(words.en.format(**facts), words.es.format(**facts))
