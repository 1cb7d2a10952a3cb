"""The table of Kafka's APIs: one row each, with its number, its versions and where flexible begins.

`API_TABLE` is what a node serves, and what it tells clients that it serves. `KNOWN_APIS` has also
the rows that the codec can read and write, but that no node answers yet, for clients and tests.

Not here: what the fields of a message are (`schema.py` takes that from kio), and who answers
(`node/kafka/dispatch.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


# Compared by identity: there is one object per row, and it is looked up for each request.
@dataclass(frozen=True, slots=True, eq=False)
class ApiRow:
    """One API: Kafka's number for it, and the versions that we read and write."""

    key: int
    # Kafka's name, as in `kafka-broker-api-versions.sh`.
    name: str
    # The name of its folder in kio.
    schema: str
    low: int
    # Inclusive.
    high: int
    # From this version on: compact lengths, tagged fields, header v2. None: never.
    flexible_from: int | None
    # What ApiVersions tells, where it is less than what is served.
    advertised_low: int | None = None
    served: bool = True

    def speaks(self, version: int) -> bool:
        return self.low <= version <= self.high

    def is_flexible(self, version: int) -> bool:
        return self.flexible_from is not None and version >= self.flexible_from

    def __repr__(self) -> str:
        return f"<{self.name} {self.low}–{self.high}>"


# librdkafka before 2.x takes a node that does not list Produce 0 for one without Produce
# (KAFKA-18659), so 0 is told although only 3 and up are served.
PRODUCE: Final = ApiRow(0, "Produce", "produce", 3, 13, 9, advertised_low=0)
FETCH: Final = ApiRow(1, "Fetch", "fetch", 4, 18, 12)
LIST_OFFSETS: Final = ApiRow(2, "ListOffsets", "list_offsets", 1, 11, 6)
METADATA: Final = ApiRow(3, "Metadata", "metadata", 0, 13, 9)
OFFSET_COMMIT: Final = ApiRow(8, "OffsetCommit", "offset_commit", 2, 10, 8)
OFFSET_FETCH: Final = ApiRow(9, "OffsetFetch", "offset_fetch", 1, 10, 6)
FIND_COORDINATOR: Final = ApiRow(10, "FindCoordinator", "find_coordinator", 0, 6, 3)
JOIN_GROUP: Final = ApiRow(11, "JoinGroup", "join_group", 0, 9, 6)
HEARTBEAT: Final = ApiRow(12, "Heartbeat", "heartbeat", 0, 4, 4)
LEAVE_GROUP: Final = ApiRow(13, "LeaveGroup", "leave_group", 0, 5, 4)
SYNC_GROUP: Final = ApiRow(14, "SyncGroup", "sync_group", 0, 5, 4)
DESCRIBE_GROUPS: Final = ApiRow(15, "DescribeGroups", "describe_groups", 0, 6, 5)
LIST_GROUPS: Final = ApiRow(16, "ListGroups", "list_groups", 0, 5, 3)
API_VERSIONS: Final = ApiRow(18, "ApiVersions", "api_versions", 0, 4, 3)
CREATE_TOPICS: Final = ApiRow(19, "CreateTopics", "create_topics", 2, 7, 5)
DELETE_TOPICS: Final = ApiRow(20, "DeleteTopics", "delete_topics", 1, 6, 4)
DELETE_RECORDS: Final = ApiRow(21, "DeleteRecords", "delete_records", 0, 2, 2)
# Version 6 is that of two phases (KIP-939); a Kafka 4.3 node has it, and does not tell it.
INIT_PRODUCER_ID: Final = ApiRow(22, "InitProducerId", "init_producer_id", 0, 6, 2)
OFFSET_FOR_LEADER_EPOCH: Final = ApiRow(
    23, "OffsetForLeaderEpoch", "offset_for_leader_epoch", 2, 4, 4
)
ADD_PARTITIONS_TO_TXN: Final = ApiRow(24, "AddPartitionsToTxn", "add_partitions_to_txn", 0, 5, 3)
ADD_OFFSETS_TO_TXN: Final = ApiRow(25, "AddOffsetsToTxn", "add_offsets_to_txn", 0, 4, 3)
END_TXN: Final = ApiRow(26, "EndTxn", "end_txn", 0, 5, 3)
WRITE_TXN_MARKERS: Final = ApiRow(27, "WriteTxnMarkers", "write_txn_markers", 1, 2, 1)
TXN_OFFSET_COMMIT: Final = ApiRow(28, "TxnOffsetCommit", "txn_offset_commit", 0, 5, 3)
DESCRIBE_CONFIGS: Final = ApiRow(32, "DescribeConfigs", "describe_configs", 1, 4, 4)
ALTER_CONFIGS: Final = ApiRow(33, "AlterConfigs", "alter_configs", 0, 2, 2)
DESCRIBE_LOG_DIRS: Final = ApiRow(35, "DescribeLogDirs", "describe_log_dirs", 1, 5, 2)
CREATE_PARTITIONS: Final = ApiRow(37, "CreatePartitions", "create_partitions", 0, 3, 2)
DELETE_GROUPS: Final = ApiRow(42, "DeleteGroups", "delete_groups", 0, 2, 2)
ELECT_LEADERS: Final = ApiRow(43, "ElectLeaders", "elect_leaders", 0, 2, 2)
INCREMENTAL_ALTER_CONFIGS: Final = ApiRow(
    44, "IncrementalAlterConfigs", "incremental_alter_configs", 0, 1, 1
)
OFFSET_DELETE: Final = ApiRow(47, "OffsetDelete", "offset_delete", 0, 0, None)
DESCRIBE_QUORUM: Final = ApiRow(55, "DescribeQuorum", "describe_quorum", 0, 2, 0)
UPDATE_FEATURES: Final = ApiRow(57, "UpdateFeatures", "update_features", 0, 2, 0)
DESCRIBE_CLUSTER: Final = ApiRow(60, "DescribeCluster", "describe_cluster", 0, 2, 0)
DESCRIBE_PRODUCERS: Final = ApiRow(61, "DescribeProducers", "describe_producers", 0, 0, 0)
UNREGISTER_BROKER: Final = ApiRow(64, "UnregisterBroker", "unregister_broker", 0, 0, 0)
DESCRIBE_TRANSACTIONS: Final = ApiRow(65, "DescribeTransactions", "describe_transactions", 0, 0, 0)
LIST_TRANSACTIONS: Final = ApiRow(66, "ListTransactions", "list_transactions", 0, 2, 0)
LIST_CONFIG_RESOURCES: Final = ApiRow(74, "ListConfigResources", "list_config_resources", 0, 1, 0)
DESCRIBE_TOPIC_PARTITIONS: Final = ApiRow(
    75, "DescribeTopicPartitions", "describe_topic_partitions", 0, 0, 0
)


