"""A command on its way to the quorum: who asked for it, under which number, and its bytes.

The bytes are u8 format | feature level | number of the kind | request id | the command's fields.
A kind is never changed: another shape is another kind, of a higher feature level. A command of a
level that the cluster has not reached is refused by every member alike, whether or not its program
could read it; so members of different versions agree.

Not here: applying it (`replay.py`).

Q1  what was encoded decodes to an equal proposal
Q2  whatever else the bytes are, `decode_proposal` raises `RequestError` and nothing else
Q3  no proposal is larger than 32 KiB: PySyncObj takes larger ones apart, and not always right (P16)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from ottla.controller.commands import (
    AlterPartitions,
    BeginShutdown,
    ChangeConfigs,
    Command,
    CreatePartitions,
    CreateTopic,
    DeleteTopic,
    ElectLeaders,
    FenceBroker,
    ForgetBroker,
    PartitionChange,
    RegisterBroker,
    ReportDamage,
    SetFeatureLevel,
    TakeOffice,
    TakeProducerIds,
    UnfenceBroker,
)
from ottla.controller.parts import DEFAULTS, ENDPOINTS, OPTIONS
from ottla.controller.port import ConfigChange, NewPartitions, NewTopic, TopicDefaults
from ottla.controller.shapes import (
    FLAG,
    ID,
    INDEXES,
    NUMBER,
    TEXT,
    Reader,
    Shape,
    chosen,
    listed,
    mapped,
    optional,
    paired,
    record,
)
from ottla.proto.errors import CorruptionError, ErrorCode, RequestError
from ottla.proto.ids import BrokerId

COMMAND_BYTES_MAX: Final = 32 * 1024
_FORMAT: Final = 1


@dataclass(frozen=True, slots=True)
class RequestId:
    """Tells a request that is sent again from another one (rule 68)."""

    node_id: BrokerId
    # The broker epoch of whoever asks, or the epoch of the office if the controller itself does.
    epoch: int
    # Counted by whoever asks, from 0, one for each command.
    sequence: int


# For the commands that open a session, and so have none yet.
NO_REQUEST: Final = RequestId(BrokerId(-1), -1, -1)


@dataclass(frozen=True, slots=True)
class Proposal:
    """A command, and who asked for it."""

    request: RequestId
    command: Command


@dataclass(frozen=True, slots=True)
class Kind:
    """One row of the table of commands."""

    number: int
    # From this feature level on there is such a command.
    level: int
    command: type[Command]
    shape: Shape[Any]


def _frozen(shape: Shape[tuple[str, ...]]) -> Shape[frozenset[str]]:
    return Shape(
        lambda out, value: shape.write(out, tuple(sorted(value))),
        lambda reader: frozenset(shape.read(reader)),
    )


_REPLICAS: Final = listed(NUMBER)
_PARTITIONS: Final = mapped(ID, INDEXES)
_BROKER: Final = {"broker_id": NUMBER, "broker_epoch": NUMBER}
_NEW_TOPIC: Final = record(
    NewTopic,
    name=TEXT,
    partitions=optional(NUMBER),
    replication_factor=optional(NUMBER),
    assignments=mapped(NUMBER, _REPLICAS),
    configs=OPTIONS,
)
_NEW_PARTITIONS: Final = record(
    NewPartitions, topic=TEXT, count=NUMBER, assignments=optional(listed(_REPLICAS))
)
_CONFIG_CHANGE: Final = record(
    ConfigChange,
    kind=chosen("topic", "broker"),
    name=TEXT,
    set=OPTIONS,
    unset=_frozen(listed(TEXT)),
    replace=FLAG,
)
_PARTITION_CHANGE: Final = record(
    PartitionChange,
    topic_id=ID,
    partition=NUMBER,
    leader_epoch=NUMBER,
    partition_epoch=NUMBER,
    isr=listed(paired(NUMBER, NUMBER)),
    is_recovering=FLAG,
    is_synced=FLAG,
)
_REGISTER: Final[dict[str, Shape[Any]]] = {
    "cluster_id": TEXT,
    "broker_id": NUMBER,
    "incarnation": ID,
    "expected_epoch": NUMBER,
    "directory_id": ID,
    "boot_id": ID,
    "previous_epoch": NUMBER,
    "host": TEXT,
    "port": NUMBER,
    "internal_host": TEXT,
    "internal_port": NUMBER,
    "rack": optional(TEXT),
    "feature_level_max": NUMBER,
}
_CREATE_TOPIC: Final = record(
    CreateTopic,
    wanted=_NEW_TOPIC,
    topic_id=ID,
    defaults=record(TopicDefaults, partitions=NUMBER, replication_factor=NUMBER),
    seed=NUMBER,
)


def _row(number: int, command: type[Command], /, **fields: Shape[Any]) -> Kind:
    return Kind(number, 1, command, record(command, **fields))


KINDS: Final = (
    _row(1, TakeOffice, node_id=NUMBER, expected_epoch=NUMBER, defaults=DEFAULTS),
    _row(2, RegisterBroker, **_REGISTER),
    _row(3, FenceBroker, **_BROKER),
    _row(4, UnfenceBroker, **_BROKER, applied_version=NUMBER, damaged=_PARTITIONS),
    _row(5, ReportDamage, **_BROKER, damaged=_PARTITIONS),
    _row(6, BeginShutdown, **_BROKER),
    _row(7, ForgetBroker, **_BROKER),
    _row(8, AlterPartitions, **_BROKER, changes=listed(_PARTITION_CHANGE)),
    _row(9, ElectLeaders, kind=chosen("preferred", "unclean"), partitions=optional(_PARTITIONS)),
    Kind(10, 1, CreateTopic, _CREATE_TOPIC),
    _row(11, DeleteTopic, name=TEXT, topic_id=ID),
    _row(12, CreatePartitions, wanted=_NEW_PARTITIONS, topic_id=ID, seed=NUMBER),
    _row(13, ChangeConfigs, change=_CONFIG_CHANGE),
    _row(14, TakeProducerIds, count=NUMBER),
    _row(15, SetFeatureLevel, level=NUMBER),
    # Of a broker with several listeners for clients. No version was released that does not know
    # this kind, so it needs no feature level of its own.
    _row(16, RegisterBroker, **_REGISTER, endpoints=ENDPOINTS),
)
_REGISTER_SEVERAL: Final = KINDS[-1]
_BY_COMMAND: Final = {kind.command: kind for kind in KINDS if kind is not _REGISTER_SEVERAL}
_BY_NUMBER: Final = {(kind.level, kind.number): kind for kind in KINDS}
_REQUEST: Final = record(RequestId, node_id=NUMBER, epoch=NUMBER, sequence=NUMBER)


def encode_proposal(proposal: Proposal) -> bytes:
    """Return the bytes, or raise `RequestError` if this cannot be one command."""
    kind = _kind_of(proposal.command)
    out = bytearray([_FORMAT])
    NUMBER.write(out, kind.level)
    NUMBER.write(out, kind.number)
    try:
        _REQUEST.write(out, proposal.request)
        kind.shape.write(out, proposal.command)
    except ValueError as error:
        sentence = f"The command cannot be written down: {error}."
        raise RequestError(ErrorCode.INVALID_REQUEST, sentence) from None
    _require_small(len(out))
    return bytes(out)


def _kind_of(command: Command) -> Kind:
    if isinstance(command, RegisterBroker) and command.endpoints:
        return _REGISTER_SEVERAL
    return _BY_COMMAND[type(command)]


def decode_proposal(data: bytes, *, feature_level: int) -> Proposal:
    """Return the proposal, or raise `RequestError` in the same words on every member."""
    _require_small(len(data))
    try:
        return _read(Reader(data, "The command"), feature_level)
    except CorruptionError as error:
        raise RequestError(ErrorCode.INVALID_REQUEST, str(error)) from None


def _read(reader: Reader, feature_level: int) -> Proposal:
    found = reader.take(1)[0]
    if found != _FORMAT:
        raise reader.garbage(f"there is no format {found}")
    level, number = reader.number(), reader.number()
    if level > feature_level:
        raise RequestError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"The command is of feature level {level}, and the cluster is at {feature_level}.",
        )
    kind = _BY_NUMBER.get((level, number))
    if kind is None:
        raise reader.garbage(f"there is no command {number} of feature level {level}")
    request = _REQUEST.read(reader)
    command = kind.shape.read(reader)
    reader.require_end()
    return Proposal(request, command)


def _require_small(size: int) -> None:
    if size > COMMAND_BYTES_MAX:
        raise RequestError(
            ErrorCode.INVALID_REQUEST,
            f"A command has at most {COMMAND_BYTES_MAX} bytes, not {size}; ask for less at once.",
        )
