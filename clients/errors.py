"""What a client can know about a request that got no answer, and what else a client may raise.

OttlaError
├── NotSentError             the request never left: surely nothing happened
│   ├── UnreachableError       no connection could be made
│   │   └── BootstrapError       not to any address of bootstrap.servers
│   ├── NoCommonVersionError   the broker speaks no version of the API that we speak
│   └── ClientClosedError      the client was closed before
├── OutcomeUnknownError      the request left, and no answer can be read: it may have happened
│   ├── ClosedByPeerError      the broker hung up first
│   ├── AnswerTimeoutError     the answer did not come in time
│   └── BrokenAnswerError      something came that is no answer (a RemoteProtocolError as well)
├── NoTopicError             there is no such topic or partition
├── BufferFullError          too many records wait to be sent
├── SerdeError               a key or value cannot be written as bytes, or read from them
│   └── DeserializationError   of a record at a place in a log
├── DeliveryError            a record was not acknowledged
│   ├── DeliveryFailedError    it was surely not written
│   └── DeliveryUnknownError   it may or may not have been written
└── TransactionError         a transaction did not go as it was asked for
    ├── TransactionStateError      this is not the moment for it: nothing was changed
    ├── TransactionAbortableError  it can only be aborted; the producer can go on with another
    ├── TransactionUnknownError    it may or may not have ended: asking again tells
    ├── ProducerFencedError        another producer has taken over; this one can only be closed
    └── TransactionFailedError     this producer can only be closed

A refusal is none of these: it is an answer, and its code is in it.
"""

from __future__ import annotations

from typing import Final

from ottla.proto.errors import ErrorCode, OttlaError, RemoteProtocolError


class NotSentError(OttlaError):
    """The request never left this process: surely nothing happened."""


class UnreachableError(NotSentError):
    """No connection could be made."""


class NoCommonVersionError(NotSentError):
    """The broker speaks no version of this API that we speak."""


class OutcomeUnknownError(OttlaError):
    """The request left and no answer can be read: a write may have happened, or not."""


class ClosedByPeerError(OutcomeUnknownError):
    """The broker closed the connection before it answered."""


class AnswerTimeoutError(OutcomeUnknownError):
    """The answer did not come within the time allowed."""


class BrokenAnswerError(OutcomeUnknownError, RemoteProtocolError):
    """What came is not an answer to what was asked."""


class BootstrapError(UnreachableError):
    """No address of `bootstrap.servers` could be used: why, for each, and what to change."""


class ClientClosedError(NotSentError):
    """The client has been closed: nothing more is sent."""


class NoTopicError(OttlaError):
    """The cluster has no such topic, or no such partition of it."""


class BufferFullError(OttlaError):
    """`buffer.memory` is used up by records that wait to be sent."""


class SerdeError(OttlaError):
    """A key or value cannot be turned into bytes, or bytes into a key or value."""


class DeserializationError(SerdeError):
    """A record that was read cannot be understood; it names where the record is."""

    def __init__(self, topic: str, partition: int, offset: int, part: str, reason: str) -> None:
        super().__init__(
            f"the {part} of the record at offset {offset} of {topic}-{partition} cannot be read: "
            f"{reason}."
        )
        self.topic: Final = topic
        self.partition: Final = partition
        self.offset: Final = offset
        # "key" or "value".
        self.part: Final = part


class DeliveryError(OttlaError):
    """A record was not acknowledged."""

    def __init__(self, sentence: str, code: ErrorCode | None = None) -> None:
        super().__init__(sentence)
        # What the broker said, if one said anything.
        self.code: Final = code


class DeliveryFailedError(DeliveryError):
    """The record was surely not written."""


class DeliveryUnknownError(DeliveryError):
    """The record was sent and not acknowledged: it may or may not have been written."""


class TransactionError(OttlaError):
    """A transaction did not go as it was asked for."""

    def __init__(self, sentence: str, code: ErrorCode | None = None) -> None:
        super().__init__(sentence)
        # What a broker said, if one said anything.
        self.code: Final = code


class TransactionStateError(TransactionError):
    """This is not the moment for it; nothing was changed."""


class TransactionAbortableError(TransactionError):
    """The transaction can only be aborted; after that the producer can begin another."""


class TransactionUnknownError(TransactionError):
    """The transaction may or may not have ended as it was decided."""


class ProducerFencedError(TransactionError):
    """Another producer works under this transactional id; this one can only be closed."""

    def __init__(self, transactional_id: str, code: ErrorCode | None = None) -> None:
        super().__init__(
            f"another producer has taken over transactional.id={transactional_id}, or this one was "
            "silent for longer than transaction.timeout.ms: nothing of it is committed any more, "
            "and it can only be closed.",
            code,
        )


class TransactionFailedError(TransactionError):
    """This producer can do nothing more; it can only be closed."""
