"""Rendezvous, the choice of a backend and a device, and the process groups of a world."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

# Its default arguments hold the default group at the time of its first import, which would be the
# first step of an optimizer. That group, with its threads, would live until the interpreter ends.
import torch.distributed.nn.functional


def new_group(ranks: tuple[int, ...], rank: int, timeout: float) -> Any:
    """Return a group of the default backend, under a name that only its members need to agree on.

    `dist.new_group(…, use_local_synchronization=True)` names it after its ranks and *how many
    groups this process has*. A middle pipeline stage has one fewer than the first, which has an
    embedding group too; their next group in common would get two names, and both would wait.
    torch has no public call that takes a name (2.13 to 2.15).

    Args:
        ranks: the members, each of which calls this.
        rank: this rank.
        timeout: seconds that a collective may take.
    """
    c10d = dist.distributed_c10d
    backend, store = c10d._world.pg_map[c10d._get_default_group()]
    if backend == "fake":  # its store keeps nothing, and no rank waits
        return dist.new_group(list(ranks))
    name = "shardlab/" + "-".join(map(str, ranks))
    count = store.add(f"{name}/made by {rank}", 1)  # another world may have one like it
    group, _ = c10d._new_process_group_helper(
        len(ranks), ranks.index(rank), list(ranks), c10d.Backend(backend), store,
        c10d.GroupName(f"{name}/{count}"), timeout=timedelta(seconds=timeout),
    )  # fmt: skip
    c10d._world.pg_group_ranks[group] = {rank: i for i, rank in enumerate(ranks)}
    return group


def rendezvous() -> tuple[Any, int, int]:
    """Return the store, the rank and the world size that torchrun's environment describes.

    Raises:
        RuntimeError: an environment variable is missing.
    """
    missing = [key for key in ("RANK", "WORLD_SIZE", "MASTER_ADDR") if key not in os.environ]
    if missing:
        raise RuntimeError(
            f"{', '.join(missing)} not set: launch with torchrun --nproc-per-node=N SCRIPT, "
            "or pass store, rank and size"
        )
    return next(iter(dist.rendezvous("env://")))  # type: ignore[attr-defined, no-any-return]


def choose_backend(gpus: Sequence[str | None], *, share_gpus: bool) -> tuple[str, str, str]:
    """Choose the backend and the type of device from the GPU that each rank would use.

    Args:
        gpus: each rank's GPU, by a name that is unique among all hosts; None where a rank has none.
        share_gpus: whether several ranks may compute on one GPU.

    Returns:
        the backend, the device type, and a warning for the user ("" for none).
    """
    distinct = {gpu for gpu in gpus if gpu}
    if not distinct:
        return "gloo", "cpu", ""
    without_gpu = sum(gpu is None for gpu in gpus)
    if without_gpu:
        why = f"{without_gpu} of {len(gpus)} ranks see no GPU that torch can use"
    elif not dist.is_nccl_available():
        why = "this torch has no NCCL"
    elif len(distinct) == len(gpus):
        return "nccl", "cuda", ""
    else:
        number = "1 GPU" if len(distinct) == 1 else f"{len(distinct)} GPUs"
        why = f"{len(gpus)} ranks have {number}, and NCCL wants one a rank"
        if share_gpus:
            return "gloo", "cuda", f"{why}. They share, over gloo: what it shows is no speed."
    return "gloo", "cpu", f"{why}. All ranks compute on the CPU, over gloo."


def select_gpu(rank: int) -> tuple[int, str | None]:
    """Return the index of the GPU that this rank would use, and its UUID (None without a GPU).

    A launcher that binds GPUs to ranks, such as Slurm's --gpus-per-task, shows each rank only its
    own GPU, as number 0. torchrun shows all GPUs of the host to each rank.
    """
    if not torch.cuda.is_available():
        return 0, None
    index = int(os.environ.get("LOCAL_RANK", rank)) % torch.cuda.device_count()
    return index, str(torch.cuda.get_device_properties(index).uuid)


def agree_on_device(
    store: Any, rank: int, size: int, *, share_gpus: bool
) -> tuple[str, torch.device, str]:
    """Return the backend, which all ranks agree on, this rank's device, and a warning or ""."""
    index, gpu = select_gpu(rank)
    store.set(f"shardlab/gpu/{rank}", gpu or "")
    gpus = [store.get(f"shardlab/gpu/{peer}").decode() or None for peer in range(size)]
    backend, device_type, remark = choose_backend(gpus, share_gpus=share_gpus)
    device = torch.device("cuda", index) if device_type == "cuda" else torch.device("cpu")
    return backend, device, remark


STARTUP_SECONDS = 60.0  # a process that starts on a busy machine may need this long


def backend_timeout(backend: str, timeout: float) -> float:
    """Return the timeout of the process group, in seconds.

    NCCL's own watchdog ends the process. Its timeout is longer than ours, so that `nccl_watchdog`
    reports the missing ranks first.
    """
    return timeout + STARTUP_SECONDS if backend == "nccl" else timeout - grace_period(timeout)


def grace_period(timeout: float) -> float:
    """Return the seconds that a rank which gives up waits for its peers' failure reports."""
    return min(2.0, timeout / 4)
