"""Where our answers are meant to differ from Kafka's, and why."""

from __future__ import annotations

from typing import Final

from tests.interop.differential.compare import ABSENT, Intended

_BREAKS = "Kafka's handler breaks on it (-1, or no answer at all); a client is told what is wrong"
_REPLICAS = (
    "only nodes are replicas, and they do not ask here: whoever says so is refused (CVE-2018-1288)"
)
_STRICT = "bytes that no client writes are not guessed at: the connection is closed"
_TWICE = "what is asked for twice is done and answered twice; Kafka keeps one, without a word"
_LATER = "only what this node serves is told: the new group protocols and others come later"
_IN_THE_ANSWER = "a topic of the request is in the answer"

_EVERYWHERE: Final = (
    Intended("*", "*.error_message", "a refusal says in words what is wrong", kafka=ABSENT),
    Intended("ApiVersions: *", "*.api_keys.*", _LATER, ours=ABSENT),
    Intended("ApiVersions: *", "*_features.*", _LATER, ours=ABSENT),
    Intended(
        "ApiVersions: *",
        "*.api_keys.22",
        "two phases are served (KIP-939); Kafka 4.3 has them, and does not tell",
        ours="0-6",
        kafka="0-5",
    ),
)

_BYTES: Final = (
    Intended("*: changed at random", "*", _STRICT, ours="closed", kafka="answered"),
    *(
        Intended(case, "0", _STRICT, ours="closed")
        for case in (
            "Header: client id that is not UTF-8*",
            "Header: a negative number of tags",
            "Header: a tag twice",
            "Header: tags out of order",
            "Primitives: InitProducerId with a string of length -2",
            "Primitives: Produce 9 with records longer than the frame",
            "Primitives: Produce with records of length -2",
            "Primitives: a tag twice in the body",
            "Primitives: array length -2",
            "Primitives: compact array of 4294967294",
            "Primitives: *string that is not UTF-8",
            "Primitives: string with an overlong encoding",
            "Primitives: tags out of order in the body",
        )
    ),
    *(
        Intended(case, "0", "64 tags are more than any client sends", ours="closed")
        for case in ("Header: 65 unknown tags", "Primitives: 65 unknown tags in the body")
    ),
)

_PRODUCE: Final = (
    Intended(
        "Produce: *",
        "*.log_start_offset",
        "with a refusal nothing is said about the log; clients look at it only with"
        " UNKNOWN_PRODUCER_ID, which this node never answers",
        ours=-1,
        kafka=0,
    ),
    Intended(
        "Produce: *",
        "*.record_errors",
        "a batch is refused as a whole, and the sentence says why",
        ours=[],
    ),
    Intended("Produce: records null", "0", _BREAKS, kafka="no answer"),
    Intended("Produce: a partition twice", "0.responses.0.partition_responses", _TWICE),
    Intended("Produce: a topic twice, *", "0.responses", _TWICE),
    Intended("Produce: no partitions", "0.responses", _IN_THE_ANSWER, kafka=[]),
    Intended(
        "Produce: a duplicate gets its first offset",
        "*.log_append_time",
        "the append time is told where it is the record's time, and nowhere else",
        ours=ABSENT,
    ),
    Intended(
        "Produce: a batch and half a batch",
        "0.responses.0.partition_responses.0.*",
        "bytes that would be lost without a word are refused",
        ours=frozenset({"87 invalid_record", -1}),
    ),
    Intended(
        "Produce: a producer id with epoch -1",
        "0.responses.0.partition_responses.0.*",
        "-1 says that there is no producer id, so a batch with one cannot be meant",
        ours=frozenset({"47 invalid_producer_epoch", -1}),
    ),
)

_FETCH: Final = (
    Intended(
        "Fetch: *",
        "*.session_id",
        "there are no fetch sessions: 0 says so, and clients go on with full requests",
        ours=0,
        kafka="<session id>",
    ),
    Intended(
        "Fetch: *",
        "*.aborted_transactions",
        "no list and an empty list say the same; Kafka sends now one, now the other",
        ours=ABSENT,
        kafka=[],
    ),
    Intended("Fetch: a partition twice", "0.responses.0.partitions", _TWICE),
    Intended("Fetch: max_bytes 1 for two partitions", "0.responses.0.partitions", _TWICE),
    Intended(
        "Fetch: no partitions in a topic",
        "0.responses",
        "a topic of the request is in the answer",
        kafka=[],
    ),
    Intended("Fetch: isolation level *", "*.error_code", _BREAKS, ours="42 invalid_request"),
    Intended("Fetch: isolation level *", "0.responses", _BREAKS, kafka=[]),
    Intended("Fetch: *max_bytes -1", "*error_code", _BREAKS, ours="4 invalid_fetch_size"),
    Intended("Fetch: replica *", "*error_code", _REPLICAS, ours="31 cluster_authorization_failed"),
    Intended("Fetch: replica state *", "*.current_leader", _REPLICAS, ours=ABSENT),
)

_OFFSETS: Final = (
    Intended("ListOffsets: isolation level *", "*.error_code", _BREAKS, ours="42 invalid_request"),
    *(
        Intended(
            f"{api}: replica id *",
            "*.partitions.0.*",
            _REPLICAS,
            ours=frozenset({"31 cluster_authorization_failed", -1}),
        )
        for api in ("ListOffsets", "OffsetForLeaderEpoch")
    ),
    Intended(
        "OffsetForLeaderEpoch: epoch -2",
        "*.partitions.0.*",
        "there is no epoch below 0: Kafka calculates with it all the same",
        ours=-1,
    ),
)

