"""Transactions of strangers, late ones and liars: Kafka's codes, and nobody else notices."""

from __future__ import annotations

from typing import Any, Final

import pytest

from ottla.proto.errors import ErrorCode
from ottla.proto.kafka import apis
from tests.builders import produced
from tests.hostile.stage import (
    CLOSED,
    FILLED,
    Target,
    codes_of,
    create,
    ids_of,
    produce_fields,
)
from tests.hostile.transaction_requests import requests_of
from tests.integration.nodes import wait_until

pytestmark = pytest.mark.integration

DEADLINE_S: Final = 20.0


def held(target: Target, name: str) -> tuple[int, int]:
    """Find the coordinator of an id, hold it, and return producer id and epoch."""
    found = {"key_type": 1, "coordinator_keys": [name]}
    asked = {
        "transactional_id": name,
        "transaction_timeout": 60_000,
        "producer_id": -1,
        "producer_epoch": -1,
    }
    told: list[Any] = []

    def is_held() -> bool:
        target.answer(apis.FIND_COORDINATOR, 4, found)
        told[:] = [target.answer(apis.INIT_PRODUCER_ID, 4, asked)]
        return bool(told[0].error_code == 0)

    wait_until(is_held, DEADLINE_S, "somebody coordinates")
    return told[0].producer_id, told[0].producer_epoch


def transactional(producer_id: int, epoch: int, sequence: int = 0) -> bytes:
    return produced(
        b"v",
        producer_id=producer_id,
        producer_epoch=epoch,
        sequence=sequence,
        transactional=True,
    )


def sent(target: Target, version: int, topic: str, data: bytes, **changes: Any) -> Any:
    fields = produce_fields(topic, [(0, data)], **changes)
    if version >= 13:
        with target.wire() as wire:
            fields["topic_data"][0]["topic_id"] = ids_of(wire, topic)[topic]
    return codes_of(target.ask(apis.PRODUCE, version, fields))


@pytest.mark.parametrize(
    ("version", "code"),
    [
        (9, ErrorCode.INVALID_TXN_STATE),
        (10, ErrorCode.INVALID_TXN_STATE),
        (11, ErrorCode.TRANSACTION_ABORTABLE),
        # Since then writing to a partition adds it.
        (12, ErrorCode.NONE),
        (13, ErrorCode.NONE),
    ],
)
def test_a_batch_for_a_partition_that_was_never_added(
    attacked: Target, version: int, code: ErrorCode
) -> None:
    name, topic = f"never-added-{version}", f"never-added-{version}"
    with attacked.wire() as wire:
        create(wire, topic)
    producer_id, epoch = held(attacked, name)
    data = transactional(producer_id, epoch)
    assert sent(attacked, version, topic, data, transactional_id=name) == (code,)
    # The wrong epoch, and somebody else's id, are refused in any version.
    wrong = transactional(producer_id, epoch + 5)
    told = sent(attacked, version, topic, wrong, transactional_id=name)
    assert told == (ErrorCode.INVALID_PRODUCER_EPOCH,)
    other = transactional(producer_id + 1_000_000, epoch)
    told = sent(attacked, version, topic, other, transactional_id=name)
    assert told == (ErrorCode.INVALID_PRODUCER_ID_MAPPING,)
    # An id that nobody holds.
    told = sent(attacked, version, topic, other, transactional_id="never-held")
    assert told == (ErrorCode.INVALID_PRODUCER_ID_MAPPING,)


def test_a_late_batch_of_a_transaction_that_is_over_begins_no_other(attacked: Target) -> None:
    name = topic = "late"
    with attacked.wire() as wire:
        create(wire, topic)
    producer_id, epoch = held(attacked, name)
    data = transactional(producer_id, epoch)
    assert sent(attacked, 12, topic, data, transactional_id=name) == (0,)
    end = {
        "transactional_id": name,
        "producer_id": producer_id,
        "producer_epoch": epoch,
        "committed": False,
    }
    assert attacked.answer(apis.END_TXN, 5, end).error_code == 0
    late = transactional(producer_id, epoch, sequence=1)

    def is_refused() -> bool:
        told = sent(attacked, 12, topic, late, transactional_id=name)
        return bool(told == (ErrorCode.INVALID_PRODUCER_EPOCH,))

    wait_until(is_refused, DEADLINE_S, "the late one is refused")


def test_without_acks_a_stranger_is_hung_up_on(attacked: Target) -> None:
    held(attacked, "without-acks")
    data = transactional(4_000_000, 0)
    told = sent(attacked, 9, FILLED, data, transactional_id="without-acks", acks=0)
    assert told is CLOSED


def test_requests_of_strangers_are_answered_and_change_nothing(attacked: Target) -> None:
    held(attacked, "nobody-else")
    for row, fields in requests_of(FILLED).items():
        for version in range(row.low, row.high + 1):
            answer = attacked.answer(row, version, fields)
            codes = codes_of(answer)
            if row not in (apis.LIST_TRANSACTIONS, apis.ADD_PARTITIONS_TO_TXN):
                assert isinstance(codes, tuple)
                assert any(codes), (row, version, answer)
