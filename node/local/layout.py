"""What a local cluster looks like: which nodes, which of them vote, where each listens.

With the base port 9092, node 1 serves clients at 9092, node 2 at 9093 and so on; the INTERNAL
ports are 100 above, the REPLICATION ports 150 and the HTTP ports 200, so that a port tells its
node.

The first nodes vote: an odd number of them, at most five. An even voter adds nothing (four bear
one loss, as three do), and more than five only make every change wait for more disks.

    nodes   1  2  3  4  5  6 …
    voters  1  1  3  3  5  5 …

Not here: whether a port is free (`ports.py`), what runs (`cluster.py`).

L1  a node's file may be edited: only the lines that the layout decides are written again
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ottla.proto.errors import ConfigError
from ottla.proto.options.endpoints import Address, ListenerName

NODES_MAX: Final = 32
VOTERS_MAX: Final = 5
HOST: Final = "127.0.0.1"
DEFAULT_BASE_PORT: Final = 9092
PORT_MAX: Final = 65535
_INTERNAL_ABOVE: Final = 100
# Between the two there is room for all nodes.
_REPLICATION_ABOVE: Final = 150
_HTTP_ABOVE: Final = 200
_VOTES: Final = ("broker", "controller")
_SERVES: Final = ("broker",)
_HEADING: Final = (
    "# Written by `ottla cluster`. Add options of this node below; they are kept. The lines that",
    "# the layout of the cluster decides are written again at every start.",
)


@dataclass(frozen=True, slots=True)
class NodePlan:
    """One node: what it does and where it listens."""

    node_id: int
    roles: tuple[str, ...]
    listeners: Mapping[ListenerName, Address]

    @property
    def votes(self) -> bool:
        return "controller" in self.roles


def voter_count(node_count: int) -> int:
    """Return how many of so many nodes vote."""
    bounded = min(node_count, VOTERS_MAX)
    return bounded if bounded % 2 else bounded - 1


def lay_out(node_count: int, base_port: int) -> tuple[NodePlan, ...]:
    """Return the nodes of a cluster, or raise `ConfigError`."""
    highest = base_port + _HTTP_ABOVE + node_count - 1
    if base_port < 1 or highest > PORT_MAX:
        raise ConfigError(
            f"--base-port {base_port} leaves no room for the ports up to {highest}: choose one "
            f"from 1 to {PORT_MAX - _HTTP_ABOVE - node_count + 1}, or 0 for any that are free."
        )
    voters = voter_count(node_count)
    return tuple(
        NodePlan(
            node_id=number + 1,
            roles=_VOTES if number < voters else _SERVES,
            listeners={
                "CLIENT": Address(HOST, base_port + number),
                "INTERNAL": Address(HOST, base_port + _INTERNAL_ABOVE + number),
                "REPLICATION": Address(HOST, base_port + _REPLICATION_ABOVE + number),
                "HTTP": Address(HOST, base_port + _HTTP_ABOVE + number),
            },
        )
        for number in range(node_count)
    )


def replication_beside(internal: Address) -> Address:
    """Return where a node of ours is followed, by where it meets other nodes."""
    return Address(internal.host, internal.port + _REPLICATION_ABOVE - _INTERNAL_ABOVE)


def decided(plan: NodePlan, nodes: Iterable[NodePlan], data_dir: Path) -> dict[str, str]:
    """Return the options that the layout decides for a node."""
    listeners = ",".join(f"{name}://{address}" for name, address in plan.listeners.items())
    voters = ",".join(f"{one.node_id}@{one.listeners['INTERNAL']}" for one in nodes if one.votes)
    return {
        "node.id": str(plan.node_id),
        "process.roles": ",".join(plan.roles),
        "controller.quorum.voters": voters,
        "listeners": listeners,
        "log.dirs": str(data_dir),
    }


def file_text(before: str | None, lines: Mapping[str, str], added: Mapping[str, str]) -> str:
    """Return a node's file: the decided lines, and what somebody wrote below them (L1)."""
    extra = [_line(name, value) for name, value in added.items()]
    return "\n".join([*_lines_kept(before, lines, added), *extra]) + "\n"


def text_without(before: str | None, lines: Mapping[str, str], added: Mapping[str, str]) -> str:
    """Return the same file, but for what is added to it."""
    return "\n".join(_lines_kept(before, lines, added)) + "\n"


def _lines_kept(
    before: str | None, lines: Mapping[str, str], added: Mapping[str, str]
) -> list[str]:
    kept = [] if before is None else before.splitlines()
    replaced = {*lines, *added}
    others = [
        line
        for line in kept
        if line not in _HEADING and line.partition("=")[0].strip() not in replaced
    ]
    ours = [*_HEADING, *(_line(name, value) for name, value in lines.items())]
    return [*ours, *others]


def _line(name: str, value: str) -> str:
    # In such a file a backslash makes the next character special.
    return "{}={}".format(name, value.replace("\\", "\\\\"))
