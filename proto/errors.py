"""What can go wrong, and the numbers Kafka gives to it.

OttlaError
├── ProtocolError            somebody broke the wire format
│   ├── LocalProtocolError     we did
│   └── RemoteProtocolError    the peer did
├── RequestError             an answer with an ErrorCode; the caller decides what next
│   └── RecordsError           the inside of a sound batch cannot be read
├── StorageError             the disk refused, or returned bytes we did not write
│   └── CorruptionError        bytes are there, and they are not what was written
├── ConfigError              an option is missing, unknown or out of range
└── InvariantError           a bug; never caught below main()

Codes are Kafka's: names may change, numbers may not. An error that lives on one side only
(a client's time-out, say) has no row here.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final


class OttlaError(Exception):
    """The root of everything this project raises on purpose."""


class ProtocolError(OttlaError):
    """Somebody broke the wire format."""


class LocalProtocolError(ProtocolError):
    """We were about to send something that the protocol does not allow."""


class RemoteProtocolError(ProtocolError):
    """The peer sent something that the protocol does not allow."""


class StorageError(OttlaError):
    """The disk refused, or returned bytes we did not write."""


class CorruptionError(StorageError):
    """Bytes are there, and they are not what was written."""


class ConfigError(OttlaError):
    """Options are missing, unknown or out of range: one sentence for each, with what to do."""

    def __init__(self, *problems: str) -> None:
        super().__init__("\n".join(problems))
        self.problems: Final = problems


class InvariantError(OttlaError):
    """A bug. It stops the process and is never caught below main()."""


class ErrorCode(IntEnum):
    """Kafka's error codes, one row each: number, whether to try again, what happened."""

    retriable: bool
    sentence: str

    # Every row gives all three. The defaults let the type checker see that `ErrorCode(6)`, which
    # looks a row up, is a right call.
    def __new__(cls, code: int, retriable: bool = False, sentence: str = "") -> ErrorCode:
        member = int.__new__(cls, code)
        member._value_ = code
        member.retriable = retriable
        member.sentence = sentence
        return member

    UNKNOWN_SERVER_ERROR = -1, False, "The node met an error that has no better name."
    NONE = 0, False, "No error."
    OFFSET_OUT_OF_RANGE = 1, False, "The log does not hold this offset (any more, or yet)."
    CORRUPT_MESSAGE = (
        2,
        True,
        "A batch is damaged: wrong checksum, wrong length, or no key where one is needed.",
    )
    UNKNOWN_TOPIC_OR_PARTITION = 3, True, "This node knows no such topic or partition."
    INVALID_FETCH_SIZE = 4, False, "A fetch asked for a size that makes no sense."
    LEADER_NOT_AVAILABLE = 5, True, "The partition has no leader at the moment."
    NOT_LEADER_OR_FOLLOWER = 6, True, "Another node leads this partition now."
    REQUEST_TIMED_OUT = (
        7,
        True,
        "The time allowed ran out; what was asked may or may not have happened.",
    )
    BROKER_NOT_AVAILABLE = 8, False, "The node asked for is not in the cluster at the moment."
    REPLICA_NOT_AVAILABLE = 9, True, "This node holds no usable replica of the partition."
    MESSAGE_TOO_LARGE = 10, False, "A batch is larger than max.message.bytes allows."
    STALE_CONTROLLER_EPOCH = 11, False, "The order came from a controller that has been replaced."
    OFFSET_METADATA_TOO_LARGE = 12, False, "The text kept beside a committed offset is too long."
    NETWORK_EXCEPTION = 13, True, "The connection broke before the answer came."
    COORDINATOR_LOAD_IN_PROGRESS = (
        14,
        True,
        "The coordinator is still reading its groups from the log.",
    )
    COORDINATOR_NOT_AVAILABLE = 15, True, "Nobody coordinates this group at the moment."
    NOT_COORDINATOR = 16, True, "Another node coordinates this group now."
    INVALID_TOPIC_EXCEPTION = (
        17,
        False,
        "The topic's name is not allowed, or it may not be used this way.",
    )
    RECORD_LIST_TOO_LARGE = 18, False, "A batch does not fit into one segment."
    NOT_ENOUGH_REPLICAS = 19, True, "Too few replicas are in sync, so nothing was appended."
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = (
        20,
        True,
        "It was appended, but then too few replicas stayed in sync.",
    )
    INVALID_REQUIRED_ACKS = 21, False, "acks must be 0, 1 or -1 (all)."
    ILLEGAL_GENERATION = 22, False, "The group has gone on to another generation."
    INCONSISTENT_GROUP_PROTOCOL = (
        23,
        False,
        "The member shares no assignment protocol with the group.",
    )
    INVALID_GROUP_ID = 24, False, "The group's name is empty or not allowed."
    UNKNOWN_MEMBER_ID = 25, False, "The coordinator knows no such member; join again."
    INVALID_SESSION_TIMEOUT = (
        26,
        False,
        "The session time-out is shorter or longer than the node allows.",
    )
    REBALANCE_IN_PROGRESS = 27, False, "The group is rebalancing; join again."
    INVALID_COMMIT_OFFSET_SIZE = 28, False, "The commit is too large to be written as one batch."
    TOPIC_AUTHORIZATION_FAILED = 29, False, "This principal may not do that with this topic."
    GROUP_AUTHORIZATION_FAILED = 30, False, "This principal may not do that with this group."
    CLUSTER_AUTHORIZATION_FAILED = 31, False, "This principal may not do that with the cluster."
    INVALID_TIMESTAMP = 32, False, "A record's timestamp is further from now than the topic allows."
    UNSUPPORTED_SASL_MECHANISM = 33, False, "The node does not offer this SASL mechanism."
    ILLEGAL_SASL_STATE = (
        34,
        False,
        "This request does not fit the present step of the authentication.",
    )
    UNSUPPORTED_VERSION = 35, False, "The node does not speak this version of the request."
    TOPIC_ALREADY_EXISTS = 36, False, "A topic with this name already exists."
    INVALID_PARTITIONS = 37, False, "The number of partitions is not allowed."
    INVALID_REPLICATION_FACTOR = (
        38,
        False,
        "The replication factor is below 1 or above the number of brokers.",
    )
    INVALID_REPLICA_ASSIGNMENT = (
        39,
        False,
        "The list of replicas is empty, repeats a broker or names an unknown one.",
    )
    INVALID_CONFIG = 40, False, "An option is unknown or its value is out of range."
    NOT_CONTROLLER = 41, True, "Another node is the active controller now."
    INVALID_REQUEST = 42, False, "The request contradicts itself or the protocol."
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43, False, "The record format in use cannot do that."
    POLICY_VIOLATION = 44, False, "A rule set by the operator forbids that."
    OUT_OF_ORDER_SEQUENCE_NUMBER = (
        45,
        False,
        "A batch of this producer that should come first is missing.",
    )
    DUPLICATE_SEQUENCE_NUMBER = 46, False, "This batch was appended before."
    INVALID_PRODUCER_EPOCH = 47, False, "A newer instance of this producer is at work."
    INVALID_TXN_STATE = 48, False, "The transaction is not in a state that allows that."
    INVALID_PRODUCER_ID_MAPPING = (
        49,
        False,
        "The producer id is not the one given to this transactional id.",
    )
    INVALID_TRANSACTION_TIMEOUT = (
        50,
        False,
        "The transaction time-out is longer than the node allows.",
    )
    CONCURRENT_TRANSACTIONS = (
        51,
        True,
        "The producer's previous transaction is still being completed.",
    )
    TRANSACTION_COORDINATOR_FENCED = 52, False, "A newer transaction coordinator has taken over."
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = (
        53,
        False,
        "This principal may not use this transactional id.",
    )
    SECURITY_DISABLED = 54, False, "The node runs without the security feature that was asked for."
    OPERATION_NOT_ATTEMPTED = (
        55,
        False,
        "It was not tried, because another part of the request failed.",
    )
    KAFKA_STORAGE_ERROR = 56, True, "The disk under this partition failed."
    LOG_DIR_NOT_FOUND = 57, False, "The node has no such log directory."
    SASL_AUTHENTICATION_FAILED = 58, False, "The credentials were not accepted."
    UNKNOWN_PRODUCER_ID = 59, False, "The partition remembers nothing of this producer."
    REASSIGNMENT_IN_PROGRESS = 60, False, "The partition's replicas are being moved already."
    DELEGATION_TOKEN_AUTH_DISABLED = 61, False, "Delegation tokens are switched off."
    DELEGATION_TOKEN_NOT_FOUND = 62, False, "There is no such delegation token."
    DELEGATION_TOKEN_OWNER_MISMATCH = 63, False, "The delegation token belongs to somebody else."
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = (
        64,
        False,
        "This connection may not ask for delegation tokens.",
    )
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = (
        65,
        False,
        "This principal may not do that with the delegation token.",
    )
    DELEGATION_TOKEN_EXPIRED = 66, False, "The delegation token's time is over."
    INVALID_PRINCIPAL_TYPE = 67, False, "The node does not know this type of principal."
    NON_EMPTY_GROUP = 68, False, "The group still has members."
    GROUP_ID_NOT_FOUND = 69, False, "There is no such group."
    FETCH_SESSION_ID_NOT_FOUND = (
        70,
        True,
        "The node has forgotten this fetch session; begin a new one.",
    )
    INVALID_FETCH_SESSION_EPOCH = (
        71,
        True,
        "The fetch session expected another epoch; begin a new one.",
    )
    LISTENER_NOT_FOUND = (
        72,
        True,
        "The leader has no listener of the name that this client came through.",
    )
    TOPIC_DELETION_DISABLED = 73, False, "This cluster does not allow topics to be deleted."
    FENCED_LEADER_EPOCH = 74, True, "The request names an older leader epoch than this node knows."
    UNKNOWN_LEADER_EPOCH = 75, True, "The request names a newer leader epoch than this node knows."
    UNSUPPORTED_COMPRESSION_TYPE = (
        76,
        False,
        "This version of the request does not allow that compression.",
    )
    STALE_BROKER_EPOCH = (
        77,
        False,
        "The broker has registered again since; this came from its earlier life.",
    )
    OFFSET_NOT_AVAILABLE = (
        78,
        True,
        "A new leader does not know its high watermark for certain yet.",
    )
    MEMBER_ID_REQUIRED = 79, False, "Join again with the member id given in this answer."
    PREFERRED_LEADER_NOT_AVAILABLE = 80, True, "The preferred leader is not up or not in sync."
    GROUP_MAX_SIZE_REACHED = 81, False, "The group has as many members as it may have."
    FENCED_INSTANCE_ID = 82, False, "Another member has joined with the same instance id."
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83, True, "No replica that may lead the partition is up."
    ELECTION_NOT_NEEDED = 84, True, "The partition already has the leader that was asked for."
    NO_REASSIGNMENT_IN_PROGRESS = 85, False, "The partition's replicas are not being moved."
    GROUP_SUBSCRIBED_TO_TOPIC = 86, False, "The group still reads this topic, so its offsets stay."
    INVALID_RECORD = 87, False, "A record breaks a rule of the topic, and no retry will mend it."
    UNSTABLE_OFFSET_COMMIT = 88, True, "A transaction that touches these offsets is not finished."
    THROTTLING_QUOTA_EXCEEDED = 89, True, "The quota is used up; try again later."
    PRODUCER_FENCED = 90, False, "A newer producer has taken over this transactional id."
    RESOURCE_NOT_FOUND = 91, False, "What the request names does not exist."
    DUPLICATE_RESOURCE = 92, False, "What the request would make exists already."
    UNACCEPTABLE_CREDENTIAL = 93, False, "The credential does not meet the node's rules."
    INCONSISTENT_VOTER_SET = 94, False, "The sender and this node disagree about who votes."
    INVALID_UPDATE_VERSION = 95, False, "The feature level asked for is not allowed."
    FEATURE_UPDATE_FAILED = 96, False, "The feature level could not be changed."
    PRINCIPAL_DESERIALIZATION_FAILURE = (
        97,
        False,
        "The principal in a forwarded request cannot be read.",
    )
    SNAPSHOT_NOT_FOUND = 98, False, "There is no such snapshot of the metadata."
    POSITION_OUT_OF_RANGE = 99, False, "The snapshot ends before this position."
    UNKNOWN_TOPIC_ID = 100, True, "This node knows no topic of this id."
    DUPLICATE_BROKER_REGISTRATION = 101, False, "A live node is registered under this id."
    BROKER_ID_NOT_REGISTERED = 102, False, "No broker is registered under this id."
    INCONSISTENT_TOPIC_ID = 103, True, "The topic was deleted and made again under the same name."
    INCONSISTENT_CLUSTER_ID = 104, False, "The sender belongs to another cluster."
    TRANSACTIONAL_ID_NOT_FOUND = 105, False, "There is no such transactional id."
    FETCH_SESSION_TOPIC_ID_ERROR = (
        106,
        True,
        "A fetch session names topics either all by id or all by name.",
    )
    INELIGIBLE_REPLICA = (
        107,
        False,
        "A replica that is fenced or shutting down may not join the in-sync set.",
    )
    NEW_LEADER_ELECTED = (
        108,
        False,
        "The change moved the leadership, so this leader's part ends here.",
    )
    OFFSET_MOVED_TO_TIERED_STORAGE = 109, False, "The offset is kept in remote storage only."
    FENCED_MEMBER_EPOCH = 110, False, "The coordinator has given this member up; join again."
    UNRELEASED_INSTANCE_ID = 111, False, "The member that holds this instance id has not left yet."
    UNSUPPORTED_ASSIGNOR = 112, False, "The coordinator does not offer this assignor."
    STALE_MEMBER_EPOCH = (
        113,
        False,
        "The member's epoch is behind; try again after the next heartbeat.",
    )
    MISMATCHED_ENDPOINT_TYPE = 114, False, "The request was meant for the other kind of endpoint."
    UNSUPPORTED_ENDPOINT_TYPE = 115, False, "The node does not know this kind of endpoint."
    UNKNOWN_CONTROLLER_ID = 116, False, "There is no controller of this id."
    UNKNOWN_SUBSCRIPTION_ID = (
        117,
        False,
        "The client's metrics subscription is out of date; ask for the new one.",
    )
    TELEMETRY_TOO_LARGE = 118, False, "The client sent more metrics at once than the node takes."
    INVALID_REGISTRATION = (
        119,
        False,
        "The broker's registration contradicts itself or the cluster.",
    )
    TRANSACTION_ABORTABLE = 120, False, "The transaction cannot go on; abort it and begin another."
    INVALID_RECORD_STATE = 121, False, "The shared record is not in a state that allows that."
    SHARE_SESSION_NOT_FOUND = (
        122,
        True,
        "The node has forgotten this share session; begin a new one.",
    )
    INVALID_SHARE_SESSION_EPOCH = (
        123,
        True,
        "The share session expected another epoch; begin a new one.",
    )
    FENCED_STATE_EPOCH = 124, False, "The share partition's state has a newer epoch."
    INVALID_VOTER_KEY = 125, False, "The voter's id and directory id are not this node's."
    DUPLICATE_VOTER = 126, False, "The node votes already."
    VOTER_NOT_FOUND = 127, False, "There is no such voter."
    INVALID_REGULAR_EXPRESSION = 128, False, "The regular expression cannot be understood."
    REBOOTSTRAP_REQUIRED = (
        129,
        False,
        "What the client knows of the cluster is too old; start from the bootstrap list.",
    )
    STREAMS_INVALID_TOPOLOGY = 130, False, "The streams application's topology is not valid."
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131, False, "The topology's epoch is not valid."
    STREAMS_TOPOLOGY_FENCED = 132, False, "The group has gone on to a newer topology."
    SHARE_SESSION_LIMIT_REACHED = 133, True, "The node keeps as many share sessions as it may."


class RequestError(OttlaError):
    """An answer with an `ErrorCode`: normal life, and no news about the node's health."""

    def __init__(self, code: ErrorCode, sentence: str = "") -> None:
        super().__init__(f"{code.name}: {sentence or code.sentence}")
        self.code: Final = code
        self.sentence: Final = sentence or code.sentence


class RecordsError(RequestError):
    """The inside of a batch whose header and checksum are right cannot be read."""


def ensure(condition: object, claim: str, **facts: object) -> None:
    """Stop if a claim about our own code does not hold, in production and under `-O` too."""
    if not condition:
        told = ", ".join(f"{name}={value!r}" for name, value in facts.items())
        raise InvariantError(f"{claim} ({told})" if told else claim)
