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
        said = [strays[0]]
        for position in range(1, length + 1):
            said.append(torch.where(follows[position], successor[said[-1]], strays[position]))
        text_BS = in_use[torch.stack(said, dim=1)]
        return text_BS[:, :-1].contiguous(), text_BS[:, 1:].contiguous()
