from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class NotActive(_message.Message):
    __slots__ = ("leader",)
    LEADER_FIELD_NUMBER: _ClassVar[int]
    leader: int
    def __init__(self, leader: _Optional[int] = ...) -> None: ...

class Denied(_message.Message):
    __slots__ = ("code", "sentence")
    CODE_FIELD_NUMBER: _ClassVar[int]
    SENTENCE_FIELD_NUMBER: _ClassVar[int]
    code: int
    sentence: str
    def __init__(self, code: _Optional[int] = ..., sentence: _Optional[str] = ...) -> None: ...

class Unresolved(_message.Message):
    __slots__ = ("sentence",)
    SENTENCE_FIELD_NUMBER: _ClassVar[int]
    sentence: str
    def __init__(self, sentence: _Optional[str] = ...) -> None: ...

class Nothing(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Registration(_message.Message):
    __slots__ = ("cluster_id", "broker_id", "incarnation", "directory_id", "boot_id", "previous_epoch", "host", "port", "internal_host", "internal_port", "rack", "feature_level_max", "endpoints")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    DIRECTORY_ID_FIELD_NUMBER: _ClassVar[int]
    BOOT_ID_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_EPOCH_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    INTERNAL_HOST_FIELD_NUMBER: _ClassVar[int]
    INTERNAL_PORT_FIELD_NUMBER: _ClassVar[int]
    RACK_FIELD_NUMBER: _ClassVar[int]
    FEATURE_LEVEL_MAX_FIELD_NUMBER: _ClassVar[int]
    ENDPOINTS_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    broker_id: int
    incarnation: bytes
    directory_id: bytes
    boot_id: bytes
    previous_epoch: int
    host: str
    port: int
    internal_host: str
    internal_port: int
    rack: str
    feature_level_max: int
    endpoints: _containers.RepeatedCompositeFieldContainer[ClientEndpoint]
    def __init__(self, cluster_id: _Optional[str] = ..., broker_id: _Optional[int] = ..., incarnation: _Optional[bytes] = ..., directory_id: _Optional[bytes] = ..., boot_id: _Optional[bytes] = ..., previous_epoch: _Optional[int] = ..., host: _Optional[str] = ..., port: _Optional[int] = ..., internal_host: _Optional[str] = ..., internal_port: _Optional[int] = ..., rack: _Optional[str] = ..., feature_level_max: _Optional[int] = ..., endpoints: _Optional[_Iterable[_Union[ClientEndpoint, _Mapping]]] = ...) -> None: ...

class ClientEndpoint(_message.Message):
    __slots__ = ("listener", "host", "port")
    LISTENER_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    listener: str
    host: str
    port: int
    def __init__(self, listener: _Optional[str] = ..., host: _Optional[str] = ..., port: _Optional[int] = ...) -> None: ...

class RegistrationAnswer(_message.Message):
    __slots__ = ("broker_epoch", "not_active", "denied")
    BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    NOT_ACTIVE_FIELD_NUMBER: _ClassVar[int]
    DENIED_FIELD_NUMBER: _ClassVar[int]
    broker_epoch: int
    not_active: NotActive
    denied: Denied
    def __init__(self, broker_epoch: _Optional[int] = ..., not_active: _Optional[_Union[NotActive, _Mapping]] = ..., denied: _Optional[_Union[Denied, _Mapping]] = ...) -> None: ...

class DamagedTopic(_message.Message):
    __slots__ = ("topic_id", "partitions")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    topic_id: bytes
    partitions: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, topic_id: _Optional[bytes] = ..., partitions: _Optional[_Iterable[int]] = ...) -> None: ...

class Beat(_message.Message):
    __slots__ = ("broker_id", "broker_epoch", "applied_version", "is_recovered", "wants_fence", "wants_shutdown", "damaged")
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    APPLIED_VERSION_FIELD_NUMBER: _ClassVar[int]
    IS_RECOVERED_FIELD_NUMBER: _ClassVar[int]
    WANTS_FENCE_FIELD_NUMBER: _ClassVar[int]
    WANTS_SHUTDOWN_FIELD_NUMBER: _ClassVar[int]
    DAMAGED_FIELD_NUMBER: _ClassVar[int]
    broker_id: int
    broker_epoch: int
    applied_version: int
    is_recovered: bool
    wants_fence: bool
    wants_shutdown: bool
    damaged: _containers.RepeatedCompositeFieldContainer[DamagedTopic]
    def __init__(self, broker_id: _Optional[int] = ..., broker_epoch: _Optional[int] = ..., applied_version: _Optional[int] = ..., is_recovered: _Optional[bool] = ..., wants_fence: _Optional[bool] = ..., wants_shutdown: _Optional[bool] = ..., damaged: _Optional[_Iterable[_Union[DamagedTopic, _Mapping]]] = ...) -> None: ...

class Heartbeat(_message.Message):
    __slots__ = ("beat", "goodbye")
    BEAT_FIELD_NUMBER: _ClassVar[int]
    GOODBYE_FIELD_NUMBER: _ClassVar[int]
    beat: Beat
    goodbye: Nothing
    def __init__(self, beat: _Optional[_Union[Beat, _Mapping]] = ..., goodbye: _Optional[_Union[Nothing, _Mapping]] = ...) -> None: ...

class BeatAnswer(_message.Message):
    __slots__ = ("refusal", "is_fenced", "may_exit", "version")
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    IS_FENCED_FIELD_NUMBER: _ClassVar[int]
    MAY_EXIT_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    refusal: int
    is_fenced: bool
    may_exit: bool
    version: int
    def __init__(self, refusal: _Optional[int] = ..., is_fenced: _Optional[bool] = ..., may_exit: _Optional[bool] = ..., version: _Optional[int] = ...) -> None: ...

