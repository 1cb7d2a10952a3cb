"""Raw requests to a broker, so that bytes no client would send can be sent.

The messages are kio's; the records inside a Produce request are passed on untouched.
"""

from __future__ import annotations

import io
import socket
import struct
from collections.abc import Mapping
from datetime import timedelta
from typing import Final, Self, TypeVar

from kio.schema.create_topics.v7.request import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from kio.schema.create_topics.v7.response import CreateTopicsResponse
from kio.schema.errors import ErrorCode
from kio.schema.metadata.v12.request import MetadataRequest, MetadataRequestTopic
from kio.schema.metadata.v12.response import MetadataResponse
from kio.schema.produce.v11.request import PartitionProduceData, ProduceRequest, TopicProduceData
from kio.schema.produce.v11.response import ProduceResponse
from kio.schema.request_header.v2.header import RequestHeader
from kio.schema.response_header.v1.header import ResponseHeader
from kio.schema.types import TopicName
from kio.serial import entity_reader, entity_writer
from kio.static.primitive import Records, i16, i32, i32Timedelta

_SIZE: Final = struct.Struct(">i")
Request = CreateTopicsRequest | MetadataRequest | ProduceRequest
T = TypeVar("T", CreateTopicsResponse, MetadataResponse, ProduceResponse)
TIMEOUT: Final = i32Timedelta.parse(timedelta(seconds=10))


class ClosedByBrokerError(OSError):
    """The broker hung up instead of answering."""


class Connection:
    """One connection: one request, then its answer."""

    def __init__(self, port: int, deadline_s: float = 30.0) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=deadline_s)
        self._correlation = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def broker_count(self) -> int:
        request = MetadataRequest(topics=(), include_topic_authorized_operations=False)
        return len(self._ask(request, MetadataResponse).brokers)

    def create_topic(
        self, name: str, partitions: int = 1, settings: Mapping[str, str] | None = None
    ) -> None:
        topic = CreatableTopic(
            name=TopicName(name),
            num_partitions=i32(partitions),
            replication_factor=i16(1),
            assignments=(),
            configs=tuple(
                CreatableTopicConfig(name=key, value=value)
                for key, value in (settings or {}).items()
            ),
        )
        request = CreateTopicsRequest(topics=(topic,), timeout=TIMEOUT)
        answer = self._ask(request, CreateTopicsResponse).topics[0]
        if answer.error_code is not ErrorCode.none:
            raise ValueError(f"{name}: {answer.error_code.name}: {answer.error_message}")

    def partitions_with_leader(self, name: str) -> int:
        topic = MetadataRequestTopic(topic_id=None, name=TopicName(name))
        request = MetadataRequest(topics=(topic,), include_topic_authorized_operations=False)
        answer = self._ask(request, MetadataResponse).topics[0]
        return sum(one.error_code is ErrorCode.none for one in answer.partitions)

    def produce(self, topic: str, partition: int, records: bytes) -> int:
        """Return the error code of the partition."""
        data = PartitionProduceData(index=i32(partition), records=Records(records))
        request = ProduceRequest(
            acks=i16(-1),
            timeout=TIMEOUT,
            topic_data=(TopicProduceData(name=TopicName(topic), partition_data=(data,)),),
        )
        answer = self._ask(request, ProduceResponse).responses[0].partition_responses[0]
        return int(answer.error_code)

    def _ask(self, request: Request, expected: type[T]) -> T:
        self._correlation += 1
        header = RequestHeader(
            request_api_key=request.__api_key__,
            request_api_version=request.__version__,
            correlation_id=i32(self._correlation),
            client_id="ottla-interop",
        )
        frame = io.BytesIO()
        entity_writer(RequestHeader)(frame, header)
        entity_writer(type(request))(frame, request)
        self._socket.sendall(_SIZE.pack(frame.tell()) + frame.getvalue())
        answer = self._read(_SIZE.unpack(self._read(_SIZE.size))[0])
        _, header_size = entity_reader(ResponseHeader)(answer, 0)
        return entity_reader(expected)(answer, header_size)[0]

    def _read(self, size: int) -> bytes:
        read = bytearray()
        while len(read) < size:
            chunk = self._socket.recv(size - len(read))
            if not chunk:
                raise ClosedByBrokerError("Kafka closed the connection")
            read += chunk
        return bytes(read)
