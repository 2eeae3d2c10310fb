"""The text of lab 01: a grammar that is drawn, or with `--data` a corpus on disk as Megatron's.

Dimensions: B sequences of a batch or of a data rank's share of it, S words of a sequence.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from settings import GRAMMAR_WORDS, Refused, Settings
from torch import Tensor

from shardlab.comm import World
from shardlab.grid.grid import Grid

if TYPE_CHECKING:
    from shardlab.data.loader import Loader

Share = tuple[Tensor | None, Tensor | None]

EVALUATED = 4  # batches of an evaluation, always the same
HELD_OUT = 0.05  # of a corpus's documents, the last: only for evaluations, where there are any


@dataclass(frozen=True)
class Grammar:
    """A source of sentences: made up, the same on every machine, and worth learning.

    Of the vocabulary only some words are in use, and each has one successor, by a secret
    permutation. A sentence follows it, and now and then has any word instead. A model can learn
    which words are in use and which follows which. It can't learn when a word strays, so the loss
    has a floor that can be computed.

    Args:
        vocabulary: numbers that a word may have.
        words: how many of them are in use.
        faithful: how often the successor follows; otherwise any word in use does.
        seed: of the permutation and of the sentences.
    """

    vocabulary: int
    words: int = GRAMMAR_WORDS
    faithful: float = 0.9
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse more words than there are numbers."""
        if not 2 <= self.words <= self.vocabulary:
            raise ValueError(f"{self.words} words in use of {self.vocabulary}; choose 2 or more")

    @property
    def floor(self) -> float:
        """The cross-entropy, in nats, of a model that knows the grammar: no loss gets below it."""
        stray = (1 - self.faithful) / self.words
        successor = self.faithful + stray
        rest = (self.words - 1) * stray * math.log(stray) if stray else 0.0
        return -successor * math.log(successor) - rest

    def batch(self, step: int, sentences: int, length: int) -> tuple[Tensor, Tensor]:
        """Return step's words and, for each, the word that comes next: two of [B, S], on the CPU.

        Every rank can draw the whole batch, so a grid of any shape sees the same one.
        """
        secret = torch.Generator().manual_seed(self.seed)
        in_use = torch.randperm(self.vocabulary, generator=secret)[: self.words]
        successor = torch.randperm(self.words, generator=secret)
        drawn = torch.Generator().manual_seed((self.seed + 1) * 1_000_003 + step)
        strays = torch.randint(self.words, (length + 1, sentences), generator=drawn)
        follows = torch.rand(length + 1, sentences, generator=drawn) < self.faithful
        follows[0] = False
        places = torch.arange(length + 1)[:, None]
        begins = places.where(~follows, 0).cummax(0).values  # of what each word is faithful to
        continuation = _after(successor, strays.gather(0, begins), places - begins)
        text_BS = in_use[continuation.t()]
        return text_BS[:, :-1].contiguous(), text_BS[:, 1:].contiguous()


def _after(successor: Tensor, words: Tensor, steps: Tensor) -> Tensor:
    """Return who comes so many steps after each of the words."""
    after = [torch.arange(len(successor))]  # each word after 0, 1, 2 … steps
    for _ in range(int(steps.max())):
        after.append(successor[after[-1]])
    return torch.stack(after)[steps, words]


class Drawn:
    """The grammar's text: every rank draws the whole batch and keeps its own share."""

    def __init__(self, settings: Settings, grid: Grid) -> None:
        self._grammar = Grammar(settings.vocabulary, seed=settings.seed)
        self._shape = settings.batch, settings.sequence
        self._data = grid.data
        self._name = f"the grammar of seed {settings.seed}"
        self.description = f"no model can get the loss below {self._grammar.floor:.3f}"

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
        self.description = f"{len(loader.samples):,} sequences of {prefix}"

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


def open_text(settings: Settings, world: World, grid: Grid) -> Drawn | Read:
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
