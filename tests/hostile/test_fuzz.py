"""Mutated real requests of every API and version, sent to a live node.

No crash, no hang, no growth of memory, no bug in the log, nobody else notices, and the data
directory is sound when it is over. The decoders alone are fuzzed in `tests/unit/proto/kafka`.
"""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ottla.proto.errors import ErrorCode, RemoteProtocolError
from ottla.proto.kafka import apis
from ottla.proto.kafka.apis import API_TABLE, API_VERSIONS, FETCH, PRODUCE, ApiRow
from ottla.proto.kafka.encode import encode_request
from ottla.proto.kafka.fetch import decode_fetch
from ottla.proto.kafka.framing import read_request_head, request_frame
from ottla.proto.records.header import HEADER_SIZE, seal
from tests.hostile.stage import (
    DEADLINE_S,
    EMPTY,
    FILLED,
    GROWTH_MAX,
    MISSING,
    Bystander,
    Closed,
    Target,
    batch,
    create,
    fetch_fields,
    list_fields,
    metadata_fields,
    produce_fields,
    target,
)
from tests.hostile.transaction_requests import requests_of
from tests.integration.commands import verify
from tests.portion import portion

pytestmark = pytest.mark.integration

QUICK: Final = 1_500
LONG: Final = 40_000
# The topic that is written to, cut and configured. Far from FILLED, which the bystander reads.
TARGET: Final = "zzzzzzzzzz"
PING: Final = 0x50494E47
VERSIONS: Final = [(row, version) for row in API_TABLE for version in range(row.low, row.high + 1)]
_SIZE: Final = struct.Struct(">i")


def _resource(**more: Any) -> list[dict[str, Any]]:
    return [{"resource_type": 2, "resource_name": TARGET, **more}]


def _option(**more: Any) -> dict[str, Any]:
    return {"name": "retention.ms", "value": "86400000", **more}


