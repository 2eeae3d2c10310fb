"""What lies where in the shared memory: flags, slots for collectives, mailboxes for messages.

    flags      two lines a rank and two an ordered pair of ranks; each line has one writer only,
               but for the bells (`patience`)
    slots      DEPTH slots a rank: what it puts into a collective, for all to read
    mailboxes  a ring of cells an ordered pair: what one rank sends to one other

Dimension key: N ranks, D slots of a rank (DEPTH), C elements of a slot.
"""

from __future__ import annotations

import torch
from torch import Tensor

WORD = 8
LINE = 16  # words: two cache lines, since processors fetch them in pairs
DEPTH = 2  # slots a rank: one is filled while the peers read the other
CELLS = 4  # cells a mailbox
HEADER = 3  # words that describe a cell: tag, signature, bytes of the whole message
_PAGE = 4096
_MAILBOXES = 8 << 20  # bytes for all mailboxes together, more or less


class RegionLayout:
    """Offsets, for a number of ranks and a slot size.

    Args:
        ranks: how many.
        slot: bytes a slot, a multiple of the page.

    Attributes:
        cell: bytes a cell of a mailbox.
        size: bytes in all.
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

    def posted(self, rank: int) -> int:
        """Index of the word that counts what `rank` has put; its signatures follow."""
        return 2 * rank * LINE

    def taken(self, rank: int) -> int:
        """Index of the word that counts what `rank` has taken; whether it has left follows."""
        return (2 * rank + 1) * LINE

    def bell(self, rank: int) -> int:
        """Index of the word that says whether `rank` sleeps; the one that others write, too."""
        return self.taken(rank) + 2

    def sent(self, source: int, to: int) -> int:
        """Index of the word that counts the cells filled for a peer; their headers follow."""
        return 2 * (self.ranks + source * self.ranks + to) * LINE

    def received(self, source: int, to: int) -> int:
        """Index of the word that counts the cells emptied by the receiver."""
        return self.sent(source, to) + LINE

    def slots(self, memory: Tensor, dtype: torch.dtype) -> Tensor:
        """Return all slots as [N, D, C]."""
        slots = memory[self._slots : self._mailboxes]
        return slots.view(dtype).view(self.ranks, DEPTH, -1)

    def mailbox(self, memory: Tensor, source: int, to: int) -> Tensor:
        """Return the cells from `source` to `to`, bytes [CELLS, cell]."""
        place = source * (self.ranks - 1) + (to if to < source else to - 1)
        begin = self._mailboxes + place * CELLS * self.cell
        return memory[begin : begin + CELLS * self.cell].view(CELLS, self.cell)
