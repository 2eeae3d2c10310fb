"""The links other than "torch": what carries an axis instead of torch.distributed's collectives.

    fast-gloo       gloo, with a faster all-gather and reduce-scatter
    shared-memory   the memory of one host
    staged          GPU tensors over gloo, copied through the host's memory

A link is a `shardlab.comm.transport.Transport`. The folder is a wing of the house: it imports
`shardlab.comm` only, and only `World.connect` imports it, when an axis asks for a link. Remove a
link here and in `LINKS` when torch's own collectives are as fast.
"""

from __future__ import annotations

from collections.abc import Iterable

from shardlab.comm.transport import AxisWorld, Transport

LINKS = ("fast-gloo", "shared-memory", "staged")


def connect(
    link: str, world: AxisWorld, ranks: tuple[int, ...], existing_links: Iterable[Transport]
) -> Transport:
    """Return a new link over `ranks`; each of these ranks must call this.

    Args:
        link: one of `LINKS`.
        world: the world of the ranks.
        ranks: global ranks, in order.
        existing_links: this process's links of the same name, to which the caller adds this one.

    Raises:
        ValueError: there is no such link, or it can't carry tensors of the world's device.
    """
    if link not in LINKS:
        choose = ", ".join(f'"{name}"' for name in ("torch", *LINKS))
        raise ValueError(f"link {link!r} is not known; choose from {choose}")
    if link != "staged" and world.device.type == "cuda":
        raise ValueError(
            f'the link "{link}" carries CPU tensors, and this world is on {world.device}: choose '
            'link="torch"'
        )
    # Each is imported here, so that an axis loads one link, not all.
    if link == "fast-gloo":
        from shardlab.links.fast_gloo import FastGlooLink

        return FastGlooLink(world, ranks)
    if link == "shared-memory":
        from shardlab.links.shared_memory import SharedMemoryLink

        return SharedMemoryLink(
            world.store_for(link, ranks), ranks, world.rank, timeout=world.collective_timeout,
            links=existing_links,
        )  # fmt: skip
    from shardlab.links.staged import StagedLink

    return StagedLink(world, ranks)
