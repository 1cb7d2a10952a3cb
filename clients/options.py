"""The options of producers, consumers and admins, under Kafka's names: one row each.

Values may be texts as in a properties file, or plain Python values. What is unknown is refused with
the nearest name, and every problem is told at once.

Not here: what obeys them. Options of nodes and topics are in `proto/options`.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from typing import Any, Final, TypeVar

from ottla.clients.serdes import SERDES
from ottla.proto.errors import ConfigError
from ottla.proto.ids import INT32_MAX
from ottla.proto.options.endpoints import Address, parse_address
from ottla.proto.options.option import (
    BOOL,
    INT,
    LIST,
    LONG,
    STRING,
    Check,
    Kind,
    Option,
    WireType,
    at_least,
    between,
    one_of,
    shown,
)

T = TypeVar("T")


class Role(StrEnum):
    """Which client takes an option."""

    PRODUCER = "producer"
    CONSUMER = "consumer"
    ADMIN = "admin"


def _parse_addresses(text: str) -> tuple[Address, ...]:
    if not text.strip():
        raise ValueError("host:port, or several with commas between them")
    return tuple(parse_address(item.strip()) for item in text.split(","))


def _parse_acks(text: str) -> int:
    words = {"all": -1, "-1": -1, "1": 1, "0": 0}
    if text not in words:
        raise ValueError("all, 1 or 0")
    return words[text]


ADDRESSES: Final = Kind(
    "addresses", WireType.LIST, _parse_addresses, lambda all_: ",".join(map(str, all_))
)
ACKS_KIND: Final = Kind("acks", WireType.STRING, _parse_acks, lambda n: "all" if n < 0 else str(n))
_NOT_EMPTY: Final = Check("a text that is not empty", bool)
_ASSIGNORS: Final = ("range", "roundrobin", "sticky", "cooperative-sticky")
_ALL: Final = (Role.PRODUCER, Role.CONSUMER, Role.ADMIN)
_PRODUCER: Final = (Role.PRODUCER,)
_CONSUMER: Final = (Role.CONSUMER,)
_ROWS: Final = dict[str, tuple[Option[Any], tuple[Role, ...]]]()
# Options that may also be given as an object, and what such an object has to be.
_OBJECTS: Final = dict[str, tuple[Callable[[object], bool], str]]()


def _row(roles: tuple[Role, ...], option: Option[T]) -> Option[T]:
    _ROWS[option.name] = (option, roles)
    return option


def _number(
    roles: tuple[Role, ...], name: str, default: int, doc: str, low: int = 0, unit: str = ""
) -> Option[int]:
    unit = unit or (
        "ms" if name.endswith(".ms") else "bytes" if name.endswith(("bytes", "memory")) else ""
    )
    return _row(
        roles,
        Option(
            name=name,
            kind=LONG if default > INT32_MAX else INT,
            default=default,
            check=at_least(low),
            doc=doc,
            unit=unit,
        ),
    )


def _text(
    roles: tuple[Role, ...], name: str, default: str, doc: str, check: Check[str] | None = None
) -> Option[str]:
    return _row(roles, Option(name=name, kind=STRING, default=default, check=check, doc=doc))


def _flag(roles: tuple[Role, ...], name: str, default: bool, doc: str) -> Option[bool]:
    return _row(roles, Option(name=name, kind=BOOL, default=default, doc=doc))


def _serde(role: Role, name: str, method: str) -> Option[Any]:
    _OBJECTS[name] = (lambda it: hasattr(it, method), f"an object with {method}(topic, …)")
    return _row(
        (role,),
        Option(
            name=name,
            kind=STRING,
            default="bytes",
            check=one_of(*SERDES),
            doc=f"How bytes are made or read: a name, or an object with `{method}`.",
        ),
    )


# --- every client -------------------------------------------------------------------------------

BOOTSTRAP_SERVERS: Final = _row(
    _ALL,
    Option(
        name="bootstrap.servers",
        kind=ADDRESSES,
        default=(Address("localhost", 9092),),
        doc="Any brokers of the cluster; the first that answers tells of the others.",
    ),
)
CLIENT_ID: Final = _text(_ALL, "client.id", "ottla", "What brokers call this client in their logs.")
CLIENT_RACK: Final = _text(_ALL, "client.rack", "", "Where this client is; brokers may use it.")
SECURITY_PROTOCOL: Final = _text(
    _ALL,
    "security.protocol",
    "PLAINTEXT",
    "Only plain text is spoken so far.",
    Check("PLAINTEXT, because this client speaks neither TLS nor SASL yet", "PLAINTEXT".__eq__),
)
REQUEST_TIMEOUT_MS: Final = _number(
    _ALL, "request.timeout.ms", 30_000, "How long an answer may take.", 1
)
DEFAULT_API_TIMEOUT_MS: Final = _number(
    (Role.CONSUMER, Role.ADMIN),
    "default.api.timeout.ms",
    60_000,
    "How long a call may take, with all it tries again.",
    1,
)
RETRY_BACKOFF_MS: Final = _number(
    _ALL, "retry.backoff.ms", 100, "The first wait before something is tried again."
)
RETRY_BACKOFF_MAX_MS: Final = _number(
    _ALL, "retry.backoff.max.ms", 1000, "The wait doubles up to this."
)
RECONNECT_BACKOFF_MS: Final = _number(
    _ALL, "reconnect.backoff.ms", 50, "The first wait before a broker is connected to again."
)
RECONNECT_BACKOFF_MAX_MS: Final = _number(
    _ALL, "reconnect.backoff.max.ms", 1000, "The wait doubles up to this."
)
CONNECT_TIMEOUT_MS: Final = _number(
    _ALL, "socket.connection.setup.timeout.ms", 10_000, "How long connecting may take.", 1
)
METADATA_MAX_AGE_MS: Final = _number(
    _ALL, "metadata.max.age.ms", 300_000, "What is known of the cluster is asked again after this."
)

# --- producer -----------------------------------------------------------------------------------

ACKS: Final = _row(
    _PRODUCER,
    Option(
        name="acks",
        kind=ACKS_KIND,
        default=-1,
        doc="Who must hold a record before it counts: all in-sync replicas, the leader, or 0: "
        "nobody is asked.",
    ),
)
ENABLE_IDEMPOTENCE: Final = _flag(
    _PRODUCER, "enable.idempotence", True, "What is sent again is recognised, so nothing is double."
)
MAX_IN_FLIGHT: Final = _number(
    _PRODUCER,
    "max.in.flight.requests.per.connection",
    5,
    "How many requests may be unanswered at one broker.",
    1,
)
LINGER_MS: Final = _number(_PRODUCER, "linger.ms", 5, "How long a batch waits for company.")
BATCH_SIZE: Final = _number(
    _PRODUCER,
    "batch.size",
    16_384,
    "A batch this large goes at once. While its broker is busy it may grow to 1 MiB.",
    unit="bytes",
)
BATCH_NUM_MESSAGES: Final = _number(
    _PRODUCER, "batch.num.messages", 10_000, "The most records in a batch.", 1
)
MAX_REQUEST_SIZE: Final = _number(
    _PRODUCER, "max.request.size", 1_048_576, "The largest record, and the largest request.", 1
)
BUFFER_MEMORY: Final = _number(
    _PRODUCER, "buffer.memory", 33_554_432, "Room for records that are not acknowledged yet.", 1
)
MAX_BLOCK_MS: Final = _number(
    _PRODUCER, "max.block.ms", 60_000, "How long `send` may wait for room, or for a topic."
)
RETRIES: Final = _number(_PRODUCER, "retries", INT32_MAX, "How often a batch is sent again.")
DELIVERY_TIMEOUT_MS: Final = _number(
    _PRODUCER,
    "delivery.timeout.ms",
    120_000,
    "A record not acknowledged after this is given up.",
)
COMPRESSION_TYPE: Final = _text(
    _PRODUCER,
    "compression.type",
    "none",
    "How batches are packed.",
    one_of("none", "gzip", "snappy", "lz4", "zstd"),
)
COMPRESSION_LEVEL: Final = _row(
    _PRODUCER,
    Option(
        name="compression.level",
        kind=INT,
        default=-1,
        check=between(-1, 22),
        doc="The level of the codec; -1 is its usual one.",
    ),
)
PARTITIONER: Final[Option[Any]] = _row(
    _PRODUCER,
    Option(
        name="partitioner",
        kind=STRING,
        default="sticky",
        check=one_of("sticky", "round_robin"),
        doc="Where a record without a key goes: sticky fills one partition's batch after another, "
        "round_robin takes turns, with keys too. Or a callable (topic, key, partition_count) -> "
        "partition for every record.",
    ),
)
_OBJECTS["partitioner"] = (callable, "a callable (topic, key, partition_count) -> partition")
TRANSACTIONAL_ID: Final = _text(
    _PRODUCER,
    "transactional.id",
    "",
    "Makes the producer a transactional one. Of two with the same id the later one works on.",
)
TRANSACTION_TIMEOUT_MS: Final = _number(
    _PRODUCER,
    "transaction.timeout.ms",
    60_000,
    "The coordinator aborts a transaction that is open for longer.",
    1,
)
TWO_PHASE_COMMIT: Final = _flag(
    _PRODUCER,
    "transaction.two.phase.commit.enable",
    False,
    "Transactions have no time-out and may be prepared, to be decided later by anybody.",
)
KEY_SERIALIZER: Final = _serde(Role.PRODUCER, "key.serializer", "serialize")
VALUE_SERIALIZER: Final = _serde(Role.PRODUCER, "value.serializer", "serialize")

# --- consumer -----------------------------------------------------------------------------------

GROUP_ID: Final = _text(_CONSUMER, "group.id", "", "The group this consumer is a member of.")
GROUP_INSTANCE_ID: Final = _text(
    _CONSUMER, "group.instance.id", "", "A name that survives a restart: a static member."
)
ASSIGNMENT_STRATEGY: Final = _row(
    _CONSUMER,
    Option(
        name="partition.assignment.strategy",
        kind=LIST,
        default=("range", "cooperative-sticky"),
        check=Check(
            "a list of " + ", ".join(_ASSIGNORS),
            lambda items: bool(items) and {*items} <= {*_ASSIGNORS},
        ),
        doc="How the group may share partitions out, the preferred way first.",
    ),
)
SESSION_TIMEOUT_MS: Final = _number(
    _CONSUMER, "session.timeout.ms", 45_000, "A member silent for so long is out.", 1
)
HEARTBEAT_INTERVAL_MS: Final = _number(
    _CONSUMER, "heartbeat.interval.ms", 3000, "How often a member shows that it lives.", 1
)
MAX_POLL_INTERVAL_MS: Final = _number(
    _CONSUMER, "max.poll.interval.ms", 300_000, "A member that polls less often leaves.", 1
)
MAX_POLL_RECORDS: Final = _number(
    _CONSUMER, "max.poll.records", 500, "The most records of one poll.", 1
)
ENABLE_AUTO_COMMIT: Final = _flag(
    _CONSUMER, "enable.auto.commit", True, "Positions are committed by themselves."
)
AUTO_COMMIT_INTERVAL_MS: Final = _number(
    _CONSUMER, "auto.commit.interval.ms", 5000, "How often they are.", 1
)
AUTO_OFFSET_RESET: Final = _text(
    _CONSUMER,
    "auto.offset.reset",
    "latest",
    "Where to begin when nothing is committed, or it is gone.",
    one_of("earliest", "latest", "none"),
)
ISOLATION_LEVEL: Final = _text(
    _CONSUMER,
    "isolation.level",
    "read_uncommitted",
    "Whether records of open and aborted transactions are given out.",
    one_of("read_uncommitted", "read_committed"),
)
FETCH_MIN_BYTES: Final = _number(
    _CONSUMER, "fetch.min.bytes", 1, "A broker answers a fetch when it has this much."
)
FETCH_MAX_WAIT_MS: Final = _number(
    _CONSUMER, "fetch.max.wait.ms", 500, "Or when it has waited this long."
)
FETCH_MAX_BYTES: Final = _number(
    _CONSUMER, "fetch.max.bytes", 52_428_800, "The most that one fetch brings."
)
MAX_PARTITION_FETCH_BYTES: Final = _number(
    _CONSUMER, "max.partition.fetch.bytes", 1_048_576, "The most of one partition in one fetch."
)
CHECK_CRCS: Final = _flag(
    _CONSUMER, "check.crcs", True, "Checksums of batches are checked when they are read."
)
EXCLUDE_INTERNAL_TOPICS: Final = _flag(
    _CONSUMER, "exclude.internal.topics", True, "A pattern does not match internal topics."
)
ALLOW_AUTO_CREATE_TOPICS: Final = _flag(
    (Role.PRODUCER, Role.CONSUMER),
    "allow.auto.create.topics",
    True,
    "Asking for a topic makes it, where the cluster allows that.",
)
KEY_DESERIALIZER: Final = _serde(Role.CONSUMER, "key.deserializer", "deserialize")
VALUE_DESERIALIZER: Final = _serde(Role.CONSUMER, "value.deserializer", "deserialize")


class ClientOptions:
    """The options of one client, complete and checked."""

    def __init__(self, role: Role, values: Mapping[str, Any]) -> None:
        self.role: Final = role
        self._values: Final = dict(values)

    def value_of(self, option: Option[T]) -> T:
        """Return what was given, else the default."""
        value: T = self._values.get(option.name, option.default)
        return value

    def is_given(self, option: Option[Any]) -> bool:
        return option.name in self._values


def options_of(role: Role) -> tuple[Option[Any], ...]:
    """Return the rows that this client takes."""
    return tuple(option for option, roles in _ROWS.values() if role in roles)


def read_options(role: Role, given: Mapping[str, object]) -> ClientOptions:
    """Return the options, or raise `ConfigError` with a sentence for each problem."""
    if not isinstance(given, Mapping):
        raise ConfigError(
            f'options are a dictionary, as {{"bootstrap.servers": "localhost:9092"}}, and '
            f"{type(given).__name__} is none."
        )
    problems, values = list[str](), dict[str, Any]()
    for name, value in given.items():
        try:
            values[name] = _read(role, name, value)
        except ConfigError as error:
            problems += error.problems
    if not problems:
        problems += _contradictions(ClientOptions(role, values))
    if problems:
        raise ConfigError(*problems)
    return ClientOptions(role, values)


def _read(role: Role, name: str, value: object) -> Any:
    option, roles = _ROWS.get(name, (None, ()))
    if option is None or role not in roles:
        raise ConfigError(_unknown(role, name, roles))
    if name in _OBJECTS and not isinstance(value, str):
        allows, words = _OBJECTS[name]
        if not allows(value):
            raise ConfigError(f"{name} must be a name or {words}, not {type(value).__name__}.")
        return value
    return option.parse(_as_text(name, value))


def _as_text(name: str, value: object) -> str:
    match value:
        case str():
            return value
        case bool():
            return str(value).lower()
        case int() | float():
            return str(value)
        case list() | tuple():
            return ",".join(map(str, value))
        case _:
            told = type(value).__name__
            raise ConfigError(f"{name} must be a text, a number or a list, not {told}.")


def _unknown(role: Role, name: str, roles: tuple[Role, ...]) -> str:
    if roles:
        return f"{name} is an option of the {' and the '.join(roles)}, not of the {role}."
    own = [option.name for option in options_of(role)]
    near = difflib.get_close_matches(str(name)[:64], own, n=1)
    hint = f"; is {near[0]} meant?" if near else "."
    return f"{shown(str(name))} is no option of the {role}{hint}"


def _contradictions(options: ClientOptions) -> Iterator[str]:
    if options.role is Role.PRODUCER:
        yield from _producer_contradictions(options)
    if options.role is Role.CONSUMER:
        session = options.value_of(SESSION_TIMEOUT_MS)
        heartbeat = options.value_of(HEARTBEAT_INTERVAL_MS)
        if heartbeat >= session:
            yield (
                f"heartbeat.interval.ms ({heartbeat}) must be less than session.timeout.ms "
                f"({session}), or every member is taken for dead."
            )


def is_idempotent(options: ClientOptions) -> bool:
    """Return whether the producer is; asked for or not, it needs acks=all and at most 5 in flight.

    As in Kafka, who asks for less than that without a word on idempotence goes without it.
    """
    return options.value_of(ENABLE_IDEMPOTENCE) and not tuple(_against_idempotence(options))


def _against_idempotence(options: ClientOptions) -> Iterator[str]:
    if options.value_of(ACKS) != -1:
        yield "acks=all"
    if options.value_of(MAX_IN_FLIGHT) > 5:
        yield "max.in.flight.requests.per.connection of at most 5"
    if options.value_of(RETRIES) == 0:
        yield "retries above 0"


def _producer_contradictions(options: ClientOptions) -> Iterator[str]:
    if options.is_given(ENABLE_IDEMPOTENCE) and options.value_of(ENABLE_IDEMPOTENCE):
        for need in _against_idempotence(options):
            yield f"enable.idempotence=true needs {need}."
    yield from _transactional_contradictions(options)
    delivery = options.value_of(DELIVERY_TIMEOUT_MS)
    least = options.value_of(LINGER_MS) + options.value_of(REQUEST_TIMEOUT_MS)
    if delivery < least:
        yield (
            f"delivery.timeout.ms ({delivery}) must be at least linger.ms + request.timeout.ms "
            f"({least}): raise it, or lower request.timeout.ms."
        )


def _transactional_contradictions(options: ClientOptions) -> Iterator[str]:
    if not options.value_of(TRANSACTIONAL_ID):
        if options.value_of(TWO_PHASE_COMMIT):
            yield "transaction.two.phase.commit.enable=true needs a transactional.id."
        return
    if not options.value_of(ENABLE_IDEMPOTENCE):
        yield "transactional.id needs enable.idempotence=true."
    elif not options.is_given(ENABLE_IDEMPOTENCE):
        for need in _against_idempotence(options):
            yield f"transactional.id needs {need}."
    if options.value_of(TWO_PHASE_COMMIT) and options.is_given(TRANSACTION_TIMEOUT_MS):
        yield (
            "transaction.timeout.ms has no meaning with transaction.two.phase.commit.enable=true: "
            "leave one of them out."
        )
