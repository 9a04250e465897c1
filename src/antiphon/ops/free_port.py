"""Whether a port of this machine is free for a listener."""

from __future__ import annotations

import socket


def is_port_free(port: int) -> bool:
    """Whether a listener on the loopback address could use the port now."""
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
