"""Which device a rank takes, and over what it meets the others: tried without any GPU."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist

from shardlab.comm import Axis, World
from shardlab.comm.groups import agree_on_device, choose_backend, select_gpu
from tests.shardlab.pool import on_ranks


@pytest.fixture(autouse=True)
def nccl(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dist, "is_nccl_available", lambda: True)


def pretend_gpus(monkeypatch: pytest.MonkeyPatch, *uuids: str) -> None:
    """Have torch see these GPUs, and no others."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: bool(uuids))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: len(uuids))
    monkeypatch.setattr(
        torch.cuda, "get_device_properties", lambda index: SimpleNamespace(uuid=uuids[index])
    )


def test_one_gpu_for_each_rank_is_nccl_without_a_warning() -> None:
    assert choose_backend(["a", "b"], share_gpus=False) == ("nccl", "cuda", "")


def test_no_gpu_at_all_is_gloo_without_a_warning() -> None:
    assert choose_backend([None, None], share_gpus=False) == ("gloo", "cpu", "")


@pytest.mark.parametrize(
    ("gpus", "why"),
    [
        (["a", "a"], "2 ranks have 1 GPU, and NCCL wants one a rank"),
        (["a", "b", "a", "b"], "4 ranks have 2 GPUs, and NCCL wants one a rank"),
        (["a", None], "1 of 2 ranks see no GPU that torch can use"),
    ],
)
def test_a_gpu_that_is_not_used_gives_a_warning(gpus: list[str | None], why: str) -> None:
    backend, kind, remark = choose_backend(gpus, share_gpus=False)
    assert (backend, kind) == ("gloo", "cpu")
    assert remark == f"{why}. All ranks compute on the CPU, over gloo."


def test_ranks_share_a_gpu_only_where_that_is_wished() -> None:
    backend, kind, remark = choose_backend(["a", "a"], share_gpus=True)
    assert (backend, kind) == ("gloo", "cuda")
    assert "They share" in remark


def test_a_torch_without_nccl_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dist, "is_nccl_available", lambda: False)
    assert choose_backend(["a", "b"], share_gpus=False)[2].startswith("this torch has no NCCL.")


def test_a_rank_that_sees_one_gpu_alone_takes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """As Slurm binds them: two ranks of a host, each with a device 0 that is another GPU."""
    store = dist.HashStore()
    store.set("shardlab/gpu/0", "GPU-a")
    monkeypatch.setenv("LOCAL_RANK", "1")
    pretend_gpus(monkeypatch, "GPU-b")
    assert agree_on_device(store, 1, 2, share_gpus=False) == ("nccl", torch.device("cuda", 0), "")


def test_of_several_gpus_a_rank_takes_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_gpus(monkeypatch, "GPU-a", "GPU-b")
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert select_gpu(5) == (1, "GPU-b")


def test_joining_without_a_gpu_each_warns_once_and_computes_on_the_cpu(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One rank of one that sees a GPU, in a torch without NCCL."""
    monkeypatch.setattr(dist, "is_nccl_available", lambda: False)
    pretend_gpus(monkeypatch, "GPU-a")
    with pytest.warns(UserWarning, match="no NCCL. All ranks compute on the CPU"):
        world = World.join(store=dist.HashStore(), rank=0, size=1)
    with world:
        assert (world.backend, world.device) == ("gloo", torch.device("cpu"))


def test_gpu_tensors_over_gloo_go_by_way_of_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """gloo would read a GPU's address as one of the host's."""
    with World.join(backend="gloo", store=dist.HashStore(), rank=0, size=1) as world:
        world.device = torch.device("cuda", 0)
        assert type(world.connect((0,), "torch")).__name__ == "StagedLink"


@on_ranks(1)
def test_small_numbers_do_not_wait_for_what_the_gpu_has_to_do_later(world: World) -> None:
    """On a CPU nothing can be late: there the numbers alone are compared."""
    axis, out = Axis(world, "whole", (0,), "torch"), torch.empty(1, dtype=torch.int64)
    axis._link = world.connect((0,), "torch")  # an axis of one rank has none
    finish = axis.start_gather_small(torch.tensor([7]), out)
    is_late = True
    if world.device.type == "cuda":
        later = torch.cuda.Event()
        torch.cuda._sleep(2_000_000_000)  # about a second
        later.record()
    finish()
    if world.device.type == "cuda":
        is_late = not later.query()
    assert out.tolist() == [7] and is_late
