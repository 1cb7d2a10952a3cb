"""Ottla: a replicated commit log that speaks the Kafka protocol.

The clients can be taken from here: `from ottla import Producer`. They are loaded when they are
first asked for, so that importing `ottla` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ottla.clients.admin.answers import CreatedTopic as CreatedTopic
    from ottla.clients.admin.answers import NewTopic as NewTopic
    from ottla.clients.admin.blocking import Admin as Admin
    from ottla.clients.admin.client import AsyncAdmin as AsyncAdmin
    from ottla.clients.consumer.async_consumer import AsyncConsumer as AsyncConsumer
    from ottla.clients.consumer.errors import CommitError as CommitError
    from ottla.clients.consumer.errors import ConsumerError as ConsumerError
    from ottla.clients.consumer.errors import FetchError as FetchError
    from ottla.clients.consumer.errors import GroupError as GroupError
    from ottla.clients.consumer.errors import NoOffsetError as NoOffsetError
    from ottla.clients.consumer.listener import RebalanceListener as RebalanceListener
    from ottla.clients.consumer.record import GroupMetadata as GroupMetadata
    from ottla.clients.consumer.record import OffsetAndMetadata as OffsetAndMetadata
    from ottla.clients.consumer.record import Record as Record
    from ottla.clients.consumer.sync_consumer import Consumer as Consumer
    from ottla.clients.errors import BootstrapError as BootstrapError
    from ottla.clients.errors import BufferFullError as BufferFullError
    from ottla.clients.errors import ClientClosedError as ClientClosedError
    from ottla.clients.errors import DeliveryError as DeliveryError
    from ottla.clients.errors import DeliveryFailedError as DeliveryFailedError
    from ottla.clients.errors import DeliveryUnknownError as DeliveryUnknownError
    from ottla.clients.errors import DeserializationError as DeserializationError
    from ottla.clients.errors import NoTopicError as NoTopicError
    from ottla.clients.errors import ProducerFencedError as ProducerFencedError
    from ottla.clients.errors import SerdeError as SerdeError
    from ottla.clients.errors import TransactionAbortableError as TransactionAbortableError
    from ottla.clients.errors import TransactionError as TransactionError
    from ottla.clients.errors import TransactionFailedError as TransactionFailedError
    from ottla.clients.errors import TransactionStateError as TransactionStateError
    from ottla.clients.errors import TransactionUnknownError as TransactionUnknownError
    from ottla.clients.producer.batch import Report as Report
    from ottla.clients.producer.batch import State as State
    from ottla.clients.producer.client import AsyncProducer as AsyncProducer
    from ottla.clients.producer.client import Producer as Producer
    from ottla.clients.producer.delivery import Delivery as Delivery
    from ottla.clients.producer.prepared import PreparedTransaction as PreparedTransaction
    from ottla.clients.reprocessing.plan import Plan as Plan
    from ottla.clients.reprocessing.runner import AsyncRunner as AsyncRunner
    from ottla.clients.reprocessing.runner import Runner as Runner
    from ottla.clients.serdes import Serde as Serde
    from ottla.proto.errors import ConfigError as ConfigError
    from ottla.proto.errors import CorruptionError as CorruptionError
    from ottla.proto.errors import ErrorCode as ErrorCode
    from ottla.proto.errors import OttlaError as OttlaError
    from ottla.proto.errors import RequestError as RequestError
    from ottla.proto.ids import TopicPartition as TopicPartition

# Name → the module that has it.
_WHERE = {
    "Admin": "ottla.clients.admin.blocking",
    "AsyncAdmin": "ottla.clients.admin.client",
    "AsyncConsumer": "ottla.clients.consumer.async_consumer",
    "AsyncProducer": "ottla.clients.producer.client",
    "AsyncRunner": "ottla.clients.reprocessing.runner",
    "BootstrapError": "ottla.clients.errors",
    "BufferFullError": "ottla.clients.errors",
    "ClientClosedError": "ottla.clients.errors",
    "CommitError": "ottla.clients.consumer.errors",
    "ConfigError": "ottla.proto.errors",
    "Consumer": "ottla.clients.consumer.sync_consumer",
    "ConsumerError": "ottla.clients.consumer.errors",
    "CorruptionError": "ottla.proto.errors",
    "CreatedTopic": "ottla.clients.admin.answers",
    "Delivery": "ottla.clients.producer.delivery",
    "DeliveryError": "ottla.clients.errors",
    "DeliveryFailedError": "ottla.clients.errors",
    "DeliveryUnknownError": "ottla.clients.errors",
    "DeserializationError": "ottla.clients.errors",
    "ErrorCode": "ottla.proto.errors",
    "FetchError": "ottla.clients.consumer.errors",
    "GroupError": "ottla.clients.consumer.errors",
    "GroupMetadata": "ottla.clients.consumer.record",
    "NewTopic": "ottla.clients.admin.answers",
    "NoOffsetError": "ottla.clients.consumer.errors",
    "NoTopicError": "ottla.clients.errors",
    "OffsetAndMetadata": "ottla.clients.consumer.record",
    "OttlaError": "ottla.proto.errors",
    "Plan": "ottla.clients.reprocessing.plan",
    "PreparedTransaction": "ottla.clients.producer.prepared",
    "Producer": "ottla.clients.producer.client",
    "ProducerFencedError": "ottla.clients.errors",
    "RebalanceListener": "ottla.clients.consumer.listener",
    "Record": "ottla.clients.consumer.record",
    "Report": "ottla.clients.producer.batch",
    "RequestError": "ottla.proto.errors",
    "Runner": "ottla.clients.reprocessing.runner",
    "Serde": "ottla.clients.serdes",
    "SerdeError": "ottla.clients.errors",
    "State": "ottla.clients.producer.batch",
    "TopicPartition": "ottla.proto.ids",
    "TransactionAbortableError": "ottla.clients.errors",
    "TransactionError": "ottla.clients.errors",
    "TransactionFailedError": "ottla.clients.errors",
    "TransactionStateError": "ottla.clients.errors",
    "TransactionUnknownError": "ottla.clients.errors",
}


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'ottla' has no attribute {name!r}")
    return getattr(import_module(_WHERE[name]), name)


def __dir__() -> list[str]:
    return [*globals(), *_WHERE]
