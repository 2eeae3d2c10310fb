"""The largest model that a card holds, by arithmetic: replicated, and sharded over n of them.

The models are a family: blocks of 12·H² parameters, one for each 128 of the hidden size H, as in
GPT-3's larger ones, and a vocabulary of 51,200. Their state in fp32 under AdamW, and what is whole
at the moment, have to fit; activations come on top, and depend on the batch.
"""

from collections.abc import Callable, Iterator

from costlab.record.names import Name
from costlab.record.result import Metric
from costlab.sections.fully_sharded.footprint import Model, sharded, sharded_peak
from costlab.sections.metrics import derived

CARDS = {"24GiB": 24 << 30, "80GiB": 80 << 30}
RANKS = 8
VOCAB = 51_200
STEP = 128


def family(hidden: int) -> Model:
    """The model of one hidden size."""
    layers, block, root = hidden // STEP, 12 * hidden * hidden, VOCAB * hidden
    return Model(layers * block + root, root, block)


def largest(fits: Callable[[Model], bool]) -> Model:
    """The largest of the family that fits; no parameters at all if none does."""
    best, hidden = Model(0, 0, 0), STEP
    while fits(model := family(hidden)):
        best, hidden = model, hidden + STEP
    return best


def metrics() -> Iterator[Metric]:
    """`fsdp.largest.replicated.80GiB`, `fsdp.largest.sharded-8.80GiB` …: parameters."""
    for card, size in CARDS.items():
        ways: dict[str, Callable[[Model], int]] = {
            "replicated": lambda model: sharded(model, 1),
            f"sharded-{RANKS}": lambda model: sharded_peak(model, RANKS, 0),
        }
        for name, bytes_of in ways.items():
            model = largest(lambda model, measure=bytes_of, size=size: measure(model) <= size)  # type: ignore[misc]
            yield derived(
                Name("fsdp", "largest", of=name, card=card), model.parameters, "parameters",
                "modelled", bytes=bytes_of(model), without="activations",
            )  # fmt: skip
