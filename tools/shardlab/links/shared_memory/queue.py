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
from dataclasses import dataclass

from torch import Tensor

from shardlab.comm.pending import CollectiveError
from shardlab.links.shared_memory.layout import DEPTH, RegionLayout
from shardlab.links.shared_memory.patience import Bells, Fence
from shardlab.links.shared_memory.plans import Plan
from shardlab.links.shared_memory.signature import describe

Await = Callable[[int, int, int, str], None]
"""Return once a word has reached a value: (word, value, the peer that writes it, what waits)."""


@dataclass(eq=False, slots=True)
class Collective:
    """One collective under way: a plan, its tensors, and how many steps are put and taken."""

    queue: Queue
    plan: Plan
    x: Tensor
    out: Tensor
    after: Collective | None  # the one whose `out` is this one's `x`
    puts: int = 0
    takes: int = 0

    def wait(self) -> None:
        """Block until `out` is there; idempotent."""
        if self.takes < self.plan.steps:
            self.queue.finish(self)


class Queue:
    """The collectives that were started and not taken yet.

    Args:
        words: the region's flags.
        layout: where they lie.
        ranks: the ranks' numbers, for errors.
        me: this rank's place among them.
        wait: waits for a peer's flag.
        bells: wake the peers that wait for one of this rank's.
        fence: orders values and flags, where the machine doesn't.
    """

    def __init__(
        self, words: memoryview, layout: RegionLayout, *, ranks: Sequence[int], me: int,
        wait: Await, bells: Bells, fence: Fence | None,
    ) -> None:  # fmt: skip
        self._words = words
        self._bells = bells
        self._ranks = ranks
        self._me = me
        self._wait = wait
        self._fence = fence
        self._posted_words = [layout.posted(rank) for rank in range(layout.ranks)]
        self._taken_words = [layout.taken(rank) for rank in range(layout.ranks)]
        self._my_posted = layout.posted(me)
        self._my_taken = layout.taken(me)
        self._posted = self._taken = 0  # the same numbers as in this rank's words
        self._free = DEPTH  # steps below this number may be put: what was last known
        self._to_put: deque[Collective] = deque()
        self._to_take: deque[Collective] = deque()

    def start(
        self, plan: Plan, x: Tensor, out: Tensor, after: Collective | None = None
    ) -> Collective:
        """Put what there is room for, and return."""
        collective = Collective(self, plan, x, out, after)
        self._to_take.append(collective)
        self._to_put.append(collective)
        self._put()
        return collective

    def finish(self, collective: Collective) -> None:
        """Take, and put, until `collective` is done; those before it get done on the way."""
        steps = collective.plan.steps
        while collective.takes < steps:
            first = self._to_take[0]
            if first.puts == first.takes:  # there was no room yet for its next step
                self._await_room(first.plan.name)
                self._put()
            self._take(first)
            if self._to_put:
                self._put()

    def _put(self) -> None:
        while self._to_put:
            collective = self._to_put[0]
            before = collective.after
            if before is not None and before.takes < before.plan.steps:
                return
            steps = collective.plan.steps
            while collective.puts < steps:
                if self._posted >= self._free and not self._look_for_room():
                    return
                self._put_step(collective)
            self._to_put.popleft()

    def _put_step(self, collective: Collective) -> None:
        depth = self._posted % DEPTH
        collective.plan.put(collective.x, collective.puts, depth)
        self._words[self._my_posted + 1 + depth] = collective.plan.signature
        if self._fence is not None:
            self._fence()
        collective.puts += 1
        self._posted += 1
        self._words[self._my_posted] = self._posted
        self._bells.ring_all()

    def _look_for_room(self) -> bool:
        words = self._words
        self._free = min([words[index] for index in self._taken_words]) + DEPTH
        return self._posted < self._free

    def _await_room(self, name: str) -> None:
        for peer, word in enumerate(self._taken_words):
            if peer != self._me and self._words[word] <= self._posted - DEPTH:
                self._wait(word, self._posted - DEPTH + 1, peer, name)

    def _take(self, collective: Collective) -> None:
        words, plan = self._words, collective.plan
        step = self._taken + 1
        depth = self._taken % DEPTH
        for peer in plan.awaits:
            word = self._posted_words[peer]
            if words[word] < step:
                self._wait(word, step, peer, plan.name)
        if self._fence is not None:
            self._fence()
        for peer in plan.awaits:
            if words[self._posted_words[peer] + 1 + depth] != plan.signature:
                raise self._disagreement(plan, depth)
        plan.take(collective.out, collective.takes, depth)
        if self._fence is not None:
            self._fence()
        collective.takes += 1
        self._taken = step
        words[self._my_taken] = step
        self._bells.ring_all()
        if collective.takes == plan.steps:
            self._to_take.popleft()

    def _disagreement(self, plan: Plan, depth: int) -> CollectiveError:
        brought = {self._me: plan.signature}
        for peer in plan.awaits:
            brought[peer] = self._words[self._posted_words[peer] + 1 + depth]
        lines = [f"ranks {list(self._ranks)} disagree on what to do over shared memory:"]
        lines += [f"  rank {self._ranks[r]}: {describe(s)}" for r, s in sorted(brought.items())]
        return CollectiveError("\n".join(lines))
