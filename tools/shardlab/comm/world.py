"""This process among all ranks: joining, leaving, and the process groups in between."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from shardlab.comm.axis import Axis
from shardlab.comm.faults import Witness
from shardlab.comm.groups import Groups, backend_for, rendezvous
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
        agreement: compares tensors between ranks before they meet the backend; None: nobody does.
    """

    def __init__(
        self,
        *,
        device: torch.device | None = None,
        timeout: float = 60.0,
        check: bool = False,
        wide_sums: bool = False,
        link: str = "torch",
    ) -> None:
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
        grace = min(2.0, timeout / 4)  # seconds that who gives up waits for the others' words
        self.patience = timeout - grace
        self._groups = Groups(self.rank, self.size, self.backend, self.patience)
        self.witness = Witness(self._store, self.rank, self.size, grace=grace)
        self.agreement: Any = None
        if check and not fake:  # there the others never say a word
            proof = import_module("shardlab.proofs.agreement")
            self.agreement = proof.Agreement(self._store, self.patience)

    @classmethod
    def join(
        cls,
        *,
        backend: str | None = None,
        device: torch.device | None = None,
        timeout: float = 60.0,
        store: Any = None,
        rank: int | None = None,
        size: int | None = None,
        **settings: Any,
    ) -> World:
        """Join the ranks that torchrun launched (or those that share `store`).

        Args:
            backend: "nccl" where every local rank has a GPU of its own, else "gloo", unless given.
            device, timeout: as for a world.
            store: a torch.distributed store; with `rank` and `size`.
            settings: further arguments of a world.

        Raises:
            RuntimeError: not launched by torchrun and no store given.
        """
        if store is None:
            store, rank, size = rendezvous()
        assert rank is not None and size is not None
        if backend is None:
            backend = backend_for(int(os.environ.get("LOCAL_WORLD_SIZE", size)))
        if device is None and backend == "nccl":
            device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", rank)))
        if device is not None and device.type == "cuda":
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
        world = cls(device=device, timeout=timeout, **settings)
        world._owner = True
        dist.group.WORLD.set_timeout(timedelta(seconds=world.patience))  # type: ignore[union-attr]
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
        made = self._links.setdefault(link, {})
        if ranks not in made:
            if link == "torch":
                group = self.group(ranks)
                made[ranks] = TorchLink(group, self.backend, self.device, self.patience)
            else:
                made[ranks] = _connector(link)(self, ranks, made.values())
        return made[ranks]

    def store_for(self, name: str, ranks: tuple[int, ...]) -> Any:
        """Return a store in which only these ranks, for this end, write."""
        prefix = f"{name}/" + "-".join(map(str, ranks))
        return dist.PrefixStore(prefix, self._store)  # type: ignore[attr-defined]

    def group(self, ranks: tuple[int, ...]) -> Any:
        """Return torch's process group over `ranks`; made once, by its members alone."""
        return self._groups.over(ranks)

    def close(self) -> None:
        """Leave: unmap shared memory, destroy the process groups that this world made."""
        for links in self._links.values():
            for link in links.values():
                link.close()
        self._groups.destroy()
        if self._owner and dist.is_initialized():
            dist.destroy_process_group()
        self._links, self._axes = {}, {}

    def __enter__(self) -> World:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: Any
    ) -> None:
        if kind is not None:
            text = str(error).splitlines()[0] if str(error) else ""
            self.witness.post(f"raised {kind.__name__}: {text}")
        self.close()


def _connector(link: str) -> Any:
    """Return the `connect` of a folder of shardlab/links; the core knows them by name alone."""
    folder = Path(__file__).parents[1] / "links"
    known = {p.parent.name.replace("_", "-"): p.parent.name for p in folder.glob("*/__init__.py")}
    if link not in known:
        choose = ", ".join(f'"{name}"' for name in ("torch", *sorted(known)))
        raise ValueError(f"link {link!r} is not known; choose from {choose}")
    return import_module(f"shardlab.links.{known[link]}").connect


_START = 60.0  # seconds: a process that starts on a busy machine takes its time
