"""What torch.distributed makes for a world: the meeting of its ranks, and their process groups."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

# Its default arguments keep whatever group there is when it is first imported, which would be at
# the first step of an optimizer: with its threads, to the interpreter's end.
import torch.distributed.nn.functional


def new_group(ranks: tuple[int, ...], rank: int, timeout: float) -> Any:
    """Return a group of the default backend, under a name that its members alone agree on.

    `dist.new_group(…, use_local_synchronization=True)` names it after its ranks and *how many
    groups this process has*. A middle pipeline stage has one fewer than the first, which has an
    embedding group too; their next group in common would get two names, and both would wait.
    torch has no public call that takes a name (2.13 to 2.15).

    Args:
        ranks: the members, each of which calls this.
        rank: this one.
        timeout: seconds that a collective may take.
    """
    c10d = dist.distributed_c10d
    backend, store = c10d._world.pg_map[c10d._get_default_group()]
    if backend == "fake":  # its store keeps nothing, and nobody waits
        return dist.new_group(list(ranks))
    name = "shardlab/" + "-".join(map(str, ranks))
    made = store.add(f"{name}/made by {rank}", 1)  # another world may have one like it
    group, _ = c10d._new_process_group_helper(
        len(ranks), ranks.index(rank), list(ranks), c10d.Backend(backend), store,
        c10d.GroupName(f"{name}/{made}"), timeout=timedelta(seconds=timeout),
    )  # fmt: skip
    c10d._world.pg_group_ranks[group] = {rank: i for i, rank in enumerate(ranks)}
    return group


def rendezvous() -> tuple[Any, int, int]:
    """Meet the other ranks as torchrun's environment says."""
    missing = [key for key in ("RANK", "WORLD_SIZE", "MASTER_ADDR") if key not in os.environ]
    if missing:
        raise RuntimeError(
            f"{', '.join(missing)} not set: launch with torchrun --nproc-per-node=N SCRIPT, "
            "or pass store, rank and size"
        )
    return next(iter(dist.rendezvous("env://")))  # type: ignore[attr-defined, no-any-return]


def backend_for(taken: Sequence[str | None], *, share: bool) -> tuple[str, str, str]:
    """Choose what joins the ranks, from the GPU that each of them would take.

    Args:
        taken: each rank's GPU, by a name that no other GPU has, or None where a rank sees none.
        share: whether several ranks may compute on one GPU.

    Returns:
        the backend, the kind of device, and what to tell whoever expects something else.
    """
    seen = {gpu for gpu in taken if gpu}
    if not seen:
        return "gloo", "cpu", ""
    blind = sum(gpu is None for gpu in taken)
    if blind:
        why = f"{blind} of {len(taken)} ranks see no GPU that torch can use"
    elif not dist.is_nccl_available():
        why = "this torch has no NCCL"
    elif len(seen) == len(taken):
        return "nccl", "cuda", ""
    else:
        gpus = "1 GPU" if len(seen) == 1 else f"{len(seen)} GPUs"
        why = f"{len(taken)} ranks have {gpus}, and NCCL wants one a rank"
        if share:
            return "gloo", "cuda", f"{why}. They share, over gloo: what it shows is no speed."
    return "gloo", "cpu", f"{why}. All ranks compute on the CPU, over gloo."


def own_gpu(rank: int) -> tuple[int, str | None]:
    """Return the index of the GPU that this rank would take, and its name among all GPUs.

    A launcher that binds GPUs to ranks (Slurm's --gpus-per-task, say) shows each rank its own
    alone, as number 0; torchrun shows all of them to each.
    """
    if not torch.cuda.is_available():
        return 0, None
    index = int(os.environ.get("LOCAL_RANK", rank)) % torch.cuda.device_count()
    return index, str(torch.cuda.get_device_properties(index).uuid)


def agree_on_device(
    store: Any, rank: int, size: int, *, share: bool
) -> tuple[str, torch.device, str]:
    """Have all ranks choose alike: the backend, this rank's device, and a remark for the user."""
    index, mine = own_gpu(rank)
    store.set(f"shardlab/gpu/{rank}", mine or "")
    taken = [store.get(f"shardlab/gpu/{other}").decode() or None for other in range(size)]
    backend, kind, remark = backend_for(taken, share=share)
    device = torch.device("cuda", index) if kind == "cuda" else torch.device("cpu")
    return backend, device, remark


def connector(link: str) -> Any:
    """Return the `connect` of a folder of shardlab/links; the core knows them by name alone."""
    folder = Path(__file__).parents[1] / "links"
    known = {p.parent.name.replace("_", "-"): p.parent.name for p in folder.glob("*/__init__.py")}
    if link not in known:
        choose = ", ".join(f'"{name}"' for name in ("torch", *sorted(known)))
        raise ValueError(f"link {link!r} is not known; choose from {choose}")
    return import_module(f"shardlab.links.{known[link]}").connect


START = 60.0  # seconds: a process that starts on a busy machine takes its time


def limit(backend: str, timeout: float) -> float:
    """Return the seconds that the backend itself lets a collective take.

    NCCL's watchdog ends the process: not before `late` has said why.
    """
    return timeout + START if backend == "nccl" else timeout - grace(timeout)


def grace(timeout: float) -> float:
    """Return how long a rank that gives up may wait for the others' words."""
    return min(2.0, timeout / 4)
