"""What a nemesis and a runner ask of a cluster, whoever runs it: processes here, containers, Kafka.

A backend starts nodes, breaks them and mends them, each by its own means, and says what it cannot
do (`means`) before a scenario begins: a scenario that needs more is skipped by name, never quietly.
Everything here blocks until it is done, within its own deadline, and raises `HarnessError` when it
is not: a harness that failed is no verdict.

Not here: when to break what (`nemesis/`), clients (`runner/`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Final, Protocol

from ottla.chaos.evidence import FinalRead, ReplicaPrint
from ottla.chaos.history import Place
from ottla.proto.errors import OttlaError


class HarnessError(OttlaError):
    """The harness could not do what it was told: nothing follows for the system under test."""


class Means(Enum):
    """What a backend can do to a cluster, or learn of it."""

    KILL = "kill -9 of a node"
    PAUSE = "SIGSTOP and SIGCONT of a node"
    STOP = "SIGTERM of a node"
    LINKS = "cutting between nodes, each direction by itself"
    WEATHER = "delaying, losing and throttling between nodes"
    CLIENT_LINKS = "the same between clients and a node"
    UNPLUG = "taking a node off its network and back"
    POWER = "losing what was not synced, at the end of a node"
    DISK = "errors, a full disk, slow syncs of a node"
    FILES = "changing, losing or restoring files of a node that is down"
    WIPE = "losing the whole disk of a node that is down"
    CLOCK = "a wall clock that jumps, of a node"
    FAILPOINTS = "stopping a node at a named place of its program"
    TRACE = "the trace of nodes"
    DIGEST = "the batches of every replica"
    OFFLINE = "verifying the files of nodes that are down"
    MEMORY = "a limit of memory of a node"
    TWIN = "a second process that says it is the same node"
    UNCLEAN = "leaders that may lack what was acknowledged"
    PREPARING = "transactions that are prepared, and decided by somebody else"


# Those by which a node can be looked into: what they tell is evidence.
TELLING: Final = frozenset({Means.TRACE, Means.DIGEST, Means.OFFLINE})


@dataclass(frozen=True, slots=True)
class LinkFault:
    """What becomes of bytes from one node to another; the other direction is another fault."""

    # No byte passes; connections stay open, as if the cable were cut.
    is_cut: bool = False
    # New and open connections are reset.
    is_reset: bool = False
    delay_ms: int = 0
    jitter_ms: int = 0
    # Of pieces that were read together, so many in a thousand stop the stream for a while, as a
    # lost packet does until it is sent again.
    loss_per_mille: int = 0
    bytes_per_s: int | None = None


WHOLE = LinkFault()


class Backend(Protocol):
    """A cluster that can be broken. Nodes are known by their ids."""

    @property
    def name(self) -> str:
        """Return local, docker or kafka."""

    @property
    def system(self) -> str:
        """Return what is tested, and its version."""

    @property
    def means(self) -> frozenset[Means]: ...

    @property
    def nodes(self) -> tuple[int, ...]:
        """Return the brokers."""

    @property
    def controllers(self) -> tuple[int, ...]:
        """Return the nodes that vote; they may be brokers too, or not."""

    # -- its life ----------------------------------------------------------------------------------

    def start(self) -> None:
        """Start all nodes and wait until every one is ready."""

    def close(self) -> None:
        """End everything that was started, whatever state it is in; keep the files."""

    def bootstrap(self, node: int) -> str:
        """Return where clients reach a node, host and port."""

    def inside(self, node: int) -> str:
        """Return where the harness itself reaches a node, past all links that are ill."""

    def is_running(self, node: int) -> bool: ...

    def is_ready(self, node: int) -> bool:
        """Return whether a node says that it serves."""

    def active_controller(self) -> int | None:
        """Return who it is by what nodes say now; None: nobody knows."""

    # -- nodes -------------------------------------------------------------------------------------

    def kill(self, nodes: Sequence[int]) -> None:
        """End nodes at the same moment, with SIGKILL."""

    def cut_power(self, nodes: Sequence[int]) -> None:
        """End nodes at the same moment, and lose what they had not synced."""

    def stop(self, nodes: Sequence[int]) -> dict[int, int]:
        """End nodes with SIGTERM at the same moment; return their exit codes."""

    def exit_code(self, node: int) -> int | None:
        """Return how the last life of a node ended; None: it has not."""

    def begin(self, node: int, environment: Mapping[str, str] | None = None) -> None:
        """Start a node that is down; do not wait. The environment is for this life only."""

    def start_twin(self, node: int, *, on_same_files: bool) -> int | None:
        """Start the same node once more; return its exit code, or None if it lives on for long."""

    def wait_ready(self, nodes: Sequence[int], deadline_s: float) -> None: ...

    def pause(self, node: int) -> None: ...

    def resume(self, node: int) -> None: ...

    # -- links -------------------------------------------------------------------------------------

    def set_link(self, source: int, target: int, fault: LinkFault) -> None:
        """From now on, bytes from one node to another fare so. `WHOLE` mends it."""

    def weather_met(self, source: int, target: int) -> int:
        """Return how many pieces or packets met delay and loss on a way since it fares so."""

    def set_client_link(self, node: int, to_node: LinkFault, from_node: LinkFault) -> None: ...

    def unplug(self, node: int) -> None:
        """Take a node off its network: neither nodes nor clients reach it."""

    def plug_in(self, node: int) -> None:
        """Put a node back on its network; one that was not taken off stays as it is."""

    # -- disks and clocks --------------------------------------------------------------------------

    def set_faults(self, node: int, clauses: Sequence[str]) -> int:
        """Let a running node suffer these, and no other: `eio=…`, `clock_ms=…`, `failpoint=…`.

        Return how often it has met what it was to suffer before.
        """

    def data_dir(self, node: int) -> Path:
        """Return where a node that is down keeps its files, for whoever changes them."""

    def wipe(self, node: int) -> None: ...

    def limit_memory(self, node: int, more_bytes: int | None) -> None:
        """Let a running node have no more than so much above what it has; None: as it likes."""

    # -- looking inside ----------------------------------------------------------------------------

    def trace_files(self) -> Sequence[Path]: ...

    def replica_prints(self, topics: Mapping[str, int], turn: int) -> list[ReplicaPrint]: ...

    def verify_offline(self) -> dict[int, list[str]]:
        """Read the files of all nodes, which are down, and return what is wrong with each."""

    def offline_reads(self, places: Sequence[Place]) -> list[FinalRead]:
        """Read the records of partitions from the files of all nodes, which are down."""

    def log_lines(self) -> dict[int, list[tuple[int, str]]]: ...

    def resources(self) -> dict[int, Mapping[str, Any]]:
        """Return rss_bytes, open_files and disk_bytes of each running node."""
