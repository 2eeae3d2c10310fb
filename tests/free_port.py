"""Finds a free port for a program that needs to be told one."""

import random
import socket


def free_port() -> int:
    """Return an unused port of this machine, below the ports that the system assigns.

    The system would assign a port of its own choice again, to another worker's test, before the
    program uses the port.
    """
    while True:
        port = random.randrange(20_000, 32_000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
