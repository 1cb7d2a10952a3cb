"""The table of metrics: one row each, from which docs/generated/METRICS.md is made.

Where Kafka has a metric, it has the name and labels here that Kafka's has after the Prometheus JMX
exporter, so that dashboards and alerts keep working. `ottla_…` is only what Kafka has not.

Not here: values (`metrics.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

Kind = Literal["counter", "gauge", "histogram"]


@dataclass(frozen=True, slots=True)
class MetricRow:
    """One metric: its name, what it can do, a sentence, and the names of its labels."""

    name: str
    kind: Kind
    doc: str
    labels: tuple[str, ...] = ()


_TOPIC: Final = ("topic",)
_LOG: Final = ("topic", "partition")
_LISTENER: Final = ("listener",)
_STREAM: Final = ("stream", "peer")
_BROKER_TOPICS: Final = "kafka_server_brokertopicmetrics_"
_REPLICAS: Final = "kafka_server_replicamanager_"
_CONTROLLER: Final = "kafka_controller_kafkacontroller_"
_REQUESTS: Final = "kafka_network_requestmetrics_"
_SOCKETS: Final = "kafka_server_socket_server_metrics_"
_ELECTIONS: Final = "kafka_controller_controllerstats_"
_RAFT: Final = "kafka_server_raft_metrics_"

MESSAGES_IN: Final = MetricRow(
    f"{_BROKER_TOPICS}messagesin_total", "counter", "Records appended for producers.", _TOPIC
)
BYTES_IN: Final = MetricRow(
    f"{_BROKER_TOPICS}bytesin_total", "counter", "Bytes of batches appended for producers.", _TOPIC
)
BYTES_OUT: Final = MetricRow(
    f"{_BROKER_TOPICS}bytesout_total", "counter", "Bytes of batches sent to consumers.", _TOPIC
)
PRODUCE_REQUESTS: Final = MetricRow(
    f"{_BROKER_TOPICS}totalproducerequests_total",
    "counter",
    "Partitions that Produce requests named.",
    _TOPIC,
)
FETCH_REQUESTS: Final = MetricRow(
    f"{_BROKER_TOPICS}totalfetchrequests_total",
    "counter",
    "Partitions that Fetch requests named.",
    _TOPIC,
)
FAILED_PRODUCE: Final = MetricRow(
    f"{_BROKER_TOPICS}failedproducerequests_total",
    "counter",
    "Partitions of Produce requests that were answered with an error.",
    _TOPIC,
)
FAILED_FETCH: Final = MetricRow(
    f"{_BROKER_TOPICS}failedfetchrequests_total",
    "counter",
    "Partitions of Fetch requests that were answered with an error.",
    _TOPIC,
)
REPLICATION_BYTES_IN: Final = MetricRow(
    f"{_BROKER_TOPICS}replicationbytesin_total",
    "counter",
    "Bytes that came from leaders for the replicas that follow here, with what is around batches.",
)
REPLICATION_BYTES_OUT: Final = MetricRow(
    f"{_BROKER_TOPICS}replicationbytesout_total",
    "counter",
    "Bytes that were sent to followers of what is led here, with what is around batches.",
)
REQUESTS: Final = MetricRow(
    f"{_REQUESTS}requests_total",
    "counter",
    "Requests that were answered.",
    ("request", "version"),
)
REQUEST_ERRORS: Final = MetricRow(
    f"{_REQUESTS}errors_total",
    "counter",
    "Error codes in answers. Kafka also counts NONE; here only errors are counted.",
    ("request", "error"),
)
REQUEST_TIME: Final = MetricRow(
    f"{_REQUESTS}totaltimems",
    "histogram",
    "Milliseconds from the last byte of a request to its answer, waiting included.",
    ("request",),
)
REQUEST_QUEUE_TIME: Final = MetricRow(
    f"{_REQUESTS}requestqueuetimems",
    "histogram",
    "Milliseconds from the last byte of a request until it was taken up: after those before it.",
    ("request",),
)
LOCAL_TIME: Final = MetricRow(
    f"{_REQUESTS}localtimems",
    "histogram",
    "Milliseconds of work on a Produce or Fetch, until it was answered or began to wait.",
    ("request",),
)
REMOTE_TIME: Final = MetricRow(
    f"{_REQUESTS}remotetimems",
    "histogram",
    "Milliseconds that a Produce waited for the disk and for followers, or a Fetch for bytes.",
    ("request",),
)
CONNECTIONS: Final = MetricRow(
    f"{_SOCKETS}connection_count", "gauge", "Connections of clients that are open.", _LISTENER
)
CONNECTIONS_CREATED: Final = MetricRow(
    f"{_SOCKETS}connection_creation_total", "counter", "Connections that were taken.", _LISTENER
)
CONNECTIONS_CLOSED: Final = MetricRow(
    f"{_SOCKETS}connection_close_total", "counter", "Connections that have ended.", _LISTENER
)
PURGATORY_SIZE: Final = MetricRow(
    "kafka_server_delayedoperationpurgatory_purgatorysize",
    "gauge",
    "Requests that wait: Fetch for bytes, Produce for replicas or the disk.",
    ("delayedOperation",),
)
LEADER_COUNT: Final = MetricRow(f"{_REPLICAS}leadercount", "gauge", "Partitions led here.")
PARTITION_COUNT: Final = MetricRow(f"{_REPLICAS}partitioncount", "gauge", "Replicas kept here.")
OFFLINE_REPLICAS: Final = MetricRow(
    f"{_REPLICAS}offlinereplicacount",
    "gauge",
    "Replicas here that serve nothing: their disk failed, or they may lack what is committed.",
)
UNDER_REPLICATED: Final = MetricRow(
    f"{_REPLICAS}underreplicatedpartitions",
    "gauge",
    "Partitions led here that have fewer in-sync replicas than replicas.",
)
UNDER_MIN_ISR: Final = MetricRow(
    f"{_REPLICAS}underminisrpartitioncount",
    "gauge",
    "Partitions led here that have fewer in-sync replicas than min.insync.replicas.",
)
AT_MIN_ISR: Final = MetricRow(
    f"{_REPLICAS}atminisrpartitioncount",
    "gauge",
    "Partitions led here that have just min.insync.replicas in-sync replicas.",
)
ISR_SHRINKS: Final = MetricRow(
    f"{_REPLICAS}isrshrinks_total",
    "counter",
    "In-sync sets of partitions led here that have lost a member on this leader's word.",
)
ISR_EXPANDS: Final = MetricRow(
    f"{_REPLICAS}isrexpands_total",
    "counter",
    "In-sync sets of partitions led here that have won a member.",
)
FAILED_ISR_UPDATES: Final = MetricRow(
    f"{_REPLICAS}failedisrupdates_total",
    "counter",
    "In-sync sets that the controller refused, or did not answer.",
)
ACTIVE_CONTROLLER: Final = MetricRow(
    f"{_CONTROLLER}activecontrollercount",
    "gauge",
    "1 on the active controller, else 0: the sum over a cluster is 1.",
)
ACTIVE_BROKERS: Final = MetricRow(
    f"{_CONTROLLER}activebrokercount", "gauge", "Brokers that are registered and not fenced."
)
FENCED_BROKERS: Final = MetricRow(
    f"{_CONTROLLER}fencedbrokercount", "gauge", "Brokers that are registered and fenced."
)
GLOBAL_TOPICS: Final = MetricRow(
    f"{_CONTROLLER}globaltopiccount", "gauge", "Topics in the cluster."
)
GLOBAL_PARTITIONS: Final = MetricRow(
    f"{_CONTROLLER}globalpartitioncount", "gauge", "Partitions in the cluster."
)
OFFLINE_PARTITIONS: Final = MetricRow(
    f"{_CONTROLLER}offlinepartitionscount", "gauge", "Partitions without a leader."
)
PREFERRED_IMBALANCE: Final = MetricRow(
    f"{_CONTROLLER}preferredreplicaimbalancecount",
    "gauge",
    "Partitions that are not led by their preferred leader.",
)
UNCLEAN_ELECTIONS: Final = MetricRow(
    f"{_ELECTIONS}uncleanleaderelections_total",
    "counter",
    "Leaders elected that may lack records; counted by the active controller.",
)
ELECTIONS: Final = MetricRow(
    "ottla_controller_leader_elections_total",
    "counter",
    "Partitions that were given another leader; counted by the active controller.",
)
RAFT_LEADER: Final = MetricRow(
    f"{_RAFT}current_leader",
    "gauge",
    "Who leads the quorum, as this voter sees it; -1: nobody, or nobody who was heard lately.",
)
RAFT_EPOCH: Final = MetricRow(f"{_RAFT}current_epoch", "gauge", "The term of the quorum.")
RAFT_STATE: Final = MetricRow(
    f"{_RAFT}current_state", "gauge", "1, and in a label what this voter does.", ("state",)
)
RAFT_HIGH_WATERMARK: Final = MetricRow(
    f"{_RAFT}high_watermark", "gauge", "The last entry of the quorum known to be committed."
)
RAFT_LOG_END: Final = MetricRow(
    f"{_RAFT}log_end_offset", "gauge", "The last entry of this voter's journal."
)
RAFT_VOTERS: Final = MetricRow(f"{_RAFT}number_of_voters", "gauge", "Voters of the quorum.")
LOG_SIZE: Final = MetricRow("kafka_log_log_size", "gauge", "Bytes of a log's segments.", _LOG)
LOG_START: Final = MetricRow(
    "kafka_log_log_logstartoffset", "gauge", "First offset that is kept.", _LOG
)
LOG_END: Final = MetricRow("kafka_log_log_logendoffset", "gauge", "Next offset to write.", _LOG)
LOG_SEGMENTS: Final = MetricRow("kafka_log_log_numlogsegments", "gauge", "Segments of a log.", _LOG)
OFFLINE_DIRECTORIES: Final = MetricRow(
    "kafka_log_logmanager_offlinelogdirectorycount",
    "gauge",
    "1 after the disk has failed: this broker serves nothing from its data directory. Else 0.",
)
LOGS_SIZE: Final = MetricRow("ottla_log_size_bytes", "gauge", "Bytes of all the logs here.")
DISK_FREE: Final = MetricRow(
    "ottla_disk_free_bytes", "gauge", "Bytes that this node can still write where its data is."
)
DISK_SIZE: Final = MetricRow(
    "ottla_disk_size_bytes", "gauge", "Bytes there, free or taken, that this node can use."
)
APPEND_DELAY: Final = MetricRow(
    "ottla_record_append_delay_seconds",
    "histogram",
    "Seconds from the newest timestamp in a batch to its append, at most a day. It holds what "
    "producers took to send it, and by how much their clocks differ from ours.",
)
REPLICATION_LAG: Final = MetricRow(
    "ottla_replication_lag_max",
    "gauge",
    "Records that the slowest follower lacks, of all partitions led here; 0 if none is known to.",
)
FOLLOWER_LAG: Final = MetricRow(
    "ottla_replication_follower_lag",
    "gauge",
    "Records that a follower lacks, in the partition led here of which it lacks most.",
    ("follower",),
)
COMMIT_LAG: Final = MetricRow(
    "ottla_quorum_commit_lag",
    "gauge",
    "Entries of this voter's journal that are not known to be committed.",
)
PROPOSAL_TIME: Final = MetricRow(
    "ottla_quorum_proposal_duration_seconds",
    "histogram",
    "From a proposal at the leader of the quorum until it was committed and applied there.",
)
STREAM_OPEN: Final = MetricRow(
    "ottla_stream_open",
    "gauge",
    "1 while the stream to a node is open, 0 while it is wanted and is not: `replication` to "
    "a leader that is followed, `quorum` to another voter.",
    _STREAM,
)
STREAM_BREAKS: Final = MetricRow(
    "ottla_stream_breaks_total", "counter", "Streams that were open and broke.", _STREAM
)
STREAM_SILENCE: Final = MetricRow(
    "ottla_stream_silence_seconds",
    "gauge",
    "Seconds since something was heard of a node. Voters that do not lead are silent with each "
    "other.",
    _STREAM,
)
VOTER_LAG: Final = MetricRow(
    "ottla_quorum_voter_lag",
    "gauge",
    "Entries that a voter is behind the leader, which alone tells it.",
    ("voter",),
)
QUORUM_DROPS: Final = MetricRow(
    "ottla_quorum_messages_dropped_total",
    "counter",
    "Messages of other voters that were not believed.",
    ("reason",),
)
GROUPS: Final = MetricRow(
    "kafka_coordinator_group_groupmetadatamanager_numgroups",
    "gauge",
    "Groups that this node coordinates, by state.",
    ("state",),
)
GROUP_MEMBERS: Final = MetricRow(
    "ottla_group_members", "gauge", "Members of all groups that this node coordinates."
)
GROUPS_LOADING: Final = MetricRow(
    "ottla_group_partitions_loading",
    "gauge",
    "Partitions of __consumer_offsets that are led here and not read yet: their groups wait.",
)
GROUP_REBALANCES: Final = MetricRow(
    "ottla_group_rebalances_total", "counter", "Rebalances that began, by reason.", ("reason",)
)
GROUP_LAG: Final = MetricRow(
    "kafka_consumergroup_lag",
    "gauge",
    "Offsets between what a group has committed and the high watermark, told by its coordinator "
    "for partitions of which it has a replica itself.",
    ("group", "topic", "partition"),
)
TRANSACTIONS: Final = MetricRow(
    "ottla_transactions",
    "gauge",
    "Transactional ids that this node coordinates, by the state of their transaction.",
    ("state",),
)
TRANSACTION_OLDEST: Final = MetricRow(
    "ottla_transaction_oldest_seconds",
    "gauge",
    "Age of the oldest open transaction that this node coordinates: so long readers of committed "
    "records wait. 0: none is open.",
)
TRANSACTION_MARKERS: Final = MetricRow(
    "ottla_transaction_markers_waiting",
    "gauge",
    "Markers of decided transactions that are not written yet.",
)
TRANSACTIONS_TIMED_OUT: Final = MetricRow(
    "ottla_transactions_timed_out_total",
    "counter",
    "Transactions that were aborted because they took longer than transaction.timeout.ms.",
)
TRANSACTIONS_LOADING: Final = MetricRow(
    "ottla_transaction_partitions_loading",
    "gauge",
    "Partitions of __transaction_state that are led here and not read yet: their ids wait.",
)
METADATA_VERSION: Final = MetricRow(
    "ottla_metadata_version", "gauge", "How much of the cluster's metadata this broker follows."
)
NODE_READY: Final = MetricRow(
    "ottla_node_ready", "gauge", "1 while `/health/ready` says so, else 0."
)
BROKER_FENCED: Final = MetricRow(
    "ottla_broker_fenced", "gauge", "1 while the cluster does not let this broker serve, else 0."
)
FSYNC_TIME: Final = MetricRow(
    "ottla_log_fsync_duration_seconds", "histogram", "How long one sync of a log took."
)
LOOP_DELAY: Final = MetricRow(
    "ottla_event_loop_delay_seconds",
    "histogram",
    "How late the event loop came to a timer: how long everybody had to wait for somebody.",
)
REFUSED: Final = MetricRow(
    "ottla_connections_refused_total", "counter", "Connections that were not taken.", ("reason",)
)
PROTOCOL_ERRORS: Final = MetricRow(
    "ottla_protocol_errors_total",
    "counter",
    "Connections that were closed because the peer broke the protocol.",
    ("reason",),
)
LINES_LOST: Final = MetricRow(
    "ottla_log_lines_lost_total", "counter", "Lines of the node's own log that were not written."
)
BUILD_INFO: Final = MetricRow(
    "ottla_build_info", "gauge", "1, and the version in a label.", ("version",)
)
CPU_SECONDS: Final = MetricRow(
    "process_cpu_seconds_total", "counter", "Processor time of the process, user and system."
)
RESIDENT_BYTES: Final = MetricRow(
    "process_resident_memory_bytes", "gauge", "Memory in use, mapped files included."
)
VIRTUAL_BYTES: Final = MetricRow("process_virtual_memory_bytes", "gauge", "Size of address space.")
STARTED: Final = MetricRow(
    "process_start_time_seconds", "gauge", "When the process started, in seconds since 1970."
)
OPEN_FDS: Final = MetricRow("process_open_fds", "gauge", "Open file descriptors.")
MAX_FDS: Final = MetricRow("process_max_fds", "gauge", "Limit of open file descriptors.")
GC_COLLECTED: Final = MetricRow(
    "python_gc_objects_collected_total",
    "counter",
    "Objects that a collection freed.",
    ("generation",),
)
GC_UNCOLLECTABLE: Final = MetricRow(
    "python_gc_objects_uncollectable_total",
    "counter",
    "Objects it could not free.",
    ("generation",),
)
GC_RUNS: Final = MetricRow(
    "python_gc_collections_total",
    "counter",
    "How often a generation was collected.",
    ("generation",),
)
PYTHON_INFO: Final = MetricRow(
    "python_info", "gauge", "1, and the Python in labels.", ("implementation", "version")
)

METRICS: Final[tuple[MetricRow, ...]] = tuple(
    row for row in globals().copy().values() if isinstance(row, MetricRow)
)
