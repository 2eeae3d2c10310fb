"""Matches the choices of two readings by the lines and symbols that both cite."""

import msgspec

from notelab.compare.choices import Choice, CitedRange

Pair = tuple[Choice | None, Choice | None]


class Comparison(msgspec.Struct):
    """Pairs of the learner's choice and the solution's; the partner is None if there is none."""

    matched: list[Pair]
    missed: list[Pair]
    own_only: list[Pair]


def match_choices(own_choices: list[Choice], solution_choices: list[Choice]) -> Comparison:
    """Match each of the learner's choices with every choice of the solution that shares a line.

    A choice that shares no line has the one choice of the same innermost function or class as its
    partner, if there is any. Partners come in the order of how much of the learner's lines they
    cite, then of how many words of titles and code names they share.
    """
    matched: list[Pair] = []
    own_only: list[Pair] = []
    for choice in own_choices:
        partners = _partners(choice, solution_choices)
        matched += [(choice, partner) for partner in partners]
        own_only += [] if partners else [(choice, None)]
    partner_ids = {id(partner) for _, partner in matched}
    missed: list[Pair] = [
        (None, choice) for choice in solution_choices if id(choice) not in partner_ids
    ]
    return Comparison(matched, missed, own_only)


def _partners(choice: Choice, solution_choices: list[Choice]) -> list[Choice]:
    def rank(partner: Choice) -> tuple[float, int]:
        return -_share_of_lines(choice, partner), -len(choice.words & partner.words)

    sharing = [partner for partner in solution_choices if _share_of_lines(choice, partner)]
    if sharing:
        return sorted(sharing, key=rank)
    symbols = {_symbol(cited) for cited in choice.citations if cited.symbol}
    near = [
        partner
        for partner in solution_choices
        if symbols.intersection(map(_symbol, partner.citations))
    ]
    return sorted(near, key=rank)[:1]


def _share_of_lines(choice: Choice, partner: Choice) -> float:
    """Return which share of the lines of `choice`'s citations `partner` cites, too."""
    shares = [
        max((_common_lines(cited, other) for other in partner.citations), default=0)
        / (cited.end - cited.start + 1)
        for cited in choice.citations
    ]
    return sum(shares) / len(shares) if shares else 0.0


def _common_lines(a: CitedRange, b: CitedRange) -> int:
    if (a.source, a.path) != (b.source, b.path):
        return 0
    return max(0, min(a.end, b.end) - max(a.start, b.start) + 1)


def _symbol(cited: CitedRange) -> tuple[str, str, str]:
    return cited.source, cited.path, cited.symbol
