"""Headers: what good ones say, and the list "Header" of bad ones, each with its exact outcome."""

from __future__ import annotations

import struct

import pytest

from ottla.proto.errors import LocalProtocolError, RemoteProtocolError
from ottla.proto.kafka.apis import (
    API_TABLE,
    API_VERSIONS,
    CREATE_ACLS,
    KNOWN_APIS,
    METADATA,
    PRODUCE,
    ApiRow,
)
from ottla.proto.kafka.framing import (
    RequestHead,
    UnsupportedApiError,
    read_request_head,
    read_response_head,
    request_frame,
    response_head,
)
from ottla.proto.kafka.primitives import TAGS_MAX
from tests.unit.proto.kafka.kio_messages import VERSIONS, entity_class, written


def head(key: int, version: int, client: bytes = b"\xff\xff", rest: bytes = b"") -> memoryview:
    return memoryview(struct.pack(">hhi", key, version, 7) + client + rest)


# Metadata 12 is flexible: after the client id come tags.
def with_tags(tags: bytes) -> memoryview:
    return head(METADATA.key, 12, rest=tags)


def test_headers_are_the_ones_that_kio_writes() -> None:
    for row, version in VERSIONS:
        request = entity_class(row, version, "request").__header_schema__
        for client_id in (None, "", "grün"):
            expected = written(
                request(
                    request_api_key=row.key,
                    request_api_version=version,
                    correlation_id=-7,
                    client_id=client_id,
                )
            )
            frame = request_frame(row, version, -7, client_id, b"body")
            assert frame == struct.pack(">i", len(expected) + 4) + expected + b"body"
            assert read_request_head(memoryview(frame)[4:], {row.key: row}) == RequestHead(
                row.key, version, -7, client_id, len(expected)
            )
        response = entity_class(row, version, "response").__header_schema__
        expected = written(response(correlation_id=2**31 - 1))
        assert response_head(row, version, 2**31 - 1) == expected
        assert read_response_head(row, version, expected + b"body") == (2**31 - 1, len(expected))


@pytest.mark.parametrize("size", range(10))
def test_a_header_that_is_cut_is_refused(size: int) -> None:
    with pytest.raises(RemoteProtocolError, match="ends before it does"):
        read_request_head(head(METADATA.key, 1)[:size])
    with pytest.raises(RemoteProtocolError, match="ends before it does"):
        read_response_head(METADATA, 12, bytes(min(size, 4)))


@pytest.mark.parametrize("key", [-1, 4, 7, 93, 999, 2**15 - 1])
def test_an_unknown_api_is_not_served(key: int) -> None:
    with pytest.raises(UnsupportedApiError) as caught:
        read_request_head(head(key, 3, b"\x00\x02me"))
    error = caught.value
    assert (error.api_key, error.api_version) == (key, 3)
    assert (error.client_id, error.correlation_id) == ("me", 7)


def test_an_api_that_only_the_codec_knows_is_not_served() -> None:
    with pytest.raises(UnsupportedApiError):
        read_request_head(head(CREATE_ACLS.key, 0))


@pytest.mark.parametrize("row", [row for row in API_TABLE if row is not API_VERSIONS], ids=repr)
def test_versions_outside_the_range_are_not_served(row: ApiRow) -> None:
    for version in (-1, row.low - 1, row.high + 1, 2**15 - 1):
        with pytest.raises(UnsupportedApiError):
            read_request_head(head(row.key, version, rest=b"\x00"))


def test_produce_0_is_told_but_not_served() -> None:
    assert PRODUCE.advertised_low == 0
    with pytest.raises(UnsupportedApiError):
        read_request_head(head(PRODUCE.key, 0))


@pytest.mark.parametrize("version", [-1, 5, 9, 2**15 - 1])
@pytest.mark.parametrize("rest", [b"", b"\x00", b"\xff\xff\xff\xff\xff", b"\x01\x00"])
def test_any_version_of_api_versions_is_let_through_whatever_follows(
    version: int, rest: bytes
) -> None:
    payload = head(API_VERSIONS.key, version, b"\x00\x01c", rest)
    assert read_request_head(payload) == RequestHead(18, version, 7, "c", len(payload))


