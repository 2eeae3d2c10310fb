"""Compares the bench with a known truth: a rank's sent bytes are those that its interface counts.

Ranks sit in network namespaces, joined by a switch (see namespaces.py). Bandwidths and delays,
which other work on the machine would spoil, are held in tests/costlab/benchmark.
"""

import os
import subprocess
from typing import Any

import pytest

from costlab.sections.collectives.operations import OPERATIONS
from costlab.sections.fit import carried
from tests.costlab.network import lab
from tests.costlab.network.namespaces import explain_lack

# Skipped only where the kernel refuses namespaces (or iproute2 is missing). CI runs as root, where
# they are allowed: there a skip is a fault.
pytestmark = [pytest.mark.timeout(2 * lab.PATIENCE)]
if os.geteuid():
    pytestmark.append(pytest.mark.may_skip)
CASES = [(operation, ranks) for operation in lab.OPERATIONS for ranks in lab.WORLDS]


@pytest.fixture(scope="module")
def sent() -> dict[str, Any]:
    if why := explain_lack():
        pytest.skip(why)
    return lab.run_experiment("sent")


@pytest.mark.parametrize(("operation", "ranks"), CASES)
def test_every_rank_sends_the_bytes_that_the_model_says(
    sent: dict[str, Any], operation: str, ranks: int
) -> None:
    model = carried("gloo", operation, ranks)
    assert sent[f"{operation}.n{ranks}"] == pytest.approx([float(model)] * ranks, rel=5e-3)


@pytest.mark.parametrize(("operation", "ranks"), CASES)
def test_only_gloos_reduce_scatter_sends_more_than_was_asked(operation: str, ranks: int) -> None:
    necessary = OPERATIONS[operation].bus_factor(ranks)
    assert (
        carried("gloo", operation, ranks) == (2 if operation == "reduce_scatter" else 1) * necessary
    )


def test_nothing_is_left_behind(sent: dict[str, Any]) -> None:
    names = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True)
    links = subprocess.run(["ip", "-br", "link"], capture_output=True, text=True, check=True)
    assert "node" not in names.stdout
    assert not any(name in links.stdout for name in ("switch", "port0", "end0"))
