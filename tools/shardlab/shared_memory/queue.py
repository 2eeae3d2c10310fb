"""The collectives of a link, in the order of their start: what moves them on, and when.

Nothing runs in the background. A start puts as much as there are free slots; a wait takes, and
puts the rest, of its own collective and of all started before it. So a rank that comes early does
not block at the start, and starting two collectives on two links in another order than the peers
do is safe as long as they fit into their slots.

The protocol. Rank r counts the steps that it has put, `posted[r]`, and those that it has taken,
`taken[r]`; nobody else writes either. Step s lies in slot s mod DEPTH. It may be taken once every
needed rank has posted > s, and put once every rank has taken > s - DEPTH. With two slots the second
is nearly always true already (a peer that posted step s - 1 has taken step s - 2 before), so one
barrier a step is all that a collective costs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from shardlab.faults import CollectiveError
from shardlab.shared_memory.collectives import Collective
from shardlab.shared_memory.layout import DEPTH, Layout
from shardlab.shared_memory.patience import Fence
from shardlab.shared_memory.signature import describe
from shardlab.shared_memory.slots import Slots

Await = Callable[[int, int, int, str], None]
"""Return once a word has reached a value: (word, value, the peer that writes it, what waits)."""


class Queue:
    """The collectives that were started and not taken yet.

    Args:
        words: the region's flags.
        layout: where they lie.
        slots: where the values lie.
        ranks: the ranks' numbers, for errors.
        wait: waits for a peer's flag.
        fence: orders values and flags, where the machine doesn't.
    """

    def __init__(
        self, words: memoryview, layout: Layout, slots: Slots, ranks: Sequence[int], wait: Await,
        fence: Fence | None,
    ) -> None:  # fmt: skip
        me = slots.me
        self.slots = slots
        self._ranks = ranks
        self.peers = [rank for rank in range(layout.ranks) if rank != me]
        self._words = words
        self._wait = wait
        self._fence = fence
        self._posted_words = [layout.posted(rank) for rank in range(layout.ranks)]
        self._taken_words = [layout.taken(rank) for rank in range(layout.ranks)]
        self._my_posted = layout.posted(me)
        self._my_taken = layout.taken(me)
        self._posted = self._taken = 0  # the same numbers as in this rank's words
        self._free = DEPTH  # steps up to this number may be put: what was last known
        self._to_put: deque[Collective] = deque()
        self._to_take: deque[Collective] = deque()

    def start(self, collective: Collective) -> Collective:
        """Put what there is room for, and return."""
        self._to_put.append(collective)
        self._to_take.append(collective)
        self._put()
        return collective

    def finish(self, collective: Collective) -> None:
        """Take, and put, until `collective` is done; those before it get done on the way."""
        while collective.takes < collective.steps:
            first = self._to_take[0]
            if first.puts == first.takes:  # no room for its next step yet
                self._await_room()
                self._put()
            self._take(first)
            if self._to_put:
                self._put()

    def _put(self) -> None:
        while self._to_put:
            collective = self._to_put[0]
            before = collective.after
            if before is not None and before.takes < before.steps:
                return
            while collective.puts < collective.steps:
                if self._posted >= self._free and not self._room():
                    return
                self._put_step(collective)
            self._to_put.popleft()

    def _put_step(self, collective: Collective) -> None:
        depth = self._posted % DEPTH
        collective.put(collective.puts, depth)
        self._words[self._my_posted + 1 + depth] = collective.signature
        if self._fence is not None:
            self._fence()
        collective.puts += 1
        self._posted += 1
        self._words[self._my_posted] = self._posted

    def _room(self) -> bool:
        words = self._words
        self._free = min([words[index] for index in self._taken_words]) + DEPTH
        return self._posted < self._free

    def _await_room(self) -> None:
        for peer in self.peers:
            word, value = self._taken_words[peer], self._posted - DEPTH + 1
            if self._words[word] < value:
                self._wait(word, value, peer, self._to_put[0].name)
        self._room()

    def _take(self, collective: Collective) -> None:
        words = self._words
        step = self._taken + 1
        depth = self._taken % DEPTH
        for peer in collective.awaits:
            word = self._posted_words[peer]
            if words[word] < step:
                self._wait(word, step, peer, collective.name)
        if self._fence is not None:
            self._fence()
        for peer in collective.awaits:
            if words[self._posted_words[peer] + 1 + depth] != collective.signature:
                raise self._disagreement(collective, depth)
        collective.take(collective.takes, depth)
        if self._fence is not None:
            self._fence()
        collective.takes += 1
        self._taken = step
        words[self._my_taken] = step
        if collective.takes == collective.steps:
            self._to_take.popleft()

    def _disagreement(self, collective: Collective, depth: int) -> CollectiveError:
        brought = {self.slots.me: collective.signature}
        for peer in collective.awaits:
            brought[peer] = self._words[self._posted_words[peer] + 1 + depth]
        lines = [f"  rank {self._ranks[r]}: {describe(s)}" for r, s in sorted(brought.items())]
        return CollectiveError(
            "\n".join(
                [f"the ranks {list(self._ranks)} disagree on what to do over shared memory:", *lines]
            )
        )