def test_the_answer_to_api_versions_never_has_tags() -> None:
    for version in range(-1, 10):
        assert response_head(API_VERSIONS, version, 7) == b"\x00\x00\x00\x07"


@pytest.mark.parametrize(
    ("raw", "client_id"),
    [
        (b"\xff\xff", None),
        (b"\x00\x00", ""),
        (b"\x00\x03a\x00b", "a\0b"),
        (b"\x7f\xff" + b"x" * 0x7FFF, "x" * 0x7FFF),
    ],
    ids=["null", "empty", "nul inside", "32 KiB"],
)
def test_odd_client_ids_are_read(raw: bytes, client_id: str | None) -> None:
    assert read_request_head(head(METADATA.key, 1, raw)).client_id == client_id


@pytest.mark.parametrize(
    ("raw", "sentence"),
    [
        (b"\xff\xfe", "client id: a text of -2 bytes"),
        (b"\x80\x00", "client id: a text of -32768 bytes"),
        (b"\x00\x05abcd", "client id: a text of 5 bytes, where 4 are left"),
        (b"\x7f\xff", "client id: a text of 32767 bytes, where 0 are left"),
        (b"\x00\x02\xc3\x28", "client id: a text that is not UTF-8"),
        (b"\x00\x03\xed\xa0\x80", "client id: a text that is not UTF-8"),
    ],
)
def test_bad_client_ids_are_refused(raw: bytes, sentence: str) -> None:
    with pytest.raises(RemoteProtocolError, match=sentence):
        read_request_head(head(METADATA.key, 1, raw))


@pytest.mark.parametrize(
    ("tags", "sentence"),
    [
        (b"", "ends before it does"),
        (b"\x01", "ends before it does"),
        (b"\x01\x00", "ends before it does"),
        # 20,000,000 fields of two bytes each, were they believed.
        (b"\x80\xda\xc4\x09" + b"\x00\x00" * 1000, "20000000 tagged fields; 64 are allowed"),
        (b"\x41" + b"".join(bytes((tag, 0)) for tag in range(65)), "65 tagged fields"),
        (b"\x02\x05\x00\x04\x00", "tagged field 4 comes after 5"),
        (b"\x02\x05\x00\x05\x00", "tagged field 5 comes after 5"),
        (b"\x01\x05\x03ab", "tagged field 5 of 3 bytes, where 2 are left"),
        (b"\x01\x05\xff\xff\xff\xff\x0f", "tagged field 5 of 4294967295 bytes, where 0 are left"),
        (b"\x80\x80\x80\x80\x80\x00", "more than 32 bits"),
        (b"\xff" * 11, "more than 32 bits"),
        (b"\x80\x80\x80\x80\x10", "more than 32 bits"),
        (b"\x80\x80\x80\x80", "ends before it does"),
    ],
)
def test_bad_tags_are_refused(tags: bytes, sentence: str) -> None:
    with pytest.raises(RemoteProtocolError, match=f"request header, tagged fields: .*{sentence}"):
        read_request_head(with_tags(tags))


def test_unknown_tags_are_stepped_over() -> None:
    tags = bytes([TAGS_MAX]) + b"".join(bytes((tag, 1, 0xAA)) for tag in range(TAGS_MAX))
    assert read_request_head(with_tags(tags + b"body")).body_at == 10 + len(tags)
    # A number that is longer than it needs to be is the same number, for Kafka and for us.
    assert read_request_head(with_tags(b"\x80\x80\x80\x80\x00body")).body_at == 15


def test_a_client_id_of_ours_that_is_too_long_is_our_mistake() -> None:
    with pytest.raises(LocalProtocolError, match="32768 bytes"):
        request_frame(METADATA, 1, 1, "x" * 0x8000, b"")


def test_each_number_stands_for_one_api() -> None:
    assert len({row.key for row in KNOWN_APIS}) == len(KNOWN_APIS)
    assert [row.key for row in KNOWN_APIS] == sorted(row.key for row in KNOWN_APIS)
    assert all(row.served for row in API_TABLE)
    assert API_TABLE[0] is PRODUCE
    assert repr(PRODUCE) == "<Produce 3–13>"
