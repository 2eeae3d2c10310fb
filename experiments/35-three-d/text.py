"""Where lab 01's text comes from: the grammar, or with `--data` a corpus on disk as Megatron's.

Dimensions: B sequences of a data rank's share, S words of a sequence.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fit import Refused
from grammar import Grammar
from settings import Settings
from torch import Tensor

from shardlab.comm import World
from shardlab.grid.grid import Grid

if TYPE_CHECKING:
    from shardlab.data.loader import Loader

Share = tuple[Tensor | None, Tensor | None]

EVALUATED = 4  # batches of an evaluation, always the same
HELD_OUT = 0.05  # of a corpus's documents, the last: only for evaluations, where there are any


class Drawn:
    """The grammar's text: every rank draws the whole batch and keeps its own share."""

    def __init__(self, settings: Settings, grid: Grid) -> None:
        self._grammar = Grammar(settings.vocabulary, seed=settings.seed)
        self._shape = settings.batch, settings.sequence
        self._data = grid.data
        self._name = f"the grammar of seed {settings.seed}"
        self.said = f"no model can get the loss below {self._grammar.floor:.3f}"

    def share(self, step: int) -> Share:
        """Return (words, next words), [B, S] each; nobody has to send data."""
        words, following = self._grammar.batch(step, *self._shape)
        place, ranks = self._data.rank, self._data.size
        return words.chunk(ranks)[place], following.chunk(ranks)[place]

    def held_out(self, number: int) -> Share:
        """Return a batch that comes before the first step's."""
        return self.share(-1 - number)

    def demand(self, end: int) -> None:
        """Refuse nothing: the grammar never ends."""

    def state(self, step: int) -> dict[str, Any]:
        """Return what a checkpoint keeps of the text after `step` steps."""
        return {"name": self._name}

    def resume(self, state: Mapping[str, Any], step: int) -> None:
        """Go on after `step` steps of the run that left this state.

        Raises:
            Refused: that run read another text.
        """
        _demand_text(state["name"] == self._name, state, self._name)


class Read:
    """A corpus: each data rank reads its share of an epoch, each stage what it looks at.

    An epoch's order doesn't depend on how long a run is, so a run that goes on from a checkpoint
    reads what the whole one would have read.
    """

    def __init__(self, loader: Loader, held_out: Loader | None, prefix: str) -> None:
        self._loader = loader
        self._held_out = held_out
        self._begin = 0, 0  # steps of the runs before this one, and samples that they consumed
        self._name = f"the corpus {prefix}"
        self.said = f"{len(loader.samples):,} sequences of {prefix}"

    def share(self, step: int) -> Share:
        """Return (words, next words), [B, S] each; None for what this stage doesn't look at."""
        return self._loader.read(self._consumed(step))

    def held_out(self, number: int) -> Share:
        """Return a batch of the documents that no step reads."""
        assert self._held_out is not None, "the run has no --evaluate"
        return self._held_out.read(number * self._loader.batch)

    def demand(self, end: int) -> None:
        """Refuse a run that is longer than the epoch, before its first step."""
        steps, consumed = self._begin
        steps += (len(self._loader.samples) - consumed) // self._loader.batch
        if end > steps:
            raise Refused(
                f"{end} steps, and one epoch of the corpus is enough for {steps}: choose fewer, a "
                "shorter --sequence, or more text"
            )

    def state(self, step: int) -> dict[str, Any]:
        """Return what a checkpoint keeps of the text after `step` steps."""
        return {"name": self._name, "samples": self._loader.state(self._consumed(step))}

    def resume(self, state: Mapping[str, Any], step: int) -> None:
        """Go on after `step` steps of the run that left this state; its batch size may differ.

        Raises:
            Refused: that run read other samples, or the same in another order.
        """
        _demand_text("samples" in state, state, self._name)
        try:
            self._begin = step, self._loader.resume(state["samples"])
        except ValueError as error:
            raise Refused(str(error)) from error

    def _consumed(self, step: int) -> int:
        """Return how many samples `step` steps have consumed."""
        first_step, consumed = self._begin
        return consumed + (step - first_step) * self._loader.batch


def _demand_text(same: bool, state: Mapping[str, Any], name: str) -> None:
    if not same:
        raise Refused(
            f"the run that left the checkpoint read {state['name']}, and this run would read "
            f"{name}: choose the former again"
        )


def source(settings: Settings, world: World, grid: Grid) -> Drawn | Read:
    """Return the text of a run; every rank calls this.

    Raises:
        Refused: the corpus is missing, damaged, too short, or of another vocabulary.
    """
    if settings.data is None:
        return Drawn(settings, grid)
    from shardlab.data.build import Builder
    from shardlab.data.corpus import Corpus
    from shardlab.data.loader import Loader
    from shardlab.data.samples import Recipe

    try:
        corpus = Corpus(settings.data)
        builder = Builder(world=world)

        def loader(samples: int | None, begin: float, stop: float) -> Loader:
            recipe = Recipe(sequence=settings.sequence, samples=samples, seed=settings.seed)
            chosen_samples = builder.samples(corpus, recipe, (begin, stop))
            return Loader(chosen_samples, settings.batch, data=grid.data, pipeline=grid.pipeline)

        train_share = 1 - HELD_OUT if settings.evaluate else 1.0
        trained = loader(None, 0.0, train_share)
        held_out = (
            loader(EVALUATED * settings.batch, train_share, 1.0) if settings.evaluate else None
        )
    except ValueError as error:
        raise Refused(str(error)) from error
    if (largest := int(corpus.tokens.max())) >= settings.vocabulary:
        raise Refused(
            f"{settings.data} holds token {largest}, and --vocabulary is {settings.vocabulary}: "
            f"choose {largest + 1} or more"
        )
    return Read(trained, held_out, settings.data)
