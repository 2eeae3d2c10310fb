"""A port for a program that has to be told one."""

import random
import socket


def free_port() -> int:
    """Return a port of this machine that nobody uses, below those that the system deals out.

    One of the system's own choosing would be dealt out again, to another worker's test, before the
    program that is told of it takes it.
    """
    while True:
        port = random.randrange(20_000, 32_000)
        with socket.socket() as tried:
            try:
                tried.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