_MEMBER: Final = {"group_id": TARGET, "member_id": "nobody", "group_instance_id": None}
_OFFSET: Final = {
    "partition_index": 0,
    "committed_offset": 1,
    "committed_leader_epoch": -1,
    "committed_metadata": "text",
}
_PLACES: Final = {"name": TARGET, "topic_id": UUID(int=0), "partition_indexes": [0]}
# Of members that are not there: nobody waits for others.
GROUP_REQUESTS: Final[Mapping[ApiRow, dict[str, Any]]] = {
    apis.OFFSET_COMMIT: {
        **_MEMBER,
        "member_id": "",
        "generation_id_or_member_epoch": -1,
        "retention_time": -1,
        "topics": [{"name": TARGET, "topic_id": UUID(int=0), "partitions": [_OFFSET]}],
    },
    apis.OFFSET_FETCH: {
        "group_id": TARGET,
        "topics": [_PLACES],
        "groups": [
            {"group_id": TARGET, "member_id": None, "member_epoch": -1, "topics": [_PLACES]}
        ],
        "require_stable": False,
    },
    apis.FIND_COORDINATOR: {"key": TARGET, "key_type": 0, "coordinator_keys": [TARGET]},
    apis.JOIN_GROUP: {
        **_MEMBER,
        "session_timeout": 10_000,
        "rebalance_timeout": 10_000,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b"m"}],
        "reason": None,
    },
    apis.HEARTBEAT: {**_MEMBER, "generation_id": 1},
    apis.LEAVE_GROUP: {
        **_MEMBER,
        "members": [{"member_id": "nobody", "group_instance_id": None, "reason": None}],
    },
    apis.SYNC_GROUP: {
        **_MEMBER,
        "generation_id": 1,
        "protocol_type": "consumer",
        "protocol_name": "range",
        "assignments": [{"member_id": "nobody", "assignment": b"a"}],
    },
    apis.DESCRIBE_GROUPS: {"groups": [TARGET], "include_authorized_operations": True},
    apis.LIST_GROUPS: {"states_filter": ["Stable"], "types_filter": ["classic"]},
    apis.DELETE_GROUPS: {"groups_names": [MISSING]},
    apis.OFFSET_DELETE: {
        "group_id": TARGET,
        "topics": [{"name": TARGET, "partitions": [{"partition_index": 0}]}],
    },
}
# One request of each API that does something. Counts of partitions stand beside assignments, so
# that no flipped bit makes a million directories.
REQUESTS: Final[Mapping[ApiRow, dict[str, Any]]] = {
    apis.PRODUCE: produce_fields(TARGET, [(0, batch()), (1, batch(1))], acks=1),
    apis.FETCH: fetch_fields(topic=FILLED),
    apis.LIST_OFFSETS: list_fields(topic=FILLED),
    apis.METADATA: metadata_fields(FILLED, EMPTY, MISSING),
    apis.API_VERSIONS: {"client_software_name": "fuzz", "client_software_version": "1"},
    apis.CREATE_TOPICS: {
        "topics": [
            {
                "name": TARGET,
                "num_partitions": -1,
                "replication_factor": -1,
                "assignments": [{"partition_index": 0, "broker_ids": [1]}],
                "configs": [_option()],
            }
        ],
        "timeout": 1000,
    },
    apis.DELETE_TOPICS: {
        "topic_names": [MISSING],
        "topics": [{"name": MISSING, "topic_id": UUID(int=0)}],
        "timeout": 1000,
    },
    apis.DELETE_RECORDS: {
        "topics": [{"name": TARGET, "partitions": [{"partition_index": 0, "offset": 1}]}],
        "timeout": 1000,
    },
    apis.INIT_PRODUCER_ID: {
        "transactional_id": None,
        "transaction_timeout": 1000,
        "producer_id": -1,
        "producer_epoch": -1,
    },
    apis.OFFSET_FOR_LEADER_EPOCH: {
        "replica_id": -1,
        "topics": [
            {
                "topic": FILLED,
                "partitions": [
                    {"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0},
                ],
            }
        ],
    },
    apis.DESCRIBE_CONFIGS: {
        "resources": _resource(configuration_keys=["retention.ms"]),
        "include_synonyms": True,
        "include_documentation": True,
    },
    apis.ALTER_CONFIGS: {"resources": _resource(configs=[_option()]), "validate_only": False},
    apis.DESCRIBE_LOG_DIRS: {"topics": [{"topic": FILLED, "partitions": [0, 1]}]},
    apis.CREATE_PARTITIONS: {
        "topics": [{"name": TARGET, "count": 3, "assignments": [{"broker_ids": [1]}]}],
        "timeout": 1000,
        "validate_only": False,
    },
    apis.INCREMENTAL_ALTER_CONFIGS: {
        "resources": _resource(configs=[_option(config_operation=0)]),
        "validate_only": False,
    },
    apis.DESCRIBE_CLUSTER: {
        "include_cluster_authorized_operations": True,
        "endpoint_type": 1,
        "include_fenced_brokers": False,
    },
    apis.DESCRIBE_PRODUCERS: {"topics": [{"name": FILLED, "partition_indexes": [0, 1]}]},
    apis.LIST_CONFIG_RESOURCES: {"resource_types": [2, 4]},
    apis.DESCRIBE_TOPIC_PARTITIONS: {
        "topics": [{"name": FILLED}, {"name": MISSING}],
        "response_partition_limit": 10,
        "cursor": None,
    },
    apis.ELECT_LEADERS: {
        "election_type": 0,
        "topic_partitions": [{"topic": FILLED, "partitions": [0, 1]}],
        "timeout": 1000,
    },
    apis.DESCRIBE_QUORUM: {
        "topics": [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}],
    },
    apis.UPDATE_FEATURES: {
        "feature_updates": [
            {
                "feature": "ottla.feature.level",
                "max_version_level": 1,
                "upgrade_type": 1,
                "allow_downgrade": False,
            }
        ],
        "validate_only": False,
        "timeout": 1000,
    },
    apis.UNREGISTER_BROKER: {"broker_id": 1},
    **GROUP_REQUESTS,
    **requests_of(TARGET),
}
assert set(REQUESTS) == set(API_TABLE)


