"""The world: joining and leaving a job, and the axes and process groups of this rank."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from shardlab.comm import groups, tracing
from shardlab.comm.axis import Axis
from shardlab.comm.faults import FailureReporter
from shardlab.comm.torch_link import TorchLink

if TYPE_CHECKING:
    from shardlab.comm.consistency_check import ConsistencyCheck
    from shardlab.comm.transport import Transport


class World:
    """This process as one rank of a job; makes axes and owns their process groups.

    `World.join()` joins the ranks that torchrun launched. `World()` is for a program that has
    called `init_process_group` itself and destroys the group itself. Used as a context manager, a
    world leaves at the end of the block. If an exception ends the block, the world tells the other
    ranks why.

    Args:
        device: where this rank's tensors live; by default its GPU under nccl, the CPU otherwise.
        timeout: seconds after which a rank that waits in a collective raises an error.
        check: compare shape and dtype between the ranks before each collective, at the price of
            one small all-gather, and refuse tensors that differ.
        wide_sums: add bf16 and fp16 in fp32 and round once, at the price of twice the bytes. A
            backend adds rank by rank and rounds each time; 256 + 1 is 256 in bf16.
        link: the link of an axis for which none is given: "torch", or a name of
            `shardlab.links.LINKS`.

    Attributes:
        rank: this rank's number.
        size: the number of ranks.
        backend: "gloo", "nccl" or "fake".
        collective_timeout: seconds that a collective may take, shorter than `timeout` by the time
            that is needed to find out which rank is missing.
        failure_reporter: writes and reads the ranks' reports of failures.
        watchdog: names the missing ranks of a collective on GPUs; None on the CPU.
        consistency_check: compares the ranks' collectives before they run; None without `check`.
    """

    def __init__(
        self, *, device: torch.device | None = None, timeout: float = 60.0, check: bool = False,
        wide_sums: bool = False, link: str = "torch",
    ) -> None:  # fmt: skip
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self.backend = str(dist.get_backend())
        device_type = "cuda" if self.backend == "nccl" else "cpu"
        self.device = device or torch.empty(0, device=device_type).device
        self.wide_sums = wide_sums
        self.link = link
        # The fake backend's store keeps nothing.
        fake = self.backend == "fake"
        store = dist.HashStore() if fake else dist.distributed_c10d._get_default_store()  # type: ignore[attr-defined]
        # A rank's nth world on a store shares keys with the other ranks' nth world only.
        number = store.add(f"shardlab/worlds/{self.rank}", 1)
        self._store = dist.PrefixStore(f"shardlab/{number}", store)  # type: ignore[attr-defined]
        self._owner = False
        self._links: dict[str, dict[tuple[int, ...], Transport]] = {}
        self._axes: dict[tuple[str, tuple[int, ...], str], Axis] = {}
        self._groups: dict[tuple[int, ...], Any] = {}
        self.collective_timeout = timeout - groups.grace_period(timeout)
        self._limit = groups.backend_timeout(self.backend, timeout)
        self.failure_reporter = FailureReporter(
            self._store, self.rank, self.size, grace=groups.grace_period(timeout)
        )
        self.watchdog: Any = None
        if self.backend == "nccl":
            from shardlab.comm.nccl_watchdog import Watchdog

            self.watchdog = Watchdog(self.failure_reporter, self.collective_timeout)
        self.consistency_check: ConsistencyCheck | None = None
        if check and not fake:  # the fake backend has no peers
            from shardlab.comm.consistency_check import ConsistencyCheck

            self.consistency_check = ConsistencyCheck(self._store, self.collective_timeout)

    @classmethod
    def join(
        cls, *, backend: str | None = None, device: torch.device | None = None,
        timeout: float = 60.0, store: Any = None, rank: int | None = None, size: int | None = None,
        share_gpus: bool = False, **settings: Any,
    ) -> World:  # fmt: skip
        """Join the ranks that torchrun launched (or those that share `store`).

        Args:
            backend: by default "nccl" if every rank has a GPU of its own, else "gloo" (with a
                warning if there are GPUs).
            device: where this rank's tensors live.
            timeout: seconds after which a rank that waits in a collective raises an error.
            store: a torch.distributed store; give `rank` and `size` too.
            rank: this rank's number.
            size: the number of ranks.
            share_gpus: let several ranks share a GPU, over gloo, through the host's memory.
            settings: further arguments of `World`.

        Raises:
            RuntimeError: not launched by torchrun and no store given.
        """
        if store is None:
            store, rank, size = groups.rendezvous()
        assert rank is not None and size is not None
        if backend is None:
            backend, agreed, remark = groups.agree_on_device(
                store, rank, size, share_gpus=share_gpus
            )
            device = device or agreed
            if remark and rank == 0:
                warnings.warn(remark, stacklevel=2)
        if device is None and backend == "nccl":
            device = torch.device("cuda", groups.select_gpu(rank)[0])
        if device is not None and device.type == "cuda":
            torch.cuda.set_device(device)
        dist.init_process_group(
            backend,
            store=dist.PrefixStore("torch", store),  # type: ignore[attr-defined]
            rank=rank,
            world_size=size,
            timeout=timedelta(
                seconds=max(groups.backend_timeout(backend, timeout), groups.STARTUP_SECONDS)
            ),
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
        """Return the axis over `ranks`; each of these ranks must call this, the others need not.

        Args:
            name: the axis's name in errors and in the ledger.
            ranks: global ranks, in order; this rank must be among them.
            link: "torch" for the world's backend, or a name of `shardlab.links.LINKS`, such as
                "shared-memory" for ranks of one host; by default the world's link.

        Raises:
            ValueError: this rank is not among `ranks`, the world has no such rank, one comes twice,
                there is no such link, or the link can't carry tensors of the world's device.
        """
        members = tuple(ranks)
        if len({*members} & {*range(self.size)}) < len(members):
            raise ValueError(
                f"the {name} axis {list(members)} of a world of {self.size} ranks: name each rank "
                f"once, from 0 to {self.size - 1}"
            )
        if self.rank not in members:
            raise ValueError(f"rank {self.rank} is not on the {name} axis {list(members)}")
        link = link or self.link
        key = (name, members, link)
        if key not in self._axes:
            self._axes[key] = Axis(self, name, members, link)
        return self._axes[key]

    def connect(self, ranks: tuple[int, ...], link: str) -> Transport:
        """Return the link of an axis over `ranks`; its members make it once."""
        if link == "torch" and self.backend == "gloo" and self.device.type == "cuda":
            link = "staged"  # gloo would take a GPU's address for one of the host
        links = self._links.setdefault(link, {})
        if ranks not in links:
            if link == "torch":
                group = self.group(ranks)
                links[ranks] = TorchLink(group, self.backend, self.device, self.collective_timeout)
                if self.backend == "nccl":
                    # NCCL makes a communicator at its first use, and waits there for every member.
                    # All members are here now. The first message of a pipeline would instead wait
                    # for stages that have nothing to send yet.
                    with tracing.paused():
                        dist.all_reduce(torch.zeros(1, device=self.device), group=group)
            else:
                # Imported here, because training over torch's collectives needs no link.
                from shardlab.links import connect

                links[ranks] = connect(link, self, ranks, links.values())
        return links[ranks]

    def store_for(self, name: str, ranks: tuple[int, ...]) -> Any:
        """Return a store whose keys only these ranks use, for the purpose `name`."""
        prefix = f"{name}/" + "-".join(map(str, ranks))
        return dist.PrefixStore(prefix, self._store)  # type: ignore[attr-defined]

    def group(self, ranks: tuple[int, ...]) -> Any:
        """Return torch's process group over `ranks`; its members make it once."""
        if ranks == tuple(range(self.size)):
            return dist.group.WORLD
        if ranks not in self._groups:
            self._groups[ranks] = groups.new_group(ranks, self.rank, self._limit)
        return self._groups[ranks]

    def close(self) -> None:
        """Leave the world: unmap shared memory, destroy the process groups that it made."""
        if self.watchdog:
            self.watchdog.close()
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
            self.failure_reporter.report(f"raised {kind.__name__}: {text}")
        self.close()
