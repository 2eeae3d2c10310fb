"""Memory: what is decided by arithmetic, without ranks."""

from collections.abc import Iterator
from dataclasses import replace

import torch

from costlab.implementations import tutor
from costlab.implementations.dtensor import WholeGPT
from costlab.record.result import Metric
from costlab.sections.counts.counted import counted

# fp32 weights and gradients, and Adam's two moments: 4 bytes each (arXiv 1910.02054, section 3).
BYTES_A_PARAMETER = 4 + 4 + 4 + 4
CARDS = (8, 16, 24, 80)
# More parameters than the largest of these cards holds: 12·H² a layer.
WIDE, DEEP = 8192, 8


def memory() -> Iterator[Metric]:
    """How many parameters fill a card with states alone, replicated and in fp32.

    And how many a wide model has whose vocabulary is the tutor's.
    """
    for card in CARDS:
        parameters = card * 1e9 / BYTES_A_PARAMETER
        yield counted(f"replicated.{card}gb.parameters", parameters, "parameters", how="derived")
    config = replace(tutor.config(WIDE), layers=DEEP)
    with torch.device("meta"):
        model = WholeGPT(config)
    total = sum(parameter.numel() for parameter in model.parameters())
    yield counted("tutors-vocabulary.wide-model", total, "parameters", vocabulary=config.vocab)
