"""The values of the controllers' door as messages of `cluster.proto`, and back.

What comes from the wire was written by somebody who may be wrong, old or hostile. So every value is
checked here, and everything behind this file works with values that are whole.

Not here: sending them (`service.py`, `remote.py`).

X1  what was written is read back equal
X2  whatever else a message holds, reading it raises `RemoteProtocolError` and nothing else
X3  no text, list or piece of metadata is larger than a bound that stands here
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Final, TypeVar

from ottla.controller.commands import Partitions
from ottla.controller.door import (
    Beat,
    BeatAnswer,
    Denied,
    News,
    NotActive,
    QuorumView,
    Registered,
    Registration,
    Unresolved,
)
from ottla.controller.image import ClientEndpoint
from ottla.controller.outcome import Outcome
from ottla.controller.quorum.membership import Standing
from ottla.controller.quorum.port import QuorumStatus, Role
from ottla.controller.replay import decode_outcome, encode_outcome
from ottla.proto.errors import CorruptionError, ErrorCode, RemoteProtocolError
from ottla.proto.gen import cluster_pb2 as pb
from ottla.proto.ids import BrokerId
from ottla.proto.kafka.uuids import UUID, uuid_of

TEXT_MAX: Final = 1024
DIGEST_MAX: Final = 64
VOTERS_MAX: Final = 1000
DAMAGED_MAX: Final = 200_000
PART_BYTES: Final = 1 << 20
NEWS_BYTES_MAX: Final = 256 << 20
_PORT_MAX: Final = 65_535
# More listeners for clients than anybody opens.
_ENDPOINTS_MAX: Final = 64

T = TypeVar("T")


def _bad(what: str) -> RemoteProtocolError:
    return RemoteProtocolError(f"The message of the other node is not valid: {what}.")


def _text(value: str, name: str) -> str:
    if len(value) > TEXT_MAX:
        raise _bad(f"{name} has {len(value)} characters, and at most {TEXT_MAX} are allowed")
    return value


def _id(value: bytes, name: str) -> UUID:
    if len(value) != 16:
        raise _bad(f"{name} has {len(value)} bytes instead of 16")
    return uuid_of(value)


def _node(value: int, name: str = "the node id") -> int:
    if value < 0:
        raise _bad(f"{name} is {value}")
    return value


def _code(value: int) -> ErrorCode:
    try:
        return ErrorCode(value)
    except ValueError:
        raise _bad(f"there is no error code {value}") from None


# ── Answers that many calls have ──────────────────────────────────────────────────────────────


def write_not_active(value: NotActive) -> pb.NotActive:
    return pb.NotActive() if value.leader is None else pb.NotActive(leader=value.leader)


def read_not_active(message: pb.NotActive) -> NotActive:
    return NotActive(_node(message.leader) if message.HasField("leader") else None)


def write_denied(value: Denied) -> pb.Denied:
    return pb.Denied(code=value.code, sentence=value.sentence[:TEXT_MAX])


def read_denied(message: pb.Denied) -> Denied:
    return Denied(_code(message.code), _text(message.sentence, "a sentence"))


# ── Registration ──────────────────────────────────────────────────────────────────────────────


def write_registration(value: Registration) -> pb.Registration:
    return pb.Registration(
        cluster_id=value.cluster_id,
        broker_id=value.broker_id,
        incarnation=value.incarnation.bytes,
        directory_id=value.directory_id.bytes,
        boot_id=value.boot_id.bytes,
        previous_epoch=value.previous_epoch,
        host=value.host,
        port=value.port,
        internal_host=value.internal_host,
        internal_port=value.internal_port,
        rack=value.rack,
        feature_level_max=value.feature_level_max,
        endpoints=[
            pb.ClientEndpoint(listener=one.listener, host=one.host, port=one.port)
            for one in value.endpoints
        ],
    )


def _port(value: int, name: str) -> int:
    if not 1 <= value <= _PORT_MAX:
        raise _bad(f"the {name} is {value}")
    return value


def _read_endpoints(message: pb.Registration) -> tuple[ClientEndpoint, ...]:
    if len(message.endpoints) > _ENDPOINTS_MAX:
        raise _bad(f"it has {len(message.endpoints)} endpoints")
    return tuple(
        ClientEndpoint(
            _text(one.listener, "the name of a listener"),
            _text(one.host, "the host of a listener"),
            _port(one.port, "port of a listener"),
        )
        for one in message.endpoints
    )


def read_registration(message: pb.Registration) -> Registration:
    return Registration(
        cluster_id=_text(message.cluster_id, "the cluster id"),
        broker_id=BrokerId(_node(message.broker_id, "the broker id")),
        incarnation=_id(message.incarnation, "the incarnation"),
        directory_id=_id(message.directory_id, "the directory id"),
        boot_id=_id(message.boot_id, "the boot id"),
        previous_epoch=message.previous_epoch,
        host=_text(message.host, "the host"),
        port=_port(message.port, "port"),
        internal_host=_text(message.internal_host, "the internal host"),
        internal_port=_port(message.internal_port, "internal port"),
        rack=_text(message.rack, "the rack") if message.HasField("rack") else None,
        feature_level_max=message.feature_level_max,
        endpoints=_read_endpoints(message),
    )


def write_registration_answer(value: Registered | NotActive | Denied) -> pb.RegistrationAnswer:
    match value:
        case Registered():
            return pb.RegistrationAnswer(broker_epoch=value.broker_epoch)
        case NotActive():
            return pb.RegistrationAnswer(not_active=write_not_active(value))
        case Denied():
            return pb.RegistrationAnswer(denied=write_denied(value))


def read_registration_answer(message: pb.RegistrationAnswer) -> Registered | NotActive | Denied:
    match message.WhichOneof("answer"):
        case "broker_epoch":
            return Registered(message.broker_epoch)
        case "not_active":
            return read_not_active(message.not_active)
        case "denied":
            return read_denied(message.denied)
        case _:
            raise _bad("it answers nothing")


# ── Heartbeats ────────────────────────────────────────────────────────────────────────────────


def write_beat(value: Beat) -> pb.Beat:
    return pb.Beat(
        broker_id=value.broker_id,
        broker_epoch=value.broker_epoch,
        applied_version=value.applied_version,
        is_recovered=value.is_recovered,
        wants_fence=value.wants_fence,
        wants_shutdown=value.wants_shutdown,
        damaged=[
            pb.DamagedTopic(topic_id=topic_id.bytes, partitions=indexes)
            for topic_id, indexes in value.damaged.items()
        ],
    )


def read_beat(message: pb.Beat) -> Beat:
    return Beat(
        broker_id=BrokerId(_node(message.broker_id, "the broker id")),
        broker_epoch=message.broker_epoch,
        applied_version=message.applied_version,
        is_recovered=message.is_recovered,
        wants_fence=message.wants_fence,
        wants_shutdown=message.wants_shutdown,
        damaged=_read_damaged(message),
    )


def _read_damaged(message: pb.Beat) -> Partitions:
    if sum(1 + len(topic.partitions) for topic in message.damaged) > DAMAGED_MAX:
        raise _bad(f"it names more than {DAMAGED_MAX} damaged partitions")
    damaged: dict[UUID, tuple[int, ...]] = {}
    for topic in message.damaged:
        topic_id, indexes = _id(topic.topic_id, "a topic id"), tuple(topic.partitions)
        is_ascending = all(one < following for one, following in pairwise(indexes))
        if topic_id in damaged or not indexes or indexes[0] < 0 or not is_ascending:
            raise _bad("the damaged partitions are not in order")
        damaged[topic_id] = indexes
    return damaged


def write_beat_answer(value: BeatAnswer | NotActive) -> pb.HeartbeatAnswer:
    if isinstance(value, NotActive):
        return pb.HeartbeatAnswer(not_active=write_not_active(value))
    heard = pb.BeatAnswer(
        refusal=value.refusal,
        is_fenced=value.is_fenced,
        may_exit=value.may_exit,
        version=value.version,
    )
    return pb.HeartbeatAnswer(heard=heard)


def read_beat_answer(message: pb.HeartbeatAnswer) -> BeatAnswer | NotActive:
    match message.WhichOneof("answer"):
        case "heard":
            heard = message.heard
            refusal = _code(heard.refusal) if heard.HasField("refusal") else None
            return BeatAnswer(refusal, heard.is_fenced, heard.may_exit, heard.version)
        case "not_active":
            return read_not_active(message.not_active)
        case _:
            raise _bad("it answers nothing")


# ── Proposals and reads ───────────────────────────────────────────────────────────────────────


def write_proposal_answer(
    value: Outcome | NotActive | Denied | Unresolved,
) -> pb.ProposalAnswer:
    match value:
        case Outcome():
            return pb.ProposalAnswer(outcome=encode_outcome(value))
        case NotActive():
            return pb.ProposalAnswer(not_active=write_not_active(value))
        case Denied():
            return pb.ProposalAnswer(denied=write_denied(value))
        case Unresolved():
            sentence = value.sentence[:TEXT_MAX]
            return pb.ProposalAnswer(unresolved=pb.Unresolved(sentence=sentence))


def read_proposal_answer(
    message: pb.ProposalAnswer,
) -> Outcome | NotActive | Denied | Unresolved:
    match message.WhichOneof("answer"):
        case "outcome":
            try:
                return decode_outcome(message.outcome)
            except CorruptionError as error:
                raise _bad(str(error).rstrip(".")) from None
        case "not_active":
            return read_not_active(message.not_active)
        case "denied":
            return read_denied(message.denied)
        case "unresolved":
            return Unresolved(_text(message.unresolved.sentence, "a sentence"))
        case _:
            raise _bad("it answers nothing")


def write_version_answer(value: int | NotActive) -> pb.VersionAnswer:
    if isinstance(value, NotActive):
        return pb.VersionAnswer(not_active=write_not_active(value))
    return pb.VersionAnswer(version=value)


def read_version_answer(message: pb.VersionAnswer) -> int | NotActive:
    match message.WhichOneof("answer"):
        case "version":
            return message.version
        case "not_active":
            return read_not_active(message.not_active)
        case _:
            raise _bad("it answers nothing")


# ── The quorum ────────────────────────────────────────────────────────────────────────────────


def write_quorum_answer(value: QuorumView | NotActive) -> pb.QuorumAnswer:
    if isinstance(value, NotActive):
        return pb.QuorumAnswer(not_active=write_not_active(value))
    status = value.status
    quorum = pb.Quorum(
        node_id=status.node_id,
        standing=status.standing.value,
        role=status.role.value,
        term=status.term,
        leader=status.leader,
        voters=status.voters,
        first_index=status.first_index,
        last_index=status.last_index,
        commit_index=status.commit_index,
        applied_index=status.applied_index,
        acknowledged=status.acknowledged,
        halted=None if status.halted is None else status.halted[:TEXT_MAX],
        observers=value.observers,
        admitted={node: directory or "" for node, directory in status.admitted.items()},
        trouble=None if status.trouble is None else status.trouble[:TEXT_MAX],
    )
    return pb.QuorumAnswer(quorum=quorum)


def read_quorum_answer(message: pb.QuorumAnswer) -> QuorumView | NotActive:
    match message.WhichOneof("answer"):
        case "quorum":
            return _read_quorum(message.quorum)
        case "not_active":
            return read_not_active(message.not_active)
        case _:
            raise _bad("it answers nothing")


def _read_quorum(message: pb.Quorum) -> QuorumView:
    try:
        standing, role = Standing(message.standing), Role(message.role)
    except ValueError as error:
        raise _bad(str(error)[:TEXT_MAX]) from None
    admitted = {
        node: _text(directory, "a directory id") or None
        for node, directory in _bounded(message.admitted).items()
    }
    status = QuorumStatus(
        node_id=_node(message.node_id),
        standing=standing,
        role=role,
        term=message.term,
        leader=_node(message.leader) if message.HasField("leader") else None,
        voters=tuple(_bounded(dict.fromkeys(message.voters))),
        first_index=message.first_index,
        last_index=message.last_index,
        commit_index=message.commit_index,
        applied_index=message.applied_index,
        acknowledged=_bounded(message.acknowledged),
        halted=_text(message.halted, "a sentence") if message.HasField("halted") else None,
        admitted=admitted,
        trouble=_text(message.trouble, "a sentence") if message.HasField("trouble") else None,
    )
    return QuorumView(status, _bounded(message.observers))


def _bounded(by_node: Mapping[int, T]) -> dict[int, T]:
    if len(by_node) > VOTERS_MAX:
        raise _bad(f"it names {len(by_node)} nodes")
    return {_node(node): value for node, value in by_node.items()}


# ── News ──────────────────────────────────────────────────────────────────────────────────────


def write_news(news: News) -> Iterator[pb.NewsPart]:
    """Yield the parts in which a piece of metadata travels; at least one."""
    data, size = memoryview(news.data), len(news.data)
    for start in range(0, max(size, 1), PART_BYTES):
        part = data[start : start + PART_BYTES]
        yield pb.NewsPart(
            version=news.version,
            is_image=news.is_image,
            data=bytes(part),
            left=size - start - len(part),
        )


class NewsReader:
    """Puts the parts of pieces of metadata together, one piece after the other."""

    __slots__ = ("_data", "_left", "_of")

    def __init__(self) -> None:
        self._data = bytearray()
        self._of: tuple[int, bool] | None = None
        self._left = 0

    def take(self, part: pb.NewsPart) -> News | None:
        """Take in the next part; return the piece that it completes."""
        of = (part.version, part.is_image)
        if self._of is None:
            if not 0 <= part.left + len(part.data) <= NEWS_BYTES_MAX:
                raise _bad(f"a piece of metadata has {part.left + len(part.data)} bytes")
            self._of, self._left = of, part.left + len(part.data)
        self._left -= len(part.data)
        if self._of != of or part.left != self._left or part.left < 0:
            raise _bad("the parts of a piece of metadata do not fit together")
        if part.left and not part.data:
            raise _bad("a part of a piece of metadata is empty")
        self._data += part.data
        if part.left:
            return None
        data, self._data, self._of = bytes(self._data), bytearray(), None
        return News(data, is_image=part.is_image, version=part.version)


def read_followed(message: pb.Followed) -> tuple[int, bytes]:
    if len(message.digest) > DIGEST_MAX or message.version < -1:
        raise _bad("it follows from a version that cannot be")
    return message.version, message.digest
