"""What is said of rounds that something else disturbed."""

from __future__ import annotations

from costlab.record.quantity import per_cent
from costlab.record.result import Load
from costlab.record.words import Words

BUSY = Words(
    "The machine was busy: don't quote this. In {spoiled} of {rounds} rounds something else used "
    "the cores, up to {most} of them, on the whole {share}; too few others are left, so they count",
    "La máquina estaba ocupada: no cites esto. En {spoiled} de {rounds} rondas otra cosa usó los "
    "núcleos, hasta el {most} de ellos, en conjunto el {share}; quedaban demasiado pocas de las "
    "otras, así que cuentan",
)
DROPPED = Words(
    "{dropped} of {rounds} rounds dropped: something else used up to {most} of the cores",
    "{dropped} de {rounds} rondas descartadas: otra cosa usó hasta el {most} de los núcleos",
)
CLEAN = Words(
    "{rounds} rounds, none dropped: something else used {share} of the cores",
    "{rounds} rondas, ninguna descartada: otra cosa usó el {share} de los núcleos",
)
UNWATCHED = Words(
    "{unwatched} of {rounds} rounds unwatched: this system doesn't say what else uses the cores",
    "{unwatched} de {rounds} rondas sin vigilar: este sistema no dice qué más usa los núcleos",
)


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
