"""This process among all ranks: joining, leaving, and the process groups in between."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from datetime import timedelta
from importlib import import_module
from typing import Any

import torch
import torch.distributed as dist

from shardlab.comm import groups, observed
from shardlab.comm.axis import Axis
from shardlab.comm.faults import Witness
from shardlab.comm.torch_link import TorchLink


class World:
    """This process's place among all ranks; hands out axes and owns their process groups.

    `World.join()` joins the ranks that torchrun launched; `World()` is for where somebody else has
    called `init_process_group`, and will destroy the group. As a context manager a world leaves at
    the end, and tells the other ranks why if an exception ends it.

    Args:
        device: where this rank's tensors live; by default its own GPU under nccl, else the CPU.
        timeout: seconds until a rank that waits in a collective has given up and said why.
        check: refuse tensors whose shape or dtype differs between ranks before they meet the
            backend, at the price of one small exchange a collective.
        wide_sums: add bf16 and fp16 in fp32 and round once, at the price of twice the bytes. A
            backend adds rank by rank and rounds each time; 256 + 1 is 256 in bf16.
        link: what carries an axis that doesn't say: "torch", or a folder of shardlab/links.

    Attributes:
        rank: this rank, of `size`.
        backend: "gloo", "nccl" or "fake".
        patience: seconds that a collective may take, so that it can be explained within `timeout`.
        late: names the ranks that a collective on GPUs waits for in vain; None on the CPU.
        agreement: compares tensors between ranks before they meet the backend; None: nobody does.
    """

    def __init__(
        self, *, device: torch.device | None = None, timeout: float = 60.0, check: bool = False,
        wide_sums: bool = False, link: str = "torch",
    ) -> None:  # fmt: skip
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self.backend = str(dist.get_backend())
        own = "cuda" if self.backend == "nccl" else "cpu"
        self.device = device or torch.empty(0, device=own).device
        self.wide_sums = wide_sums
        self.link = link
        # The fake backend's store keeps nothing.
        fake = self.backend == "fake"
        store = dist.HashStore() if fake else dist.distributed_c10d._get_default_store()  # type: ignore[attr-defined]
        # Each rank's nth world on a store meets the other ranks' nth, and no keys of earlier ones.
        number = store.add(f"shardlab/worlds/{self.rank}", 1)
        self._store = dist.PrefixStore(f"shardlab/{number}", store)  # type: ignore[attr-defined]
        self._owner = False
        self._links: dict[str, dict[tuple[int, ...], Any]] = {}
        self._axes: dict[tuple[str, tuple[int, ...], str], Axis] = {}
        self._groups: dict[tuple[int, ...], Any] = {}
        self.patience = timeout - groups.grace(timeout)
        self._limit = groups.limit(self.backend, timeout)
        self.witness = Witness(self._store, self.rank, self.size, grace=groups.grace(timeout))
        self.late: Any = None
        if self.backend == "nccl":
            self.late = import_module("shardlab.comm.late").Late(self.witness, self.patience)
        self.agreement: Any = None
        if check and not fake:  # there the others never say a word
            proof = import_module("shardlab.proofs.agreement")
            self.agreement = proof.Agreement(self._store, self.patience)

    @classmethod
    def join(
        cls, *, backend: str | None = None, device: torch.device | None = None,
        timeout: float = 60.0, store: Any = None, rank: int | None = None, size: int | None = None,
        share_gpus: bool = False, **settings: Any,
    ) -> World:  # fmt: skip
        """Join the ranks that torchrun launched (or those that share `store`).

        Args:
            backend: "nccl" where every rank has a GPU of its own, else "gloo" (said in a warning
                where there are GPUs), unless given.
            device, timeout: as for a world.
            store: a torch.distributed store; with `rank` and `size`.
            share_gpus: let ranks that have too few GPUs share them, over gloo, by way of the host.
            settings: further arguments of a world.

        Raises:
            RuntimeError: not launched by torchrun and no store given.
        """
        if store is None:
            store, rank, size = groups.rendezvous()
        assert rank is not None and size is not None
        if backend is None:
            backend, agreed, remark = groups.agree_on_device(store, rank, size, share=share_gpus)
            device = device or agreed
            if remark and rank == 0:
                warnings.warn(remark, stacklevel=2)
        if device is None and backend == "nccl":
            device = torch.device("cuda", groups.own_gpu(rank)[0])
        if device is not None and device.type == "cuda":
            torch.cuda.set_device(device)
        dist.init_process_group(
            backend,
            store=dist.PrefixStore("torch", store),  # type: ignore[attr-defined]
            rank=rank,
            world_size=size,
            timeout=timedelta(seconds=max(groups.limit(backend, timeout), groups.START)),
            # No device_id: a bound device makes NCCL split subgroups off the whole world, which
            # every rank must join, and ours are made by their members alone.
        )
        world = cls(device=device, timeout=timeout, **settings)
        world._owner = True
        dist.group.WORLD.set_timeout(timedelta(seconds=world._limit))  # type: ignore[union-attr]
        return world

    @property
    def whole(self) -> Axis:
        """All ranks as one axis."""
        return self.axis("world", range(self.size))

    def axis(self, name: str, ranks: Sequence[int], *, link: str | None = None) -> Axis:
        """Return the axis over `ranks` (global, in order); every member calls this, others needn't.

        Args:
            name: what errors and the ledger call it.
            ranks: global ranks; this one must be among them.
            link: "torch" for the world's backend, or a folder of shardlab/links ("shared-memory"
                for ranks of one host, say); the world's own unless given.

        Raises:
            ValueError: this rank is not among `ranks`, or no such link is known.
        """
        members = tuple(ranks)
        if self.rank not in members:
            raise ValueError(f"rank {self.rank} is not on the {name} axis {list(members)}")
        link = link or self.link
        key = (name, members, link)
        if key not in self._axes:
            self._axes[key] = Axis(self, name, members, link)
        return self._axes[key]

    def connect(self, ranks: tuple[int, ...], link: str) -> Any:
        """Return what carries an axis over `ranks`; made once, by its members alone."""
        if link == "torch" and self.backend == "gloo" and self.device.type == "cuda":
            link = "staged"  # gloo would take a GPU's address for one of the host
        made = self._links.setdefault(link, {})
        if ranks not in made:
            if link == "torch":
                group = self.group(ranks)
                made[ranks] = TorchLink(group, self.backend, self.device, self.patience)
                if self.backend == "nccl":
                    # Every member is here. Made by the first message, the communicator would wait
                    # for stages that have nothing to say yet.
                    with observed.muted():
                        dist.all_reduce(torch.zeros(1, device=self.device), group=group)
            else:
                made[ranks] = groups.connector(link)(self, ranks, made.values())
        return made[ranks]

    def store_for(self, name: str, ranks: tuple[int, ...]) -> Any:
        """Return a store in which only these ranks, for this end, write."""
        prefix = f"{name}/" + "-".join(map(str, ranks))
        return dist.PrefixStore(prefix, self._store)  # type: ignore[attr-defined]

    def group(self, ranks: tuple[int, ...]) -> Any:
        """Return torch's process group over `ranks`; made once, by its members alone."""
        if ranks == tuple(range(self.size)):
            return dist.group.WORLD
        if ranks not in self._groups:
            self._groups[ranks] = groups.new_group(ranks, self.rank, self._limit)
        return self._groups[ranks]

    def close(self) -> None:
        """Leave: unmap shared memory, destroy the process groups that this world made."""
        if self.late:
            self.late.close()
        for links in self._links.values():
            for link in links.values():
                link.close()
        for group in self._groups.values():
            dist.destroy_process_group(group)
        if self._owner and dist.is_initialized():
            dist.destroy_process_group()
        self._links, self._axes, self._groups = {}, {}, {}

    def __enter__(self) -> World:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: Any
    ) -> None:
        if kind is not None:
            text = str(error).splitlines()[0] if str(error) else ""
            self.witness.post(f"raised {kind.__name__}: {text}")
        self.close()
