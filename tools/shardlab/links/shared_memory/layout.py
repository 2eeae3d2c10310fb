"""The layout of the shared memory: flags, slots for collectives, mailboxes for messages.

    flags      two lines for each rank and two for each ordered pair of ranks; each line has one
               writer only, except for the sleeping flags (waiting.py)
    slots      DEPTH slots for each rank: what it puts into a collective, for all ranks to read
    mailboxes  a ring of cells for each ordered pair: what one rank sends to the other

Dimension key: N ranks, D slots of a rank (DEPTH), C elements of a slot.
"""

from __future__ import annotations

import torch
from torch import Tensor

WORD = 8
LINE = 16  # words: two cache lines, since processors fetch them in pairs
DEPTH = 2  # slots of a rank: one is filled while the peers read from the other
CELLS = 4  # cells a mailbox
HEADER = 3  # words that describe a cell: tag, signature, bytes of the whole message
_PAGE = 4096
_MAILBOXES = 8 << 20  # bytes for all mailboxes together, more or less


class RegionLayout:
    """The offsets in the shared memory, for a number of ranks and a slot size.

    Args:
        ranks: the number of ranks.
        slot: bytes of a slot, a multiple of the page size.

    Attributes:
        cell: bytes of a mailbox's cell.
        size: bytes of the whole region.
    """

    def __init__(self, ranks: int, slot: int) -> None:
        self.ranks = ranks
        self.slot = slot
        cells = ranks * (ranks - 1) * CELLS
        self.cell = max(_PAGE, min(128 << 10, _MAILBOXES // cells // _PAGE * _PAGE))
        flags = 2 * (ranks + ranks * ranks) * LINE * WORD
        self._slots = -(-flags // _PAGE) * _PAGE
        self._mailboxes = self._slots + ranks * DEPTH * slot
        self.size = self._mailboxes + cells * self.cell

    def posted_word(self, rank: int) -> int:
        """Return the index of the word that counts `rank`'s puts; its signatures follow."""
        return 2 * rank * LINE

    def taken_word(self, rank: int) -> int:
        """Return the index of the word that counts `rank`'s takes; its "has left" flag follows."""
        return (2 * rank + 1) * LINE

    def sleeping_word(self, rank: int) -> int:
        """Return the index of the word that is 1 while `rank` sleeps; its peers write it too."""
        return self.taken_word(rank) + 2

    def sent_word(self, source: int, to: int) -> int:
        """Return the index of the word that counts the filled cells; their headers follow."""
        return 2 * (self.ranks + source * self.ranks + to) * LINE

    def received_word(self, source: int, to: int) -> int:
        """Return the index of the word that counts the cells that the receiver has emptied."""
        return self.sent_word(source, to) + LINE

    def slots(self, memory: Tensor, dtype: torch.dtype) -> Tensor:
        """Return all slots as [N, D, C]."""
        slots = memory[self._slots : self._mailboxes]
        return slots.view(dtype).view(self.ranks, DEPTH, -1)

    def mailbox(self, memory: Tensor, source: int, to: int) -> Tensor:
        """Return the cells from `source` to `to`, bytes [CELLS, cell]."""
        place = source * (self.ranks - 1) + (to if to < source else to - 1)
        begin = self._mailboxes + place * CELLS * self.cell
        return memory[begin : begin + CELLS * self.cell].view(CELLS, self.cell)