class HeartbeatAnswer(_message.Message):
    __slots__ = ("heard", "not_active")
    HEARD_FIELD_NUMBER: _ClassVar[int]
    NOT_ACTIVE_FIELD_NUMBER: _ClassVar[int]
    heard: BeatAnswer
    not_active: NotActive
    def __init__(self, heard: _Optional[_Union[BeatAnswer, _Mapping]] = ..., not_active: _Optional[_Union[NotActive, _Mapping]] = ...) -> None: ...

class Proposed(_message.Message):
    __slots__ = ("proposal", "client")
    PROPOSAL_FIELD_NUMBER: _ClassVar[int]
    CLIENT_FIELD_NUMBER: _ClassVar[int]
    proposal: bytes
    client: str
    def __init__(self, proposal: _Optional[bytes] = ..., client: _Optional[str] = ...) -> None: ...

class ProposalAnswer(_message.Message):
    __slots__ = ("outcome", "not_active", "denied", "unresolved")
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    NOT_ACTIVE_FIELD_NUMBER: _ClassVar[int]
    DENIED_FIELD_NUMBER: _ClassVar[int]
    UNRESOLVED_FIELD_NUMBER: _ClassVar[int]
    outcome: bytes
    not_active: NotActive
    denied: Denied
    unresolved: Unresolved
    def __init__(self, outcome: _Optional[bytes] = ..., not_active: _Optional[_Union[NotActive, _Mapping]] = ..., denied: _Optional[_Union[Denied, _Mapping]] = ..., unresolved: _Optional[_Union[Unresolved, _Mapping]] = ...) -> None: ...

class VersionAnswer(_message.Message):
    __slots__ = ("version", "not_active")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    NOT_ACTIVE_FIELD_NUMBER: _ClassVar[int]
    version: int
    not_active: NotActive
    def __init__(self, version: _Optional[int] = ..., not_active: _Optional[_Union[NotActive, _Mapping]] = ...) -> None: ...

class Quorum(_message.Message):
    __slots__ = ("node_id", "standing", "role", "term", "leader", "voters", "first_index", "last_index", "commit_index", "applied_index", "acknowledged", "halted", "observers", "admitted", "trouble")
    class AcknowledgedEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: int
        def __init__(self, key: _Optional[int] = ..., value: _Optional[int] = ...) -> None: ...
    class ObserversEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: int
        def __init__(self, key: _Optional[int] = ..., value: _Optional[int] = ...) -> None: ...
    class AdmittedEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: str
        def __init__(self, key: _Optional[int] = ..., value: _Optional[str] = ...) -> None: ...
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    STANDING_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    VOTERS_FIELD_NUMBER: _ClassVar[int]
    FIRST_INDEX_FIELD_NUMBER: _ClassVar[int]
    LAST_INDEX_FIELD_NUMBER: _ClassVar[int]
    COMMIT_INDEX_FIELD_NUMBER: _ClassVar[int]
    APPLIED_INDEX_FIELD_NUMBER: _ClassVar[int]
    ACKNOWLEDGED_FIELD_NUMBER: _ClassVar[int]
    HALTED_FIELD_NUMBER: _ClassVar[int]
    OBSERVERS_FIELD_NUMBER: _ClassVar[int]
    ADMITTED_FIELD_NUMBER: _ClassVar[int]
    TROUBLE_FIELD_NUMBER: _ClassVar[int]
    node_id: int
    standing: str
    role: str
    term: int
    leader: int
    voters: _containers.RepeatedScalarFieldContainer[int]
    first_index: int
    last_index: int
    commit_index: int
    applied_index: int
    acknowledged: _containers.ScalarMap[int, int]
    halted: str
    observers: _containers.ScalarMap[int, int]
    admitted: _containers.ScalarMap[int, str]
    trouble: str
    def __init__(self, node_id: _Optional[int] = ..., standing: _Optional[str] = ..., role: _Optional[str] = ..., term: _Optional[int] = ..., leader: _Optional[int] = ..., voters: _Optional[_Iterable[int]] = ..., first_index: _Optional[int] = ..., last_index: _Optional[int] = ..., commit_index: _Optional[int] = ..., applied_index: _Optional[int] = ..., acknowledged: _Optional[_Mapping[int, int]] = ..., halted: _Optional[str] = ..., observers: _Optional[_Mapping[int, int]] = ..., admitted: _Optional[_Mapping[int, str]] = ..., trouble: _Optional[str] = ...) -> None: ...

class QuorumAnswer(_message.Message):
    __slots__ = ("quorum", "not_active")
    QUORUM_FIELD_NUMBER: _ClassVar[int]
    NOT_ACTIVE_FIELD_NUMBER: _ClassVar[int]
    quorum: Quorum
    not_active: NotActive
    def __init__(self, quorum: _Optional[_Union[Quorum, _Mapping]] = ..., not_active: _Optional[_Union[NotActive, _Mapping]] = ...) -> None: ...

class Followed(_message.Message):
    __slots__ = ("version", "digest")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    version: int
    digest: bytes
    def __init__(self, version: _Optional[int] = ..., digest: _Optional[bytes] = ...) -> None: ...

class NewsPart(_message.Message):
    __slots__ = ("version", "is_image", "data", "left")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    IS_IMAGE_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    LEFT_FIELD_NUMBER: _ClassVar[int]
    version: int
    is_image: bool
    data: bytes
    left: int
    def __init__(self, version: _Optional[int] = ..., is_image: _Optional[bool] = ..., data: _Optional[bytes] = ..., left: _Optional[int] = ...) -> None: ...
