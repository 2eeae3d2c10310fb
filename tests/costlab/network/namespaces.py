"""Makes network namespaces as nodes: a real network in one machine, which ends with its process.

`inside(command)` runs a command in network, mount and process namespaces of its own (and a user
namespace where the caller isn't root). Nothing that it makes can touch the machine's own network,
and the kernel removes all of it with the command's first process, however that ends. In there,
`Wire` lays nodes and joins them: with Ethernet, or with a relay that keeps each packet for a while.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence

from tests.limits import LIMIT

MTU = 9000  # jumbo frames
# Ethernet 14, IPv4 20, TCP 20 and its timestamps 12.
HEADERS = 66
# Of what a link carries, what is within TCP, when there is much to send.
USEFUL = (MTU + 14 - HEADERS) / (MTU + 14)
NETWORKS = {"fast": 77, "slow": 78}


def inside(command: Sequence[str]) -> list[str]:
    """Return a command that runs `command` in namespaces of its own."""
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    own_namespaces = ["--net", "--mount", "--pid", "--mount-proc", "--fork", "--kill-child"]
    return ["unshare", *user, *own_namespaces, *command]


def explain_lack() -> str:
    """Return why no namespaces can be made here, or ""."""
    missing = [tool for tool in ("unshare", "ip", "tc", "ss") if shutil.which(tool) is None]
    if missing:
        return f"no {' and no '.join(missing)} here (Debian's packages util-linux and iproute2)"
    probe = [sys.executable, "-c", "from tests.costlab.network.namespaces import Wire; Wire(2)"]
    answer = subprocess.run(
        inside(probe), capture_output=True, text=True, timeout=LIMIT, check=False
    )
    errors = answer.stderr.strip().splitlines()
    return (
        f"namespaces are refused here: {errors[-1] if errors else '?'}" if answer.returncode else ""
    )


class Wire:
    """Nodes node0 … with the links between them, to be made `inside` namespaces.

    Every link has a name, the same on all nodes, and a network: "fast" is 10.77.0.0/24, where node0
    is 10.77.0.1, node1 10.77.0.2 …; "slow" is 10.78.0.0/24.

    Args:
        nodes: how many.
    """

    def __init__(self, nodes: int) -> None:
        self.nodes = nodes
        # `ip netns` keeps its names under /run, which is nobody else's here.
        _run("mount", "-t", "tmpfs", "none", "/run")
        for node in range(nodes):
            _run("ip", "netns", "add", f"node{node}")
            self.on(node, "ip", "link", "set", "lo", "up")

    def address(self, node: int, link: str) -> str:
        """Return a node's IPv4 address on a link."""
        return f"10.{NETWORKS[link]}.0.{node + 1}"

    def switch(self) -> None:
        """Make the link "fast": a veth from each node to one bridge."""
        _run("ip", "link", "add", "switch", "type", "bridge")
        _run("ip", "link", "set", "switch", "mtu", str(MTU), "up")
        for node in range(self.nodes):
            port = f"port{node}"
            _run("ip", "link", "add", port, "mtu", str(MTU), "type", "veth",
                 "peer", "name", "fast", "mtu", str(MTU), "netns", f"node{node}")  # fmt: skip
            _run("ip", "link", "set", port, "master", "switch", "up")
            self.plug(node, "fast")

    def plug(self, node: int, link: str) -> None:
        """Give a node's end of a link its address, and turn it on."""
        # Without an IPv6 address nothing speaks on the wire but what is measured (and ARP).
        self.on(node, "ip", "link", "set", link, "addrgenmode", "none")
        self.on(node, "ip", "address", "add", f"{self.address(node, link)}/24", "dev", link)
        self.on(node, "ip", "link", "set", link, "up")

    def shape(self, rate: float) -> None:
        """Limit each node to `rate` bits per second over "fast", headers included."""
        # Two milliseconds at once, or a timer that is late loses bandwidth for good; and a queue so
        # long that nothing is ever dropped.
        burst = max(2 * MTU, round(rate / 8 * 0.002))
        for node in range(self.nodes):
            self.on(node, "tc", "qdisc", "replace", "dev", "fast", "root", "tbf",
                    "rate", f"{rate:.0f}bit", "burst", str(burst), "latency", "2s")  # fmt: skip

    def on(self, node: int, *command: str) -> str:
        """Run a command on a node; return its standard output."""
        return _run("ip", "netns", "exec", f"node{node}", *command)

    def sent(self) -> list[int]:
        """Return the bytes that each node has sent over "fast" within TCP, each counted once.

        They are the interface's bytes, less the headers of its packets, less what TCP says it sent
        a second time (to a busy machine a slow answer looks like a lost one). The interface counts
        a segment that would be cut into frames later as one packet with one set of headers, so the
        count is exact however it is cut.
        """
        counts = []
        for node in range(self.nodes):
            link = json.loads(_run("ip", "-n", f"node{node}", "-j", "-s", "link", "show", "fast"))
            sent = link[0]["stats64"]["tx"]
            again = re.findall(r"bytes_retrans:(\d+)", self.on(node, "ss", "--tcp", "--info"))
            counts.append(sent["bytes"] - HEADERS * sent["packets"] - sum(map(int, again)))
        return counts


def _run(*command: str) -> str:
    answer = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False)
    if answer.returncode:
        raise RuntimeError(f"{' '.join(command)}: {answer.stderr.strip()}")
    return answer.stdout
