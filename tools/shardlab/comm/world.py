"""This process among all ranks: joining, leaving, and the process groups in between."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import timedelta
from functools import cached_property
from typing import Any

import torch
import torch.distributed as dist

from shardlab.comm.announcement import Announcements
from shardlab.comm.axis import Axis
from shardlab.comm.faults import Witness
from shardlab.comm.torch_link import TorchLink
from shardlab.links.shared_memory import SharedMemoryLink


class World:
    """This process's place among all ranks; hands out axes and owns their process groups.

    Use `World.join()` in a program that torchrun launched, `World.adopt()` where somebody else has
    called `init_process_group` already. As a context manager it leaves the group at the end, and
    tells the other ranks why if an exception ends it.

    Attributes:
        rank: this rank, of `size`.
        device: where this rank's tensors live.
        backend: "gloo", "nccl" or "fake".
        timeout: seconds until a rank that waits in a collective has given up and said why.
        check: whether tensors are compared between ranks before they meet the backend.
        wide_sums: whether half-precision tensors are added in fp32.
    """

    def __init__(
        self,
        *,
        rank: int,
        size: int,
        device: torch.device,
        backend: str,
        timeout: float,
        check: bool,
        wide_sums: bool,
        store: Any,
        owner: bool,
    ) -> None:
        self.rank = rank
        self.size = size
        self.device = device
        self.backend = backend
        self.timeout = timeout
        self.check = check
        self.wide_sums = wide_sums
        if backend == "fake":  # its store keeps nothing
            store = dist.HashStore()  # type: ignore[attr-defined]
        # Each rank's nth world on a store meets the other ranks' nth, and no keys of earlier ones.
        number = store.add(f"shardlab/worlds/{rank}", 1)
        self._store = dist.PrefixStore(f"shardlab/{number}", store)  # type: ignore[attr-defined]
        self._owner = owner
        self._groups: dict[tuple[int, ...], Any] = {}
        self._shared: dict[tuple[int, ...], SharedMemoryLink] = {}
        self._axes: dict[tuple[str, tuple[int, ...], str], Axis] = {}
        grace = _grace(timeout)
        self._patience = timeout - grace  # what a collective may take, to be explained in time
        self.witness = Witness(self._store, rank, size, grace=grace)
        self.announcements = Announcements(self._store, self._patience)

    @classmethod
    def join(
        cls,
        *,
        backend: str | None = None,
        device: torch.device | None = None,
        timeout: float = 60.0,
        check: bool = False,
        wide_sums: bool = False,
        store: Any = None,
        rank: int | None = None,
        size: int | None = None,
        watch: bool = False,
    ) -> World:
        """Join the ranks that torchrun launched (or those that share `store`).

        Args:
            backend: "nccl" where every local rank has a GPU of its own, else "gloo", unless given.
            device: this rank's device; by default its own GPU under nccl, the CPU under gloo.
            timeout: seconds until a rank that waits in a collective has given up and said why.
            check: refuse tensors whose shape or dtype differs between ranks before they meet the
                backend, at the price of one small exchange a collective.
            wide_sums: add bf16 and fp16 in fp32 and round once, at the price of twice the bytes. A
                backend adds rank by rank and rounds each time; 256 + 1 is 256 in bf16.
            store: a torch.distributed store; with `rank` and `size`.
            watch: end this process when another rank failed and this one hangs outside collectives.

        Raises:
            RuntimeError: not launched by torchrun and no store given.
        """
        if store is None:
            store, rank, size = _rendezvous()
        assert rank is not None and size is not None
        if backend is None:
            backend = _backend(int(os.environ.get("LOCAL_WORLD_SIZE", size)))
        if device is None:
            local = int(os.environ.get("LOCAL_RANK", rank))
            device = torch.device("cuda", local) if backend == "nccl" else torch.device("cpu")
        if device.type == "cuda":
            torch.cuda.set_device(device)
        dist.init_process_group(
            backend,
            store=dist.PrefixStore("torch", store),  # type: ignore[attr-defined]
            rank=rank,
            world_size=size,
            timeout=timedelta(seconds=max(timeout, _START)),
            # No device_id: a bound device makes NCCL split subgroups off the whole world, which
            # every rank must join, and ours are made by their members alone.
        )
        world = cls(
            rank=rank,
            size=size,
            device=device,
            backend=backend,
            timeout=timeout,
            check=check,
            wide_sums=wide_sums,
            store=store,
            owner=True,
        )
        dist.group.WORLD.set_timeout(timedelta(seconds=world._patience))  # type: ignore[union-attr]
        if watch:
            world.witness.watch(every=1.0, patience=timeout)
        return world

    @classmethod
    def adopt(
        cls, *, device: torch.device | None = None, timeout: float = 60.0, check: bool = False,
        wide_sums: bool = False,
    ) -> World:  # fmt: skip
        """Wrap the default process group, which the caller made and will destroy."""
        backend = dist.get_backend()
        if device is None:
            on_gpu = backend == "nccl"
            device = torch.device("cuda", torch.cuda.current_device()) if on_gpu else _CPU
        return cls(
            rank=dist.get_rank(),
            size=dist.get_world_size(),
            device=device,
            backend=backend,
            timeout=timeout,
            check=check,
            wide_sums=wide_sums,
            store=dist.distributed_c10d._get_default_store(),
            owner=False,
        )

    @property
    def whole(self) -> Axis:
        """All ranks as one axis."""
        return self.axis("world", range(self.size))

    def axis(self, name: str, ranks: Sequence[int], *, link: str = "torch") -> Axis:
        """Return the axis over `ranks` (global, in order); every member calls this, others needn't.

        Args:
            name: what errors and the ledger call it.
            ranks: global ranks; this one must be among them.
            link: "torch" for the world's backend, "shared-memory" for ranks of one host.

        Raises:
            ValueError: this rank is not among `ranks`, or no such link is known.
        """
        members = tuple(ranks)
        if self.rank not in members:
            raise ValueError(f"rank {self.rank} is not on the {name} axis {list(members)}")
        key = (name, members, link)
        if key not in self._axes:
            self._axes[key] = Axis(self, name, members, link)
        return self._axes[key]

    def link(self, ranks: tuple[int, ...], link: str) -> TorchLink | SharedMemoryLink:
        """Return what carries an axis over `ranks`; made once, by its members alone."""
        if link == "torch":
            return TorchLink(
                self.group(ranks), len(ranks), self.backend, self._patience, crowded=self._crowded
            )
        if link != "shared-memory":
            raise ValueError(f'link {link!r} is not known; choose "torch" or "shared-memory"')
        if ranks not in self._shared:
            name = "shared-memory/" + "-".join(map(str, ranks))
            store = dist.PrefixStore(name, self._store)  # type: ignore[attr-defined]
            self._shared[ranks] = SharedMemoryLink(
                store, ranks, self.rank, timeout=self._patience, beside=self._shared.values()
            )
        return self._shared[ranks]

    @cached_property
    def _crowded(self) -> bool:
        """Whether all ranks are on this host, and more than it has cores; the same on every rank.

        Cores of the host, not those that this process may use: a launcher may have given each rank
        its own, and the ranks must agree.
        """
        many = self.backend == "gloo" and self.size > (os.cpu_count() or 1)
        return many and self.witness.all_on_this_host()

    def group(self, ranks: tuple[int, ...]) -> Any:
        """Return torch's process group over `ranks`; made once, by its members alone."""
        if ranks not in self._groups:
            if ranks == tuple(range(self.size)):
                self._groups[ranks] = dist.group.WORLD
            else:
                self._groups[ranks] = self._new_group(ranks)
        return self._groups[ranks]

    def _new_group(self, ranks: tuple[int, ...]) -> Any:
        """Make a group under a name that its members agree on.

        `dist.new_group(…, use_local_synchronization=True)` names it after its ranks and *how many
        groups this process has*. A middle pipeline stage has one fewer than the first, which has an
        embedding group too; their next group in common would get two names, and both would wait.
        """
        if self.backend == "fake":  # its store keeps nothing, and nobody waits
            return dist.new_group(list(ranks))
        c10d = dist.distributed_c10d
        backend, store = c10d._world.pg_map[c10d._get_default_group()]
        name = "shardlab/" + "-".join(map(str, ranks))
        made = store.add(f"{name}/made by {self.rank}", 1)  # another world may have one like it
        group, _ = c10d._new_process_group_helper(
            len(ranks),
            ranks.index(self.rank),
            list(ranks),
            c10d.Backend(backend),
            store,
            c10d.GroupName(f"{name}/{made}"),
            timeout=timedelta(seconds=self._patience),
        )
        c10d._world.pg_group_ranks[group] = {rank: i for i, rank in enumerate(ranks)}
        return group

    def close(self) -> None:
        """Leave: unmap shared memory, destroy the process groups that this world made."""
        self.witness.leave()
        for link in self._shared.values():
            link.close()
        whole = dist.group.WORLD
        for group in self._groups.values():
            if group is not whole:
                dist.destroy_process_group(group)
        if self._owner and dist.is_initialized():
            dist.destroy_process_group()
        self._shared, self._axes, self._groups = {}, {}, {}

    def __enter__(self) -> World:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: Any
    ) -> None:
        if kind is not None:
            text = str(error).splitlines()[0] if str(error) else ""
            self.witness.post(f"raised {kind.__name__}: {text}")
        self.close()


_CPU = torch.device("cpu")
_START = 60.0  # seconds: a process that starts on a busy machine takes its time


def _grace(timeout: float) -> float:
    """Return how long a rank that gives up may wait for the others' words."""
    return min(2.0, timeout / 4)


def _rendezvous() -> tuple[Any, int, int]:
    """Meet the other ranks as torchrun's environment says."""
    missing = [key for key in ("RANK", "WORLD_SIZE", "MASTER_ADDR") if key not in os.environ]
    if missing:
        raise RuntimeError(
            f"{', '.join(missing)} not set: launch with torchrun --nproc-per-node=N SCRIPT, "
            "or pass store, rank and size"
        )
    return next(iter(dist.rendezvous("env://")))  # type: ignore[attr-defined, no-any-return]


def _backend(local_size: int) -> str:
    """NCCL where every rank of this host has a GPU of its own, else gloo."""
    gpu_each = torch.cuda.is_available() and torch.cuda.device_count() >= local_size
    return "nccl" if gpu_each and dist.is_nccl_available() else "gloo"