class Mutation(NamedTuple):
    """One change: what, where (a share of the length), and a number or bytes to do it with."""

    kind: str
    place: float
    number: int
    data: bytes


def _flip(data: bytearray, at: int, mutation: Mutation) -> None:
    if at < len(data):
        data[at] ^= 1 << (mutation.number % 8)


def _cut(data: bytearray, at: int, _: Mutation) -> None:
    del data[at:]


def _drop(data: bytearray, at: int, mutation: Mutation) -> None:
    del data[at : at + 1 + mutation.number % 16]


def _splice(data: bytearray, at: int, mutation: Mutation) -> None:
    """Put a piece of a request of another API there."""
    row, version = VERSIONS[mutation.number % len(VERSIONS)]
    data[at:at] = encode_request(row, version, REQUESTS[row])[:40]


def _repeat(data: bytearray, at: int, mutation: Mutation) -> None:
    data[at:at] = data[at : at + 1 + mutation.number % 64]


def _insert(data: bytearray, at: int, mutation: Mutation) -> None:
    data[at:at] = mutation.data


def _overwrite(data: bytearray, at: int, mutation: Mutation) -> None:
    lie = LIES[mutation.number % len(LIES)]
    data[at : at + len(lie)] = lie


def _tags(data: bytearray, at: int, mutation: Mutation) -> None:
    """Say that tagged fields follow, and give some, in order or not."""
    count = mutation.number % 5
    data[at : at + 1] = bytes([count]) + b"".join(
        bytes([tag, len(mutation.data) % 128]) + mutation.data[: len(mutation.data) % 128]
        for tag in range(count)
    )


# Lengths and counts that lie, in both ways of writing them.
LIES: Final = (
    *(_SIZE.pack(value) for value in (-1, -2, 0, 1, 2**31 - 1, -(2**31), 0x7FFF, 0x10000)),
    *(struct.pack(">h", value) for value in (-1, -2, 0, 0x7FFF)),
    *(struct.pack(">q", value) for value in (-1, 2**63 - 1, -(2**63))),
    b"\xff\xff\xff\xff\x0f",
    b"\xff\xff\xff\xff\x07",
    b"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01",
    b"\x00",
    b"\x01",
)
KINDS: Final[Mapping[str, Callable[[bytearray, int, Mutation], None]]] = {
    "flip": _flip,
    "cut": _cut,
    "drop": _drop,
    "splice": _splice,
    "repeat": _repeat,
    "insert": _insert,
    "overwrite": _overwrite,
    "tags": _tags,
}

MUTATIONS: Final = st.builds(
    Mutation,
    kind=st.sampled_from(sorted(KINDS)),
    place=st.floats(0, 1),
    number=st.integers(0, 2**16),
    data=st.binary(max_size=24),
)


class Attack(NamedTuple):
    """A request, how it is changed, and whether its length in front is made to fit."""

    api: tuple[ApiRow, int]
    # Of Produce: the batch is changed and sealed again, so that it gets past its checksum.
    sealed: bool
    in_header: bool
    mutations: list[Mutation]
    length_off: int


ATTACKS: Final = st.builds(
    Attack,
    api=st.sampled_from(VERSIONS),
    sealed=st.booleans(),
    in_header=st.sampled_from([False] * 5 + [True]),
    mutations=st.lists(MUTATIONS, min_size=0, max_size=4),
    length_off=st.sampled_from([0] * 12 + [-1, 1, 1000, 2**27]),
)


def mutated(data: bytes, mutations: list[Mutation], start: int = 0) -> bytes:
    result = bytearray(data)
    for mutation in mutations:
        at = start + int(mutation.place * max(0, len(result) - start))
        KINDS[mutation.kind](result, at, mutation)
    return bytes(result)


