"""One harmless request of each API: what the cases about headers and bytes are made from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ottla.proto.kafka.apis import (
    ALTER_CONFIGS,
    API_VERSIONS,
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_GROUPS,
    DELETE_RECORDS,
    DELETE_TOPICS,
    DESCRIBE_CLUSTER,
    DESCRIBE_CONFIGS,
    DESCRIBE_GROUPS,
    DESCRIBE_LOG_DIRS,
    DESCRIBE_PRODUCERS,
    DESCRIBE_QUORUM,
    DESCRIBE_TOPIC_PARTITIONS,
    ELECT_LEADERS,
    FETCH,
    FIND_COORDINATOR,
    HEARTBEAT,
    INCREMENTAL_ALTER_CONFIGS,
    INIT_PRODUCER_ID,
    JOIN_GROUP,
    LEAVE_GROUP,
    LIST_CONFIG_RESOURCES,
    LIST_GROUPS,
    LIST_OFFSETS,
    METADATA,
    OFFSET_COMMIT,
    OFFSET_DELETE,
    OFFSET_FETCH,
    OFFSET_FOR_LEADER_EPOCH,
    PRODUCE,
    SYNC_GROUP,
    UNREGISTER_BROKER,
    UPDATE_FEATURES,
    ApiRow,
)
from tests.hostile.transaction_requests import requests_of
from tests.interop.differential.messages import Fields

MISSING: Final = "missing"
STRANGER: Final = "stranger"

# Each asks about a topic that is not there or changes nothing, so any case may send it.
EXAMPLES: Final[Mapping[ApiRow, Fields]] = {
    PRODUCE: {
        "transactional_id": None,
        "acks": -1,
        "timeout": 1000,
        "topic_data": [
            {"name": MISSING, "topic_id": None, "partition_data": [{"index": 0, "records": b"x"}]}
        ],
    },
    FETCH: {
        "replica_id": -1,
        "max_wait": 0,
        "min_bytes": 0,
        "max_bytes": 1000,
        "isolation_level": 0,
        "session_id": 0,
        "session_epoch": -1,
        "topics": [
            {
                "topic": MISSING,
                "topic_id": None,
                "partitions": [
                    {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000},
                ],
            }
        ],
        "forgotten_topics_data": [],
    },
    LIST_OFFSETS: {
        "replica_id": -1,
        "isolation_level": 0,
        "timeout": 1000,
        "topics": [
            {"name": MISSING, "partitions": [{"partition_index": 0, "timestamp": -1}]},
        ],
    },
    METADATA: {
        "topics": [{"name": MISSING, "topic_id": None}],
        "allow_auto_topic_creation": False,
        "include_cluster_authorized_operations": False,
        "include_topic_authorized_operations": False,
    },
    API_VERSIONS: {"client_software_name": "ottla", "client_software_version": "1"},
    CREATE_TOPICS: {"topics": [], "timeout": 1000},
    DELETE_TOPICS: {"topic_names": [], "topics": [], "timeout": 1000},
    DELETE_RECORDS: {
        "topics": [{"name": MISSING, "partitions": [{"partition_index": 0, "offset": 0}]}],
        "timeout": 1000,
    },
    INIT_PRODUCER_ID: {"transactional_id": None, "transaction_timeout": 1000},
    OFFSET_FOR_LEADER_EPOCH: {
        "replica_id": -1,
        "topics": [{"topic": MISSING, "partitions": [{"partition": 0, "leader_epoch": 0}]}],
    },
    DESCRIBE_CONFIGS: {
        "resources": [
            {"resource_type": 2, "resource_name": MISSING, "configuration_keys": None},
        ],
        "include_synonyms": False,
    },
    ALTER_CONFIGS: {"resources": [], "validate_only": False},
    DESCRIBE_LOG_DIRS: {"topics": [{"topic": MISSING, "partitions": [0]}]},
    CREATE_PARTITIONS: {"topics": [], "timeout": 1000, "validate_only": False},
    INCREMENTAL_ALTER_CONFIGS: {"resources": [], "validate_only": False},
    ELECT_LEADERS: {
        "election_type": 0,
        "topic_partitions": [{"topic": MISSING, "partitions": [0]}],
        "timeout": 1000,
    },
    DESCRIBE_QUORUM: {
        "topics": [{"topic_name": MISSING, "partitions": [{"partition_index": 0}]}],
    },
    UPDATE_FEATURES: {"feature_updates": [], "validate_only": False, "timeout": 1000},
    DESCRIBE_CLUSTER: {
        "include_cluster_authorized_operations": False,
        "include_fenced_brokers": False,
    },
    DESCRIBE_PRODUCERS: {"topics": [{"name": MISSING, "partition_indexes": [0]}]},
    UNREGISTER_BROKER: {"broker_id": 77},
    LIST_CONFIG_RESOURCES: {"resource_types": [4]},
    DESCRIBE_TOPIC_PARTITIONS: {
        "topics": [{"name": MISSING}],
        "response_partition_limit": 10,
        "cursor": None,
    },
    OFFSET_COMMIT: {
        "group_id": MISSING,
        "generation_id_or_member_epoch": 1,
        "member_id": STRANGER,
        "group_instance_id": None,
        "topics": [
            {
                "name": MISSING,
                "topic_id": None,
                "partitions": [
                    {"partition_index": 0, "committed_offset": 1, "committed_metadata": "m"}
                ],
            }
        ],
    },
    OFFSET_FETCH: {
        "group_id": MISSING,
        "topics": [{"name": MISSING, "partition_indexes": [0]}],
        "groups": [
            {
                "group_id": MISSING,
                "topics": [{"name": MISSING, "topic_id": None, "partition_indexes": [0]}],
            }
        ],
    },
    FIND_COORDINATOR: {"key": MISSING, "key_type": 0, "coordinator_keys": [MISSING]},
    JOIN_GROUP: {
        "group_id": MISSING,
        "session_timeout": 10_000,
        "rebalance_timeout": 10_000,
        "member_id": STRANGER,
        "group_instance_id": None,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b"x"}],
    },
    HEARTBEAT: {"group_id": MISSING, "generation_id": 1, "member_id": STRANGER},
    LEAVE_GROUP: {
        "group_id": MISSING,
        "member_id": STRANGER,
        "members": [{"member_id": STRANGER}],
    },
    SYNC_GROUP: {
        "group_id": MISSING,
        "generation_id": 1,
        "member_id": STRANGER,
        "protocol_type": "consumer",
        "protocol_name": "range",
        "assignments": [{"member_id": STRANGER, "assignment": b"x"}],
    },
    DESCRIBE_GROUPS: {"groups": [MISSING], "include_authorized_operations": False},
    LIST_GROUPS: {"states_filter": [], "types_filter": []},
    DELETE_GROUPS: {"groups_names": [MISSING]},
    OFFSET_DELETE: {
        "group_id": MISSING,
        "topics": [{"name": MISSING, "partitions": [{"partition_index": 0}]}],
    },
    **requests_of(MISSING),
}
