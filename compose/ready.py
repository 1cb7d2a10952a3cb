"""Asks the node in this container whether it is ready, for the health check of its image.

It runs every few seconds, so it imports a socket and nothing more: no shell, no HTTP library, and
nothing of Ottla, whose import takes longer than the answer.

Not here: what ready means (`ottla.node.facts`).
"""

from __future__ import annotations

import socket
import sys
from typing import Final

ADDRESS: Final = ("127.0.0.1", 9100)
TIMEOUT_S: Final = 3.0
_ANSWER_BYTES_MAX: Final = 64 * 1024
_QUESTION: Final = b"GET /health/ready HTTP/1.0\r\nHost: localhost\r\n\r\n"


def ask(address: tuple[str, int]) -> tuple[bool, str]:
    """Return whether the node is ready, and what it says about it."""
    said = bytearray()
    try:
        with socket.create_connection(address, TIMEOUT_S) as connection:
            connection.sendall(_QUESTION)
            while len(said) < _ANSWER_BYTES_MAX and (part := connection.recv(4096)):
                said += part
    except OSError as error:
        return False, f"nobody answers at {address[0]}:{address[1]}: {error}"
    head, _, body = bytes(said).partition(b"\r\n\r\n")
    status = head.split(b" ", 2)[1:2]
    return status == [b"200"], body.decode("utf-8", "replace").strip()


def main() -> int:
    is_ready, told = ask(ADDRESS)
    sys.stdout.write(f"{told}\n")
    return 0 if is_ready else 1


if __name__ == "__main__":
    sys.exit(main())
