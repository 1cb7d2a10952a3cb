"""The options of a node that are about transactions, under Kafka's names.

Not here: all others of a node (`node.py`).
"""

from __future__ import annotations

from typing import Any, Final

from ottla.proto.options.option import BOOL, INT, Difference, Option, at_least, between, rows_of

_MIB: Final = 1024**2
_DAY_MS: Final = 24 * 60 * 60 * 1000

TRANSACTION_MAX_TIMEOUT_MS: Final = Option(
    name="transaction.max.timeout.ms",
    kind=INT,
    default=15 * 60 * 1000,
    check=at_least(1),
    unit="ms",
    doc="The longest transaction.timeout.ms that a producer may ask for. A transaction that takes "
    "longer than it asked for is aborted.",
)
TRANSACTIONAL_ID_EXPIRATION_MS: Final = Option(
    name="transactional.id.expiration.ms",
    kind=INT,
    default=7 * _DAY_MS,
    check=at_least(1),
    unit="ms",
    doc="A transactional id that was not used for this long is forgotten; never while it has an "
    "open transaction.",
)
TWO_PHASE_COMMIT_ENABLE: Final = Option(
    name="transaction.two.phase.commit.enable",
    kind=BOOL,
    default=True,
    doc="Let producers that ask for it have transactions without a time-out, which outlive them "
    "until somebody decides (KIP-939). Readers of committed records wait for as long. If "
    "it is turned off, what is prepared already can still be decided.",
    differs=Difference("false", "pipelines write exactly once by it (ADR 0029)."),
)
TRANSACTION_LOG_PARTITIONS: Final = Option(
    name="transaction.state.log.num.partitions",
    kind=INT,
    default=50,
    check=at_least(1),
    doc="Partitions of __transaction_state. It cannot be changed once the topic is there.",
)
TRANSACTION_LOG_REPLICATION_FACTOR: Final = Option(
    name="transaction.state.log.replication.factor",
    kind=INT,
    default=3,
    check=between(1, 32767),
    doc="Replicas of __transaction_state; at most as many as there are configured nodes.",
)
TRANSACTION_LOG_MIN_ISR: Final = Option(
    name="transaction.state.log.min.isr",
    kind=INT,
    default=2,
    check=at_least(1),
    doc="min.insync.replicas of __transaction_state; at most as many as it has replicas.",
)
TRANSACTION_LOG_SEGMENT_BYTES: Final = Option(
    name="transaction.state.log.segment.bytes",
    kind=INT,
    default=4 * _MIB,
    check=at_least(1),
    unit="bytes",
    doc="segment.bytes of __transaction_state: small, so that a new coordinator soon has read it.",
    differs=Difference("104857600", "the last segment is never compacted (ADR 0026)."),
)
TRANSACTION_ABORT_INTERVAL_MS: Final = Option(
    name="transaction.abort.timed.out.transaction.cleanup.interval.ms",
    kind=INT,
    default=1000,
    check=at_least(1),
    unit="ms",
    doc="How often a coordinator looks for transactions that took too long.",
    differs=Difference("10000", "readers of committed records wait for it."),
)
TRANSACTION_EXPIRE_INTERVAL_MS: Final = Option(
    name="transaction.remove.expired.transaction.cleanup.interval.ms",
    kind=INT,
    default=60 * 60 * 1000,
    check=at_least(1),
    unit="ms",
    doc="How often a coordinator looks for transactional ids that nobody uses any more.",
)

TABLE: Final[tuple[Option[Any], ...]] = rows_of(globals())
