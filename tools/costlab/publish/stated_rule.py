"""What a results page says of its values and spreads: the one rule (`statistic`), in words."""

from __future__ import annotations

from costlab.record.words import words

RULE = words("rule.rule")
BENCH = words("rule.bench")


def stated(language: str) -> str:
    """Return the rule that a result's numbers follow."""
    return RULE.of(language).format(page=BENCH.of(language))
