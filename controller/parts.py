"""The shapes of what commands, deltas, snapshots and outcomes have in common.

Not here: the shapes of those themselves.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from ottla.controller.encoding import decode_topic, encode_topic
from ottla.controller.image import BrokerInfo, ClientEndpoint, ClusterDefaults, TopicInfo
from ottla.controller.outcome import Outcome, PartitionResult, Refusal
from ottla.controller.shapes import (
    BYTES,
    FLAG,
    ID,
    NUMBER,
    TEXT,
    Reader,
    Shape,
    listed,
    mapped,
    optional,
    record,
)
from ottla.proto.errors import ErrorCode

OPTIONS: Final = mapped(TEXT, TEXT)

BROKER: Final = record(
    BrokerInfo,
    broker_id=NUMBER,
    host=TEXT,
    port=NUMBER,
    rack=optional(TEXT),
    broker_epoch=NUMBER,
    incarnation=ID,
    directory_id=ID,
    boot_id=ID,
    is_fenced=FLAG,
    shutdown_version=optional(NUMBER),
    internal_host=TEXT,
    internal_port=NUMBER,
    feature_level_max=NUMBER,
)

ENDPOINTS: Final = listed(record(ClientEndpoint, listener=TEXT, host=TEXT, port=NUMBER))
_ENDPOINTS_OF_BROKERS: Final = mapped(NUMBER, ENDPOINTS)


# Endpoints stand behind everything else, and only where a broker has any. So what was written
# before there were such brokers reads as it did, and what is written without them is the same.


def write_endpoints(out: bytearray, brokers: Iterable[BrokerInfo]) -> None:
    """Write the last part of what tells of brokers: who has several listeners, and where."""
    told: dict[int, tuple[ClientEndpoint, ...]] = {
        one.broker_id: one.endpoints for one in brokers if one.endpoints
    }
    if told:
        _ENDPOINTS_OF_BROKERS.write(out, told)


def read_endpoints(reader: Reader, brokers: Iterable[BrokerInfo]) -> tuple[BrokerInfo, ...]:
    """Return the brokers with what that part tells of them."""
    if not reader.left:
        return tuple(brokers)
    told = dict(_ENDPOINTS_OF_BROKERS.read(reader))
    found = tuple(replace(one, endpoints=told.pop(one.broker_id, ())) for one in brokers)
    if told or not any(one.endpoints for one in found):
        raise reader.garbage("it tells where brokers are that are not in it")
    return found


DEFAULTS: Final = record(
    ClusterDefaults, min_insync_replicas=NUMBER, is_unclean_allowed=FLAG, is_fsync=FLAG
)


def _write_topic(out: bytearray, topic: TopicInfo) -> None:
    TEXT.write(out, topic.name)
    BYTES.write(out, encode_topic(topic))


def _read_topic(reader: Reader) -> TopicInfo:
    return decode_topic(TEXT.read(reader), BYTES.read(reader))


TOPIC: Final[Shape[TopicInfo]] = Shape(_write_topic, _read_topic)


def _read_code(reader: Reader) -> ErrorCode:
    number = reader.number()
    try:
        return ErrorCode(number)
    except ValueError:
        raise reader.garbage(f"there is no error {number}") from None


_CODE: Final[Shape[ErrorCode]] = Shape(lambda out, code: NUMBER.write(out, int(code)), _read_code)
_REFUSAL: Final = record(Refusal, code=_CODE, sentence=TEXT)


def _read_range(reader: Reader) -> range:
    return range(reader.number(), reader.number())


def _write_range(out: bytearray, ids: range) -> None:
    NUMBER.write(out, ids.start)
    NUMBER.write(out, ids.stop)


_RANGE: Final[Shape[range]] = Shape(_write_range, _read_range)

OUTCOME: Final = record(
    Outcome,
    refusal=optional(_REFUSAL),
    topics=listed(TEXT),
    broker_configs=listed(TEXT),
    producer_ids=optional(_RANGE),
    epoch=optional(NUMBER),
    results=listed(
        record(
            PartitionResult,
            topic_id=ID,
            partition=NUMBER,
            refusal=optional(_REFUSAL),
            partition_epoch=NUMBER,
        )
    ),
    is_unknown=FLAG,
    version=optional(NUMBER),
)
