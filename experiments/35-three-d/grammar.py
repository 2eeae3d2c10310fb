"""The lab's text: made up, the same on every machine, and worth learning; nothing to download.

A grammar of few rules: of the vocabulary only some words are in use, and each has one successor, by
a secret permutation. A sentence follows it, and now and then says any word instead. What a model
can learn is which words are in use and who follows whom; what it can't is when a word strays, so
the loss has a floor that can be computed.

Dimensions: B sentences, S words of a sentence.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Grammar:
    """A source of sentences.

    Args:
        vocabulary: numbers that a word may have.
        words: how many of them are in use.
        faithful: how often the successor follows; otherwise any word in use does.
        seed: of the permutation and of the sentences.
    """

    vocabulary: int
    words: int = 64
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
    """Return who comes so many steps after each of the words: no loop over a sentence."""
    cycles: list[list[int]] = []
    remaining = set(range(len(successor)))
    while remaining:
        word, cycle = min(remaining), []
        while word in remaining:
            remaining.remove(word)
            cycle.append(word)
            word = int(successor[word])
        cycles.append(cycle)
    laid = [word for cycle in cycles for word in cycle]
    place, begin, size = (torch.empty_like(successor) for _ in range(3))
    for cycle in cycles:
        begin[cycle], size[cycle] = laid.index(cycle[0]), len(cycle)
    place[laid] = torch.arange(len(laid))
    at = (place[words] - begin[words] + steps) % size[words]
    return torch.tensor(laid)[begin[words] + at]
