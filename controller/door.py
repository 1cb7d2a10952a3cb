"""What a broker asks of the controllers, whichever of them it asks and wherever that one runs.

Every controller has a door. Any of them gives the metadata; only the active one registers brokers,
hears heartbeats and takes proposals, and the others name it (`NotActive`). The door of the
controller in the same process is the controller itself; the others are reached over gRPC.

Not here: deciding (`active.py`), carrying it over the wire (`ottla.node.internal`).

K1  a call that was not answered raises `DoorClosedError`: nobody knows what became of it
K2  whoever asks again asks with the same bytes, and what was done before is not done again
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from ottla.controller.commands import NO_BROKER_EPOCH, Partitions
from ottla.controller.delta import Delta
from ottla.controller.image import FEATURE_LEVEL, ClientEndpoint
from ottla.controller.outcome import Outcome
from ottla.controller.quorum.port import QuorumStatus
from ottla.proto.errors import ErrorCode, OttlaError
from ottla.proto.ids import BrokerId
from ottla.proto.kafka.uuids import UUID


class DoorClosedError(OttlaError):
    """A controller could not be reached, or did not answer in time."""


class OtherClusterError(DoorClosedError):
    """Who answers is a controller of another cluster."""


@dataclass(frozen=True, slots=True)
class NotActive:
    """This controller is not the active one; that one is, as far as it knows."""

    leader: int | None


@dataclass(frozen=True, slots=True)
class Denied:
    """The active controller refuses, for this reason."""

    code: ErrorCode
    sentence: str


@dataclass(frozen=True, slots=True)
class Unresolved:
    """It may have happened, or may yet: ask again with the same bytes."""

    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """A process that wants to be a broker (rules 2, 7 and 8)."""

    cluster_id: str
    broker_id: BrokerId
    incarnation: UUID
    directory_id: UUID
    boot_id: UUID
    # From the marker of a clean shutdown (rule 50).
    previous_epoch: int = NO_BROKER_EPOCH
    host: str
    port: int
    internal_host: str
    internal_port: int
    rack: str | None = None
    feature_level_max: int = FEATURE_LEVEL
    # Where it has several listeners for clients: all of them. Else empty.
    endpoints: tuple[ClientEndpoint, ...] = ()


@dataclass(frozen=True, slots=True)
class Registered:
    """The broker epoch of this life, which is the version at which it began."""

    broker_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Beat:
    """A broker says how it is (rule 10)."""

    broker_id: BrokerId
    broker_epoch: int
    # How much of the metadata it has followed.
    applied_version: int
    # Its logs are read and mended.
    is_recovered: bool
    wants_fence: bool = False
    wants_shutdown: bool = False
    damaged: Partitions = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class BeatAnswer:
    """What the active controller says to a heartbeat."""

    refusal: ErrorCode | None = None
    is_fenced: bool = True
    # The controlled shutdown is done (rule 12).
    may_exit: bool = False
    # How far the metadata has come at the controller. Whoever follows another one can tell that it
    # falls behind, and relies on the answer only when it has followed as far (rule 13).
    version: int = field(default=-1, compare=False)


@dataclass(frozen=True, slots=True)
class News:
    """The next piece of metadata: a whole image, or a delta to the version before it."""

    # `encode_image` of snapshot.py, or `encode_delta` of delta.py.
    data: bytes
    is_image: bool
    version: int
    # What the bytes of a delta say, where that is known: it does not travel.
    delta: Delta | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class QuorumView:
    """The quorum as the active controller sees it, for people and for DescribeQuorum."""

    status: QuorumStatus
    # Who follows the metadata without a vote, and how far: brokers that are no controllers.
    observers: Mapping[int, int] = field(default_factory=dict)


class Line(Protocol):
    """The heartbeats of one life of a broker. It breaks when either end goes."""

    async def beat(self, beat: Beat) -> BeatAnswer | NotActive:
        """Tell how it is, and hear the answer; raises `DoorClosedError` once it is broken."""

    async def close(self, *, is_goodbye: bool) -> None:
        """End it. With a good-bye nobody probes: the broker ends, or turns to another."""


class Door(Protocol):
    """One controller, as a broker sees it."""

    async def register(self, wanted: Registration) -> Registered | NotActive | Denied:
        """Begin a life as a broker; the same incarnation may ask again, for the same answer."""

    def open_line(self) -> Line:
        """Begin to tell the controller how this broker is."""

    async def propose(
        self, proposal: bytes, *, client: str
    ) -> Outcome | NotActive | Denied | Unresolved:
        """Have a proposal of this broker's session committed, on behalf of a client."""

    async def read_version(self) -> int | NotActive:
        """Return a version that holds all that was committed before the call (linearizable)."""

    async def describe_quorum(self) -> QuorumView | NotActive:
        """Say how the quorum is."""

    def follow(self, version: int, digest: bytes) -> AsyncIterator[News]:
        """Give the metadata after `version`, for ever; a whole image if the deltas are not there.

        −1 for whoever has nothing. Any controller can be asked. Ends with `DoorClosedError`.
        """
