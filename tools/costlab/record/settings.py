"""What a run is asked to measure."""

import msgspec


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """One run's settings, as the command line gives them; sent to every rank.

    Args:
        profile: "quick" (the whole lab within five minutes on two cores) or "full".
        ranks: how many ranks measure what any number of ranks can.
        sizes: bytes of a collective's payload, ascending.
        hidden: hidden sizes of the tensor-parallel step, ascending.
        device: "cpu" or "cuda" ("auto" is settled before).
        seed: of every random order and input.
        launch: which of a section's launches this is, from 0; a run's own is 0.
        sections: those that were asked for, in order.
    """

    profile: str = "quick"
    ranks: int = 2
    sizes: tuple[int, ...] = ()
    hidden: tuple[int, ...] = ()
    device: str = "cpu"
    seed: int = 35
    launch: int = 0
    sections: tuple[str, ...] = ()
