"""How much of a step's communication lies beneath its compute, by its timeline."""

from collections.abc import Iterable

from costlab.sections.fully_sharded.timeline import Span


def hidden_share(spans: Iterable[Span]) -> float:
    """The share of a rank's time with a collective under way in which it computed, too; 0 to 1.

    Raises:
        ValueError: no collective was under way at all.
    """
    ordered = sorted((span.start_s, span.end_s, span.track) for span in spans)
    under_way = _union([s[:2] for s in ordered if s[2].endswith("communication")])
    computing = _union([s[:2] for s in ordered if s[2].endswith("compute")])
    total = sum(end - begin for begin, end in under_way)
    if not total:
        raise ValueError("no collective was under way in this step")
    both = sum(
        max(0.0, min(transfer[1], computation[1]) - max(transfer[0], computation[0]))
        for transfer in under_way
        for computation in computing
    )
    return both / total


def _union(ascending: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """Intervals as few that don't touch."""
    few: list[tuple[float, float]] = []
    for begin, end in ascending:
        if few and begin <= few[-1][1]:
            few[-1] = (few[-1][0], max(few[-1][1], end))
        else:
            few.append((begin, end))
    return few
