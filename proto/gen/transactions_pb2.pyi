from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Partitions(_message.Message):
    __slots__ = ("topic", "indexes")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    INDEXES_FIELD_NUMBER: _ClassVar[int]
    topic: str
    indexes: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, topic: _Optional[str] = ..., indexes: _Optional[_Iterable[int]] = ...) -> None: ...

class Codes(_message.Message):
    __slots__ = ("codes",)
    CODES_FIELD_NUMBER: _ClassVar[int]
    codes: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, codes: _Optional[_Iterable[int]] = ...) -> None: ...

class WantedMarker(_message.Message):
    __slots__ = ("producer_id", "producer_epoch", "is_commit", "coordinator_epoch", "partitions", "is_bumped")
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    IS_COMMIT_FIELD_NUMBER: _ClassVar[int]
    COORDINATOR_EPOCH_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    IS_BUMPED_FIELD_NUMBER: _ClassVar[int]
    producer_id: int
    producer_epoch: int
    is_commit: bool
    coordinator_epoch: int
    partitions: _containers.RepeatedCompositeFieldContainer[Partitions]
    is_bumped: bool
    def __init__(self, producer_id: _Optional[int] = ..., producer_epoch: _Optional[int] = ..., is_commit: _Optional[bool] = ..., coordinator_epoch: _Optional[int] = ..., partitions: _Optional[_Iterable[_Union[Partitions, _Mapping]]] = ..., is_bumped: _Optional[bool] = ...) -> None: ...

class MarkersAsked(_message.Message):
    __slots__ = ("markers",)
    MARKERS_FIELD_NUMBER: _ClassVar[int]
    markers: _containers.RepeatedCompositeFieldContainer[WantedMarker]
    def __init__(self, markers: _Optional[_Iterable[_Union[WantedMarker, _Mapping]]] = ...) -> None: ...

class MarkersAnswer(_message.Message):
    __slots__ = ("outcomes",)
    OUTCOMES_FIELD_NUMBER: _ClassVar[int]
    outcomes: _containers.RepeatedCompositeFieldContainer[Codes]
    def __init__(self, outcomes: _Optional[_Iterable[_Union[Codes, _Mapping]]] = ...) -> None: ...

class AdmissionAsked(_message.Message):
    __slots__ = ("transactional_id", "producer_id", "producer_epoch", "partitions", "adds")
    TRANSACTIONAL_ID_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    ADDS_FIELD_NUMBER: _ClassVar[int]
    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: _containers.RepeatedCompositeFieldContainer[Partitions]
    adds: bool
    def __init__(self, transactional_id: _Optional[str] = ..., producer_id: _Optional[int] = ..., producer_epoch: _Optional[int] = ..., partitions: _Optional[_Iterable[_Union[Partitions, _Mapping]]] = ..., adds: _Optional[bool] = ...) -> None: ...

class AdmissionAnswer(_message.Message):
    __slots__ = ("outcomes", "coordinator_epoch")
    OUTCOMES_FIELD_NUMBER: _ClassVar[int]
    COORDINATOR_EPOCH_FIELD_NUMBER: _ClassVar[int]
    outcomes: Codes
    coordinator_epoch: int
    def __init__(self, outcomes: _Optional[_Union[Codes, _Mapping]] = ..., coordinator_epoch: _Optional[int] = ...) -> None: ...
