"""One request of each API of transactions, of a producer that nobody knows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ottla.proto.kafka import apis
from ottla.proto.kafka.apis import ApiRow

STRANGER: Final = "nobody"


def requests_of(topic: str) -> Mapping[ApiRow, dict[str, Any]]:
    producer = {"producer_id": 4_000_000, "producer_epoch": 0}
    known = {"transactional_id": STRANGER, **producer}
    places = [{"name": topic, "partitions": [0]}]
    offset = {
        "partition_index": 0,
        "committed_offset": 1,
        "committed_leader_epoch": -1,
        "committed_metadata": "text",
    }
    marker = {
        **producer,
        "transaction_result": False,
        "topics": [{"name": topic, "partition_indexes": [0]}],
        "coordinator_epoch": 2**30,
        "transaction_version": 0,
    }
    return {
        apis.ADD_PARTITIONS_TO_TXN: {
            "v3_and_below_transactional_id": STRANGER,
            "v3_and_below_producer_id": 4_000_000,
            "v3_and_below_producer_epoch": 0,
            "v3_and_below_topics": places,
            "transactions": [{**known, "verify_only": True, "topics": places}],
        },
        apis.ADD_OFFSETS_TO_TXN: {**known, "group_id": STRANGER},
        apis.END_TXN: {**known, "committed": True},
        apis.WRITE_TXN_MARKERS: {"markers": [marker]},
        apis.TXN_OFFSET_COMMIT: {
            **known,
            "group_id": STRANGER,
            "generation_id": -1,
            "member_id": "",
            "group_instance_id": None,
            "topics": [{"name": topic, "partitions": [offset]}],
        },
        apis.DESCRIBE_TRANSACTIONS: {"transactional_ids": [STRANGER]},
        apis.LIST_TRANSACTIONS: {
            "state_filters": ["Ongoing"],
            "producer_id_filters": [4_000_000],
            "duration_filter": 1,
            "transactional_id_pattern": "(a+)+b",
        },
    }