_TOPICS: Final = (
    *(
        Intended(case, "0.results.0.error_code", _BREAKS, ours="44 policy_violation")
        for case in (
            "CreatePartitions: only checked, 1000000000",
            "CreatePartitions: count 2147483647",
        )
    ),
    Intended(
        "CreateTopics: both spellings in one request",
        "0.topics.2.*",
        "Kafka looks only at topics that are there already, and then has two that collide",
    ),
    Intended(
        "CreateTopics: option of old",
        "0.topics.0.*",
        "options that are no longer of use are taken and ignored",
    ),
    Intended(
        "CreateTopics: option preallocate wrong",
        "0.topics.0.*",
        "of an option that is ignored the value is not looked at",
    ),
    Intended(
        "CreateTopics: option with blanks around it",
        "0.topics.0.configs.retention.ms.value",
        "a value is kept as it is understood",
        ours="5",
        kafka=" 5 ",
    ),
    Intended("Metadata: neither name nor id", "*error_code", _BREAKS, ours="42 invalid_request"),
    Intended("DescribeTopicPartitions: an empty name", "0.topics.0.*", _BREAKS),
)

_CONFIGS: Final = (
    *(
        Intended(case, "0.results", "an answer is a hundred times its question: given once")
        for case in ("DescribeConfigs: a resource twice", "Primitives: arrays of empty arrays")
    ),
    *(
        Intended(
            "DescribeConfigs: *",
            f"0.results.0.configs.{option}.synonyms*",
            "synonyms are those of our own table: here the option in milliseconds has the default,"
            " in Kafka the one in hours",
        )
        for option in ("retention.ms", "segment.ms", "segment.jitter.ms")
    ),
    Intended(
        "DescribeConfigs: all options of a topic",
        "0.results.0.configs.*",
        "options for tiered storage, throttles and flushes by number are taken and ignored",
        ours=ABSENT,
    ),
    Intended(
        "DescribeConfigs: all options of a topic",
        "0.results.0.configs.ottla.*",
        "options that Kafka does not have",
        kafka=ABSENT,
    ),
    Intended(
        "DescribeConfigs: all options of a topic",
        "0.results.0.configs.min.insync.replicas.*",
        "2 of 3 replicas by default: an acknowledged record is in two places",
    ),
    Intended(
        "DescribeConfigs: options of a broker",
        "0.results.0.configs.offsets.topic.segment.bytes.*",
        "small segments of the topic of groups are compacted sooner, and soon read by the next"
        " coordinator (ADR 0026)",
    ),
    Intended(
        "DescribeConfigs: all options of all brokers",
        "0.results.0.configs",
        "Kafka writes min.insync.replicas there itself, for its eligible leader replicas",
        ours=[],
    ),
    Intended(
        "IncrementalAlterConfigs: operation *",
        "0.responses.0.error_code",
        _BREAKS,
        ours="42 invalid_request",
    ),
    Intended(
        "ListConfigResources: *",
        "0.config_resources",
        "the loggers of a node are not set over the wire",
    ),
)

_QUORUM: Final = (
    Intended(
        "ApiVersions: *",
        "*_features.ottla.feature.level",
        "which commands our own metadata has; Kafka's level is told beside it",
        kafka=ABSENT,
    ),
    Intended(
        "DescribeQuorum: *",
        "*error_message",
        "where there is no error there is no sentence; Kafka has an empty one",
        ours=ABSENT,
        kafka="",
    ),
    Intended(
        "UpdateFeatures: *",
        "*.error_message",
        "where there is no error there is no sentence; Kafka says NONE",
        ours=ABSENT,
        kafka="NONE",
    ),
    Intended(
        "DescribeQuorum: the metadata",
        "*.replica_directory_id",
        "a voter is known by its disk too; in Kafka only if it may be replaced",
        kafka=ABSENT,
    ),
)

_GROUPS: Final = (
    Intended(
        "FindCoordinator: *",
        "*error_message",
        "where there is no error there is no sentence; Kafka says NONE, or has an empty one",
        ours=ABSENT,
        kafka=frozenset({"NONE", ""}),
    ),
    Intended("OffsetCommit: no partitions", "0.topics", _IN_THE_ANSWER, kafka=[]),
    Intended("OffsetDelete: no partitions", "0.topics", _IN_THE_ANSWER, kafka=[]),
    Intended(
        "OffsetDelete: before all is shared out",
        "0.topics.0.partitions.0.error_code",
        "while a group shares out anew nobody can tell what it will read, so nothing is deleted"
        " under it; whoever asks again a moment later is served",
        ours="86 group_subscribed_to_topic",
        kafka="0 none",
    ),
    Intended(
        "LeaveGroup: a member that was given an id",
        "1.groups.0.group_state",
        "a group that never had a member nor an offset is forgotten at once, and not after a while:"
        " strangers may name as many as they like",
        ours="Dead",
        kafka="Empty",
    ),
)

INTENDED: Final[tuple[Intended, ...]] = (
    *_EVERYWHERE,
    *_BYTES,
    *_PRODUCE,
    *_FETCH,
    *_OFFSETS,
    *_TOPICS,
    *_CONFIGS,
    *_QUORUM,
    *_GROUPS,
)
