"""The queue of a link's collectives, in the order of their start, and the protocol of its slots.

Nothing runs in the background. A start puts as many steps as there are free slots. A wait takes,
and puts the rest, of its own collective and of all collectives started before it. So an early rank
doesn't block at the start. Ranks may also start two collectives on two links in different orders,
as long as these fit into their slots.

The protocol: rank r counts the steps that it has put, `posted[r]`, and those that it has taken,
`taken[r]`; no other rank writes these counts. Step s uses slot s mod DEPTH. It may be taken once
every needed rank has posted > s, and put once every rank has taken > s - DEPTH. With two slots the
second condition nearly always holds already (a peer that has posted step s - 1 has taken step s - 2
before), so each step costs one barrier.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch import Tensor

from shardlab.comm.pending import CollectiveError
from shardlab.links.shared_memory.layout import DEPTH, RegionLayout
from shardlab.links.shared_memory.plans import Plan
from shardlab.links.shared_memory.signature import describe
from shardlab.links.shared_memory.waiting import Fence, FutexWaiter

Await = Callable[[int, int, int, str], None]
"""A function (word, value, peer, name) that returns once the peer's word has reached a value.

`name` is the collective that waits, for errors.
"""


@dataclass(eq=False, slots=True)
class Collective:
    """A collective that was started: its plan, its tensors, and the steps put and taken so far."""

    queue: Queue
    plan: Plan
    x: Tensor
    out: Tensor
    after: Collective | None  # the collective whose `out` is this one's `x`
    puts: int = 0
    takes: int = 0

    def wait(self) -> None:
        """Block until `out` is complete; idempotent."""
        if self.takes < self.plan.steps:
            self.queue.finish(self)


class Queue:
    """The collectives that were started and are not finished.

    Args:
        words: the region's flags.
        layout: the flags' indices.
        ranks: the members' global ranks, for errors.
        me: this rank's index among them.
        wait: waits for a peer's flag.
        waiter: wakes the peers that wait for this rank's flags.
        fence: a memory fence between data and flags; None on machines that keep their order.
    """

    def __init__(
        self, words: memoryview, layout: RegionLayout, *, ranks: Sequence[int], me: int,
        wait: Await, waiter: FutexWaiter, fence: Fence | None,
    ) -> None:  # fmt: skip
        self._words = words
        self._waiter = waiter
        self._ranks = ranks
        self._me = me
        self._wait = wait
        self._fence = fence
        self._posted_words = [layout.posted_word(rank) for rank in range(layout.ranks)]
        self._taken_words = [layout.taken_word(rank) for rank in range(layout.ranks)]
        self._my_posted = layout.posted_word(me)
        self._my_taken = layout.taken_word(me)
        self._posted = self._taken = 0  # the same numbers as in this rank's words
        self._free = DEPTH  # steps below this number may be put, as of the last update
        self._to_put: deque[Collective] = deque()
        self._to_take: deque[Collective] = deque()

    def start(
        self, plan: Plan, x: Tensor, out: Tensor, after: Collective | None = None
    ) -> Collective:
        """Queue a collective, put as many steps as there are free slots, and return it."""
        collective = Collective(self, plan, x, out, after)
        self._to_take.append(collective)
        self._to_put.append(collective)
        self._put()
        return collective

    def finish(self, collective: Collective) -> None:
        """Take and put steps until `collective` and all started before it are done."""
        steps = collective.plan.steps
        while collective.takes < steps:
            first = self._to_take[0]
            if first.puts == first.takes:  # its next step had no free slot yet
                self._await_free_slot(first.plan.name)
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
                if self._posted >= self._free and not self._update_free():
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
        self._waiter.wake_all()

    def _update_free(self) -> bool:
        words = self._words
        self._free = min([words[index] for index in self._taken_words]) + DEPTH
        return self._posted < self._free

    def _await_free_slot(self, name: str) -> None:
        for peer, word in enumerate(self._taken_words):
            if peer != self._me and self._words[word] <= self._posted - DEPTH:
                self._wait(word, self._posted - DEPTH + 1, peer, name)

    def _take(self, collective: Collective) -> None:
        words, plan = self._words, collective.plan
        step = self._taken + 1
        depth = self._taken % DEPTH
        for peer in plan.sources:
            word = self._posted_words[peer]
            if words[word] < step:
                self._wait(word, step, peer, plan.name)
        if self._fence is not None:
            self._fence()
        for peer in plan.sources:
            if words[self._posted_words[peer] + 1 + depth] != plan.signature:
                raise self._mismatch_error(plan, depth)
        plan.take(collective.out, collective.takes, depth)
        if self._fence is not None:
            self._fence()
        collective.takes += 1
        self._taken = step
        words[self._my_taken] = step
        self._waiter.wake_all()
        if collective.takes == plan.steps:
            self._to_take.popleft()

    def _mismatch_error(self, plan: Plan, depth: int) -> CollectiveError:
        signatures = {self._me: plan.signature}
        for peer in plan.sources:
            signatures[peer] = self._words[self._posted_words[peer] + 1 + depth]
        lines = [f"ranks {list(self._ranks)} disagree on what to do over shared memory:"]
        lines += [f"  rank {self._ranks[r]}: {describe(s)}" for r, s in sorted(signatures.items())]
        return CollectiveError("\n".join(lines))
