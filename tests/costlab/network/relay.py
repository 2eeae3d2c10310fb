"""Delays the packets of a wire in user space, as the kernel's netem does if the kernel has it.

Each node has, as its link "slow", a TUN device whose other end this process holds. What a node
sends is read here, kept back for the delay, and written to the node that it is addressed to, in
order.
"""

from __future__ import annotations

import fcntl
import os
import select
import struct
import subprocess
import threading
import time
from collections import deque

from tests.costlab.network.namespaces import Wire
from tests.limits import LIMIT

_TUNSETIFF = 0x400454CA  # linux/if_tun.h
_IFF_TUN, _IFF_NO_PI = 0x0001, 0x1000
_PACKET = 1 << 16


class Relay(threading.Thread):
    """Joins a wire's nodes, and delays each packet by `delay` seconds.

    Attributes:
        delay: seconds, one way; may be changed while no packet is under way.
        first: whether it runs before all else; if not, ranks should stand back.
        late: the sum of seconds by which packets left late, and their number.
    """

    def __init__(self, wire: Wire) -> None:
        super().__init__(daemon=True, name="relay")
        self.delay = 0.0
        self.first = _may_go_first()
        self.late, self.packets = 0.0, 0
        self._ends: dict[bytes, int] = {}
        for node in range(wire.nodes):
            end = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
            name = f"end{node}"
            flags = struct.pack("16sH22x", name.encode(), _IFF_TUN | _IFF_NO_PI)
            fcntl.ioctl(end, _TUNSETIFF, flags)
            # Open here, and moved to the node with its other end still ours.
            move = ["ip", "link", "set", name, "netns", f"node{node}", "name", "slow"]
            subprocess.run(move, check=True, timeout=LIMIT)
            wire.plug(node, "slow")
            self._ends[bytes(map(int, wire.address(node, "slow").split(".")))] = end

    def run(self) -> None:
        """Carry packets until the process ends."""
        if self.first:
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), -20)
        waiting: deque[tuple[float, int, bytes]] = deque()  # one delay for all keeps them in order
        poll = select.poll()
        for end in self._ends.values():
            poll.register(end, select.POLLIN)
        while True:
            wait = waiting[0][0] - time.perf_counter() if waiting else 0.05
            # poll counts in whole milliseconds: the last of them is spent asking again and again.
            for end, _ in poll.poll(max(0.0, (wait - 0.0012) * 1e3)):
                packet = os.read(end, _PACKET)
                to = self._ends.get(packet[16:20])  # the IPv4 destination
                if to is not None:
                    waiting.append((time.perf_counter() + self.delay, to, packet))
            while waiting and (now := time.perf_counter()) >= waiting[0][0]:
                due, to, packet = waiting.popleft()
                os.write(to, packet)
                self.late += now - due
                self.packets += 1


def _may_go_first() -> bool:
    try:
        os.setpriority(os.PRIO_PROCESS, 0, -20)
    except PermissionError:
        return False
    os.setpriority(os.PRIO_PROCESS, 0, 0)
    return True
