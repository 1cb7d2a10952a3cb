from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Standing(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    STANDING_UNSPECIFIED: _ClassVar[Standing]
    STANDING_BLANK: _ClassVar[Standing]
    STANDING_FORMING: _ClassVar[Standing]
    STANDING_JOINING: _ClassVar[Standing]
    STANDING_VOTER: _ClassVar[Standing]
STANDING_UNSPECIFIED: Standing
STANDING_BLANK: Standing
STANDING_FORMING: Standing
STANDING_JOINING: Standing
STANDING_VOTER: Standing

class IdentifyRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Identity(_message.Message):
    __slots__ = ("cluster_id", "node_id", "incarnation")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    node_id: int
    incarnation: bytes
    def __init__(self, cluster_id: _Optional[str] = ..., node_id: _Optional[int] = ..., incarnation: _Optional[bytes] = ...) -> None: ...

class VoterEntry(_message.Message):
    __slots__ = ("node_id", "directory_id")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    DIRECTORY_ID_FIELD_NUMBER: _ClassVar[int]
    node_id: int
    directory_id: str
    def __init__(self, node_id: _Optional[int] = ..., directory_id: _Optional[str] = ...) -> None: ...

class Account(_message.Message):
    __slots__ = ("node_id", "directory_id", "configured", "standing", "cluster_id", "voters")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    DIRECTORY_ID_FIELD_NUMBER: _ClassVar[int]
    CONFIGURED_FIELD_NUMBER: _ClassVar[int]
    STANDING_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    VOTERS_FIELD_NUMBER: _ClassVar[int]
    node_id: int
    directory_id: str
    configured: _containers.RepeatedScalarFieldContainer[int]
    standing: Standing
    cluster_id: str
    voters: _containers.RepeatedCompositeFieldContainer[VoterEntry]
    def __init__(self, node_id: _Optional[int] = ..., directory_id: _Optional[str] = ..., configured: _Optional[_Iterable[int]] = ..., standing: _Optional[_Union[Standing, str]] = ..., cluster_id: _Optional[str] = ..., voters: _Optional[_Iterable[_Union[VoterEntry, _Mapping]]] = ...) -> None: ...

class Frame(_message.Message):
    __slots__ = ("hello", "envelope")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    ENVELOPE_FIELD_NUMBER: _ClassVar[int]
    hello: Hello
    envelope: Envelope
    def __init__(self, hello: _Optional[_Union[Hello, _Mapping]] = ..., envelope: _Optional[_Union[Envelope, _Mapping]] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("cluster_id", "sender", "receiver", "directory_id", "stream", "incarnation")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    SENDER_FIELD_NUMBER: _ClassVar[int]
    RECEIVER_FIELD_NUMBER: _ClassVar[int]
    DIRECTORY_ID_FIELD_NUMBER: _ClassVar[int]
    STREAM_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    sender: int
    receiver: int
    directory_id: str
    stream: str
    incarnation: bytes
    def __init__(self, cluster_id: _Optional[str] = ..., sender: _Optional[int] = ..., receiver: _Optional[int] = ..., directory_id: _Optional[str] = ..., stream: _Optional[str] = ..., incarnation: _Optional[bytes] = ...) -> None: ...

class Accepted(_message.Message):
    __slots__ = ("incarnation",)
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    incarnation: bytes
    def __init__(self, incarnation: _Optional[bytes] = ...) -> None: ...

class Envelope(_message.Message):
    __slots__ = ("cluster_id", "sender", "receiver", "directory_id", "stream", "sequence", "sender_term", "request_vote", "vote", "append", "snapshot_part", "append_answer", "ask_pre_vote", "pre_vote")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    SENDER_FIELD_NUMBER: _ClassVar[int]
    RECEIVER_FIELD_NUMBER: _ClassVar[int]
    DIRECTORY_ID_FIELD_NUMBER: _ClassVar[int]
    STREAM_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    SENDER_TERM_FIELD_NUMBER: _ClassVar[int]
    REQUEST_VOTE_FIELD_NUMBER: _ClassVar[int]
    VOTE_FIELD_NUMBER: _ClassVar[int]
    APPEND_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_PART_FIELD_NUMBER: _ClassVar[int]
    APPEND_ANSWER_FIELD_NUMBER: _ClassVar[int]
    ASK_PRE_VOTE_FIELD_NUMBER: _ClassVar[int]
    PRE_VOTE_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    sender: int
    receiver: int
    directory_id: str
    stream: str
    sequence: int
    sender_term: int
    request_vote: RequestVote
    vote: Vote
    append: Append
    snapshot_part: SnapshotPart
    append_answer: AppendAnswer
    ask_pre_vote: AskPreVote
    pre_vote: PreVote
    def __init__(self, cluster_id: _Optional[str] = ..., sender: _Optional[int] = ..., receiver: _Optional[int] = ..., directory_id: _Optional[str] = ..., stream: _Optional[str] = ..., sequence: _Optional[int] = ..., sender_term: _Optional[int] = ..., request_vote: _Optional[_Union[RequestVote, _Mapping]] = ..., vote: _Optional[_Union[Vote, _Mapping]] = ..., append: _Optional[_Union[Append, _Mapping]] = ..., snapshot_part: _Optional[_Union[SnapshotPart, _Mapping]] = ..., append_answer: _Optional[_Union[AppendAnswer, _Mapping]] = ..., ask_pre_vote: _Optional[_Union[AskPreVote, _Mapping]] = ..., pre_vote: _Optional[_Union[PreVote, _Mapping]] = ...) -> None: ...

class RequestVote(_message.Message):
    __slots__ = ("term", "last_index", "last_term")
    TERM_FIELD_NUMBER: _ClassVar[int]
    LAST_INDEX_FIELD_NUMBER: _ClassVar[int]
    LAST_TERM_FIELD_NUMBER: _ClassVar[int]
    term: int
    last_index: int
    last_term: int
    def __init__(self, term: _Optional[int] = ..., last_index: _Optional[int] = ..., last_term: _Optional[int] = ...) -> None: ...

class Vote(_message.Message):
    __slots__ = ("term",)
    TERM_FIELD_NUMBER: _ClassVar[int]
    term: int
    def __init__(self, term: _Optional[int] = ...) -> None: ...

class LogEntry(_message.Message):
    __slots__ = ("index", "term", "command")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    COMMAND_FIELD_NUMBER: _ClassVar[int]
    index: int
    term: int
    command: bytes
    def __init__(self, index: _Optional[int] = ..., term: _Optional[int] = ..., command: _Optional[bytes] = ...) -> None: ...

class Append(_message.Message):
    __slots__ = ("term", "commit_index", "previous_index", "previous_term", "entries")
    TERM_FIELD_NUMBER: _ClassVar[int]
    COMMIT_INDEX_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_INDEX_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_TERM_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    term: int
    commit_index: int
    previous_index: int
    previous_term: int
    entries: _containers.RepeatedCompositeFieldContainer[LogEntry]
    def __init__(self, term: _Optional[int] = ..., commit_index: _Optional[int] = ..., previous_index: _Optional[int] = ..., previous_term: _Optional[int] = ..., entries: _Optional[_Iterable[_Union[LogEntry, _Mapping]]] = ...) -> None: ...

class SnapshotPart(_message.Message):
    __slots__ = ("term", "index", "entry_term", "position", "data", "is_last")
    TERM_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    ENTRY_TERM_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    IS_LAST_FIELD_NUMBER: _ClassVar[int]
    term: int
    index: int
    entry_term: int
    position: int
    data: bytes
    is_last: bool
    def __init__(self, term: _Optional[int] = ..., index: _Optional[int] = ..., entry_term: _Optional[int] = ..., position: _Optional[int] = ..., data: _Optional[bytes] = ..., is_last: _Optional[bool] = ...) -> None: ...

class AppendAnswer(_message.Message):
    __slots__ = ("next_index", "reset", "success")
    NEXT_INDEX_FIELD_NUMBER: _ClassVar[int]
    RESET_FIELD_NUMBER: _ClassVar[int]
    SUCCESS_FIELD_NUMBER: _ClassVar[int]
    next_index: int
    reset: bool
    success: bool
    def __init__(self, next_index: _Optional[int] = ..., reset: _Optional[bool] = ..., success: _Optional[bool] = ...) -> None: ...

class AskPreVote(_message.Message):
    __slots__ = ("term", "last_index", "last_term")
    TERM_FIELD_NUMBER: _ClassVar[int]
    LAST_INDEX_FIELD_NUMBER: _ClassVar[int]
    LAST_TERM_FIELD_NUMBER: _ClassVar[int]
    term: int
    last_index: int
    last_term: int
    def __init__(self, term: _Optional[int] = ..., last_index: _Optional[int] = ..., last_term: _Optional[int] = ...) -> None: ...

class PreVote(_message.Message):
    __slots__ = ("asked_term", "term", "granted")
    ASKED_TERM_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    GRANTED_FIELD_NUMBER: _ClassVar[int]
    asked_term: int
    term: int
    granted: bool
    def __init__(self, asked_term: _Optional[int] = ..., term: _Optional[int] = ..., granted: _Optional[bool] = ...) -> None: ...
