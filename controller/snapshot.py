"""All that a quorum agrees on, as bytes: what replaces the beginning of its log.

  4 bytes "OTTS" | u8 format | the state | u32 CRC-32C of all before it

An image alone, with which the stream to a broker begins, is the same with "OTTI".

Not here: where it is kept, and trimming the log behind it (the quorum).

T1  what was written is read back equal
T2  whatever is not exactly that raises `StorageError`: a member never starts from a guess
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from struct import Struct
from typing import Final, TypeVar

from crc32c import crc32c

from ottla.controller.image import FEATURE_LEVEL, MetadataImage
from ottla.controller.parts import (
    BROKER,
    DEFAULTS,
    OPTIONS,
    TOPIC,
    read_endpoints,
    write_endpoints,
)
from ottla.controller.replay import MetadataState, Session
from ottla.controller.shapes import (
    BYTES,
    FLAG,
    NUMBER,
    TEXT,
    Reader,
    Shape,
    listed,
    mapped,
    paired,
    record,
)
from ottla.proto.errors import StorageError

_STATE_MAGIC: Final = b"OTTS"
_IMAGE_MAGIC: Final = b"OTTI"
_FORMAT: Final = 1
_SEAL: Final = Struct(">I")
_HEAD_BYTES: Final = len(_STATE_MAGIC) + 1

K = TypeVar("K")
V = TypeVar("V")

_SESSIONS: Final = mapped(
    NUMBER,
    record(
        Session,
        node_id=NUMBER,
        is_office=FLAG,
        floor=NUMBER,
        remembered=listed(paired(NUMBER, BYTES)),
    ),
)


def _keyed(shape: Shape[V], key_of: Callable[[V], K]) -> Shape[Mapping[K, V]]:
    """Return the shape of a map whose values know their keys. Its order is kept."""
    values = listed(shape)

    def read(reader: Reader) -> Mapping[K, V]:
        found = values.read(reader)
        by_key = {key_of(value): value for value in found}
        if len(by_key) < len(found):
            raise reader.garbage("two of its parts have the same name")
        return by_key

    return Shape(lambda out, by_key: values.write(out, tuple(by_key.values())), read)


_IMAGE: Final = record(
    MetadataImage,
    version=NUMBER,
    cluster_id=TEXT,
    controller_id=NUMBER,
    brokers=_keyed(BROKER, lambda broker: broker.broker_id),
    topics=_keyed(TOPIC, lambda topic: topic.name),
    broker_configs=mapped(TEXT, OPTIONS),
    next_producer_id=NUMBER,
    controller_epoch=NUMBER,
    digest=BYTES,
    feature_level=NUMBER,
    defaults=DEFAULTS,
)


def encode_state(state: MetadataState) -> bytes:
    out = bytearray()
    _IMAGE.write(out, state.image)
    _SESSIONS.write(out, state.sessions)
    write_endpoints(out, state.image.brokers.values())
    return _sealed(_STATE_MAGIC, out)


def decode_state(data: bytes) -> MetadataState:
    """Return the state, or raise `StorageError`."""
    reader = _opened(_STATE_MAGIC, data, "The snapshot of the metadata")
    image = _read_image(reader)
    sessions = _SESSIONS.read(reader)
    return MetadataState(_completed(reader, image), sessions)


def encode_image(image: MetadataImage) -> bytes:
    """Return an image for a broker, to which sessions are nothing."""
    out = bytearray()
    _IMAGE.write(out, image)
    write_endpoints(out, image.brokers.values())
    return _sealed(_IMAGE_MAGIC, out)


def decode_image(data: bytes) -> MetadataImage:
    """Return the image, or raise `StorageError`."""
    reader = _opened(_IMAGE_MAGIC, data, "The image of the metadata")
    return _completed(reader, _read_image(reader))


def _read_image(reader: Reader) -> MetadataImage:
    image = _IMAGE.read(reader)
    if image.feature_level > FEATURE_LEVEL:
        raise StorageError(
            f"{reader.what} is of feature level {image.feature_level}, and this version of Ottla "
            f"knows levels up to {FEATURE_LEVEL}. Start the version that wrote it, or a later one."
        )
    names = {topic.topic_id: name for name, topic in image.topics.items()}
    if len(names) < len(image.topics):
        raise reader.garbage("two topics have the same id")
    return replace(image, topic_names=names)


def _completed(reader: Reader, image: MetadataImage) -> MetadataImage:
    """Return the image with what stands behind everything else, which must be the end."""
    brokers = read_endpoints(reader, image.brokers.values())
    reader.require_end()
    return replace(image, brokers={one.broker_id: one for one in brokers})


def _sealed(magic: bytes, body: bytes | bytearray) -> bytes:
    data = magic + bytes([_FORMAT]) + body
    return data + _SEAL.pack(crc32c(data))


def _opened(magic: bytes, data: bytes, what: str) -> Reader:
    reader = Reader(data[_HEAD_BYTES : -_SEAL.size], what)
    if len(data) < _HEAD_BYTES + _SEAL.size or not data.startswith(magic):
        raise reader.garbage("it does not begin as one")
    if _SEAL.pack(crc32c(data[: -_SEAL.size])) != data[-_SEAL.size :]:
        raise reader.garbage("its checksum is wrong")
    found = data[len(magic)]
    if found != _FORMAT:
        raise StorageError(
            f"{what} is of format {found}, and this version of Ottla reads format {_FORMAT}. Start "
            "the version that wrote it, or a later one."
        )
    return reader