def payload_of(attack: Attack) -> bytes:
    """Return the request as it is sent, without its length."""
    row, version = attack.api
    fields = REQUESTS[row]
    if row is PRODUCE and attack.sealed:
        records = bytearray(mutated(batch(), attack.mutations))
        if len(records) >= HEADER_SIZE:
            seal(records)
        fields = produce_fields(TARGET, [(0, bytes(records))], acks=1)
        return request_frame(row, version, 1, "fuzz", encode_request(row, version, fields))[4:]
    body = encode_request(row, version, fields)
    frame = request_frame(row, version, 1, "fuzz", body)[4:]
    return mutated(frame, attack.mutations, 0 if attack.in_header else len(frame) - len(body))


def may_wait(payload: bytes) -> bool:
    """Tell whether this is a fetch that rightly takes long to answer."""
    try:
        head = read_request_head(payload)
        if head.api_key != FETCH.key:
            return False
        request = decode_fetch(head.api_version, memoryview(payload), head.body_at)
    except RemoteProtocolError:
        return False
    return request.min_bytes > 0 and request.max_wait_ms > 0


def carry_out(found: Target, attack: Attack) -> bool:
    """Send it, and a ping behind it; return whether the ping was answered.

    Else the connection was closed. Neither within the deadline is a failure.
    """
    payload = payload_of(attack)
    if may_wait(payload):
        return True
    ping = request_frame(API_VERSIONS, 0, PING, "fuzz", b"")
    length = len(payload) + attack.length_off
    with found.wire() as wire:
        wire.socket.settimeout(DEADLINE_S)
        try:
            wire.send(_SIZE.pack(length) + payload + ping)
            if attack.length_off:
                # The rest that was announced never comes.
                wire.socket.shutdown(socket.SHUT_WR)
        except ConnectionError:
            return False
        while not isinstance(answer := wire.read_frame(), Closed):
            if len(answer) >= 4 and _SIZE.unpack_from(answer)[0] == PING:
                return True
    return False


class Log:
    """What the node has said since it was last asked; its log grows with each refusal."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read_to = 0

    def bugs(self) -> list[str]:
        with self._path.open("rb") as file:
            file.seek(self._read_to)
            said = file.read().decode(errors="replace")
            self._read_to = file.tell()
        return [line for line in said.splitlines() if "request_failed" in line or " bug " in line]


def fuzz(directory: Path, examples: int) -> None:
    with target(directory) as found:
        with found.wire() as wire:
            create(wire, TARGET, partitions=2, ottla_validate_records="true")
        log = Log(found.node.log_path)

        @settings(
            max_examples=examples,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        )
        @given(attack=ATTACKS)
        def attacked(attack: Attack) -> None:
            carry_out(found, attack)
            assert found.node.is_running, found.node.log_tail()
            assert log.bugs() == []

        with contextlib.closing(Bystander(found.node.bootstrap)) as bystander:
            attacked()
            # A mutated DeleteTopics or DeleteRecords is one, and may name any topic.
            code, of_partition = bystander.is_answered()
            assert code == 0
            assert of_partition in (
                ErrorCode.NONE,
                ErrorCode.OFFSET_OUT_OF_RANGE,
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            )
        found.settles(GROWTH_MAX)
        assert log.bugs() == []
        data_dir = found.node.data_dir
        assert found.node.stop() == 0
    verify(data_dir)


def test_every_request_works_before_it_is_mutated(attacked: Target) -> None:
    for row, version in VERSIONS:
        assert carry_out(attacked, Attack((row, version), False, False, [], 0)), (row, version)


def test_mutated_requests_do_no_harm(tmp_path: Path) -> None:
    fuzz(tmp_path, QUICK)


@pytest.mark.long
def test_mutated_requests_do_no_harm_for_long(tmp_path: Path) -> None:
    fuzz(tmp_path, portion(LONG))