def _later(
    key: int, name: str, schema: str, low: int, high: int, flexible_from: int | None
) -> ApiRow:
    return ApiRow(key, name, schema, low, high, flexible_from, served=False)


SASL_HANDSHAKE: Final = _later(17, "SaslHandshake", "sasl_handshake", 0, 1, None)
DESCRIBE_ACLS: Final = _later(29, "DescribeAcls", "describe_acls", 1, 3, 2)
CREATE_ACLS: Final = _later(30, "CreateAcls", "create_acls", 1, 3, 2)
DELETE_ACLS: Final = _later(31, "DeleteAcls", "delete_acls", 1, 3, 2)
ALTER_REPLICA_LOG_DIRS: Final = _later(34, "AlterReplicaLogDirs", "alter_replica_log_dirs", 1, 2, 2)
SASL_AUTHENTICATE: Final = _later(36, "SaslAuthenticate", "sasl_authenticate", 0, 2, 2)
ALTER_PARTITION_REASSIGNMENTS: Final = _later(
    45, "AlterPartitionReassignments", "alter_partition_reassignments", 0, 1, 0
)
LIST_PARTITION_REASSIGNMENTS: Final = _later(
    46, "ListPartitionReassignments", "list_partition_reassignments", 0, 0, 0
)
DESCRIBE_CLIENT_QUOTAS: Final = _later(
    48, "DescribeClientQuotas", "describe_client_quotas", 0, 1, 1
)
ALTER_CLIENT_QUOTAS: Final = _later(49, "AlterClientQuotas", "alter_client_quotas", 0, 1, 1)
CONSUMER_GROUP_HEARTBEAT: Final = _later(
    68, "ConsumerGroupHeartbeat", "consumer_group_heartbeat", 0, 1, 0
)
CONSUMER_GROUP_DESCRIBE: Final = _later(
    69, "ConsumerGroupDescribe", "consumer_group_describe", 0, 1, 0
)

# By key, as clients show it.
KNOWN_APIS: Final[tuple[ApiRow, ...]] = tuple(
    sorted((row for row in vars().values() if isinstance(row, ApiRow)), key=lambda row: row.key)
)
API_TABLE: Final[tuple[ApiRow, ...]] = tuple(row for row in KNOWN_APIS if row.served)
SERVED_BY_KEY: Final[dict[int, ApiRow]] = {row.key: row for row in API_TABLE}
