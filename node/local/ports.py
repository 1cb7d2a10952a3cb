"""Ports of this machine: are they free, and which block of them is?

Ports that nobody asked for by number are taken below those that the system gives to outgoing
connections: a node that is dead for a while must find its ports free when it comes back.

Not here: which node listens where (`layout.py`).
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterable, Iterator
from pathlib import Path
from random import Random
from typing import Final

from ottla.node.local.layout import NodePlan, lay_out
from ottla.proto.errors import ConfigError
from ottla.proto.options.endpoints import Address

_RANGE_PATH: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")
_USUAL_OUTGOING: Final = 32768
_LOWEST: Final = 10_000
# Ports above the base that a layout may use.
_ROOM: Final = 300
_TRIES: Final = 200


def require_free(nodes: Iterable[NodePlan]) -> None:
    """Raise `ConfigError` with a sentence for every port that cannot be taken."""
    problems = tuple(_problems(nodes))
    if problems:
        raise ConfigError(
            *problems,
            "nothing was started. Stop whoever listens there, or choose other ports with "
            "--base-port (0: any that are free).",
        )


def choose_free(node_count: int, dice: Random) -> tuple[NodePlan, ...]:
    """Return a layout whose ports are all free, or raise `ConfigError`."""
    highest = max(_LOWEST + _ROOM, _lowest_outgoing()) - _ROOM
    for _ in range(_TRIES):
        nodes = lay_out(node_count, dice.randrange(_LOWEST, highest + 1))
        if not any(_problems(nodes)):
            return nodes
    raise ConfigError(f"no {node_count} free blocks of ports were found: name one, --base-port P.")


def _problems(nodes: Iterable[NodePlan]) -> Iterator[str]:
    for node in nodes:
        for name, address in node.listeners.items():
            try:
                _try_to_listen(address)
            except OSError as error:
                in_use = error.errno == errno.EADDRINUSE
                reason = "it is in use" if in_use else error.strerror or str(error)
                yield f"port {address.port} is for {name} of node {node.node_id}, and {reason}."


def _try_to_listen(address: Address) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As a node does it: connections of an earlier life do not hold a port.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((address.host, address.port))
        # Where another socket listens with the same option set, only this tells.
        probe.listen(1)


def _lowest_outgoing() -> int:
    try:
        return int(_RANGE_PATH.read_text(encoding="ascii").split()[0])
    except (OSError, ValueError, IndexError):
        return _USUAL_OUTGOING
