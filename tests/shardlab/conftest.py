"""The workers' imports, and pytest's collection, take seconds each: they go on side by side.

(Not in a process of xdist's, of which one alone needs workers.)
"""

from __future__ import annotations

import math
import os

import pytest
import torch

from tests.shardlab import pool

if "PYTEST_XDIST_WORKER" not in os.environ:
    pool.preload()


def pytest_itemcollected(item: pytest.Item) -> None:
    """Leave to CI what eight ranks do as four did: they take a laptop's two cores turn by turn."""
    call = getattr(item, "callspec", None)
    params = call.params if call else {}
    eight = 8 in (params.get("size"), params.get("ranks"), params.get("p"))
    if eight and not item.get_closest_marker("benchmark"):
        item.add_marker("ci")


def pytest_runtest_setup() -> None:
    pool.preload()  # before the bench's launcher starts its own forkserver, which imports less


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    """One, as a rank has: of two, on tensors this small, one would spin and wait."""
    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def skip_host_links(request: pytest.FixtureRequest) -> None:
    """Skip, on GPUs, the cases of links that carry tensors of the CPU alone."""
    call = getattr(request.node, "callspec", None)
    link = call.params.get("link") if call else None
    if link in ("fast-gloo", "shared-memory") and request.config.getoption("--device") == "cuda":
        pytest.skip(f"the link {link} carries CPU tensors")


@pytest.fixture(autouse=True)
def skip_shared_gpus(request: pytest.FixtureRequest) -> None:
    """Skip, where ranks share a GPU, what another library does there over gloo.

    On an H200 gloo had no kernel for one of Megatron's collectives, and sent its pipeline's
    messages from a GPU's address. Where DTensor and PyTorch's FSDP were compared, the processes
    ended; a small FSDP alone ran there. Our tensors go by way of the host.
    """
    on_gpu = request.config.getoption("--device") == "cuda"
    if on_gpu and (marker := request.node.get_closest_marker("gpu_each")):
        params = getattr(getattr(request.node, "callspec", None), "params", {})
        sizes = marker.args or [params.get(n, 1) for n in ("size", "tensor", "pipeline", "data")]
        if torch.cuda.device_count() < math.prod(sizes):
            pytest.skip("another library's GPU tensors fail over gloo, and NCCL wants a GPU a rank")
