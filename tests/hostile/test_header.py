"""hostile-input.md, "Header": what stands in front of a request's body.

The codes are those of Kafka 4.3.1 (`tests/interop/differential/recorded.json`) unless a row says
why ours is stricter. "api before auth" has no row: there is no authentication yet, and every API
may come first.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import pytest

from ottla.proto.kafka.apis import API_TABLE, API_VERSIONS, FETCH, METADATA, PRODUCE, ApiRow
from ottla.proto.kafka.encode import encode_request
from ottla.proto.kafka.primitives import uvarint
from tests.hostile.stage import (
    CLOSED,
    MISSING,
    Closed,
    Target,
    codes_of,
    fetch_fields,
    framed,
    head_of,
    metadata_fields,
    produce_fields,
)

pytestmark = pytest.mark.integration

# Header v2 and header v1.
FLEXIBLE: Final = 12
PLAIN: Final = 8
# What Metadata says to a topic that is not there: the header was read.
READ: Final = (3,)


class Row(NamedTuple):
    """A header, and what comes back: all codes of the answer, or CLOSED."""

    head: bytes
    expected: tuple[int, ...] | Closed
    # Why we are stricter than Kafka, which answers.
    stricter: str = ""
    version: int = FLEXIBLE


def client(client_id: bytes | None, version: int = FLEXIBLE) -> bytes:
    return head_of(METADATA, version, client_id=client_id)


def tags(data: bytes) -> bytes:
    return head_of(METADATA, FLEXIBLE, tags=data)


def tagged(*fields: tuple[int, bytes]) -> bytes:
    return tags(
        uvarint(len(fields))
        + b"".join(uvarint(tag) + uvarint(len(data)) + data for tag, data in fields)
    )


NOT_TEXT: Final = "a client id is shown to people: Kafka puts replacement characters in"
NO_CLIENT: Final = "no client writes this, and who skips it may skip something that mattered"

HEADERS: Final[dict[str, Row]] = {
    "client id null": Row(client(None), READ),
    "client id empty": Row(client(b""), READ),
    "client id of 32,767 bytes": Row(client(b"c" * 32_767), READ),
    "client id that is not UTF-8": Row(client(b"\xff\xfe"), CLOSED, NOT_TEXT),
    "client id with a NUL": Row(client(b"a\x00b"), READ),
    "client id of length −2": Row(
        head_of(METADATA, FLEXIBLE, client_id=None)[:8] + b"\xff\xfe\x00", CLOSED, NO_CLIENT
    ),
    "client id longer than the frame": Row(
        head_of(METADATA, FLEXIBLE, client_id=None)[:8] + b"\x7f\xff", CLOSED
    ),
    "client id null, header v1": Row(client(None, PLAIN), READ, version=PLAIN),
    "client id that is not UTF-8, header v1": Row(
        client(b"\xff\xfe", PLAIN), CLOSED, NOT_TEXT, PLAIN
    ),
    "an unknown tag": Row(tagged((7, b"abc")), READ),
    "64 unknown tags": Row(tagged(*((i, b"") for i in range(64))), READ),
    "65 unknown tags": Row(
        tagged(*((i, b"") for i in range(65))),
        CLOSED,
        "a bound on what a header may cost (CVE-2026-111115); Kafka defines no tag here",
    ),
    "20,000,000 tags and no bytes for them": Row(tags(uvarint(20_000_000)), CLOSED),
    "a tag twice": Row(tagged((3, b"a"), (3, b"a")), CLOSED, NO_CLIENT),
    "tags out of order": Row(tagged((4, b"a"), (3, b"a")), CLOSED, NO_CLIENT),
    "a tag larger than the frame": Row(tags(b"\x01\x00" + uvarint(100_000)), CLOSED),
    "a tag of a negative size": Row(tags(b"\x01\x00\xff\xff\xff\xff\x0f"), CLOSED),
    "a number of more than 5 bytes": Row(tags(b"\x80\x80\x80\x80\x80\x00"), CLOSED),
    "a number of more than 10 bytes": Row(tags(b"\x80" * 11 + b"\x00"), CLOSED),
    "a number of 5 bytes that is more than 32 bits": Row(tags(b"\xff\xff\xff\xff\x7f"), CLOSED),
    "a number in two bytes where one does": Row(tags(b"\x80\x00"), READ),
    "a negative number of tags": Row(tags(b"\xff\xff\xff\xff\x0f"), CLOSED, NO_CLIENT),
}


@pytest.mark.parametrize("row", HEADERS.values(), ids=HEADERS.keys())
def test_a_header_is_read_or_the_connection_is_closed(attacked: Target, row: Row) -> None:
    body = encode_request(METADATA, row.version, metadata_fields(MISSING))
    answer = attacked.ask_raw(METADATA, row.version, framed(row.head + body))
    assert codes_of(answer) == row.expected


def test_twenty_million_tags_with_all_their_bytes_cost_no_objects(attacked: Target) -> None:
    before = attacked.memory
    with attacked.wire() as wire:
        frame = framed(tags(uvarint(20_000_000) + bytes(40_000_000)))
        assert wire.exchange(frame) is CLOSED
    # Kafka made 20 million objects of it, a gigabyte (CVE-2026-111115).
    attacked.settles(16 << 20, since=before)


@pytest.mark.parametrize("key", [-1, -32768, 4, 8, 36, 52, 62, 93, 999, 32767])
def test_an_api_that_is_not_served_closes_the_connection(attacked: Target, key: int) -> None:
    stranger = ApiRow(key, "Stranger", "", 0, 0, None)
    with attacked.wire() as wire:
        assert wire.exchange(framed(head_of(stranger, 0))) is CLOSED


@pytest.mark.parametrize(
    "row", [row for row in API_TABLE if row is not API_VERSIONS], ids=lambda row: row.name
)
def test_a_version_that_is_not_served_closes_the_connection(attacked: Target, row: ApiRow) -> None:
    for version in {-32768, -1, row.low - 1, row.high + 1, 32767} - {*range(row.low, row.high + 1)}:
        with attacked.wire() as wire:
            assert wire.exchange(framed(head_of(row, version))) is CLOSED


@pytest.mark.parametrize("version", [-32768, -1, 5, 127, 32767])
def test_a_version_of_api_versions_that_is_not_served_is_answered_in_version_0(
    attacked: Target, version: int
) -> None:
    """Kafka's own bytes: code 35, and the one row of ApiVersions itself (KIP-511)."""
    with attacked.wire() as wire:
        answer = wire.exchange(framed(head_of(API_VERSIONS, version)))
        assert answer == bytes.fromhex("00012cc9 0023 00000001 0012 0000 0004".replace(" ", ""))
        # The connection lives on: a client asks again, in version 0.
        assert codes_of(wire.ask(API_VERSIONS, 0, {})) == (0,)


SOFTWARE: Final[dict[str, tuple[str, str, int]]] = {
    "a good name": ("ottla-tests.1", "0.1", 0),
    "one letter": ("a", "1", 0),
    "empty": ("", "1", 42),
    "begins with a dash": ("-x", "1", 42),
    "ends in a dot": ("x.", "1", 42),
    "a blank in it": ("a b", "1", 42),
    "a line end behind it": ("a\n", "1", 42),
    "a letter beyond ASCII": ("é", "1", 42),
    "a version that is empty": ("a", "", 42),
    "a version with a slash": ("a", "1/2", 42),
}


@pytest.mark.parametrize("version", [3, 4])
@pytest.mark.parametrize(("name", "told", "code"), SOFTWARE.values(), ids=SOFTWARE.keys())
def test_a_client_that_calls_itself_strangely_is_refused_and_may_go_on(
    attacked: Target, name: str, told: str, code: int, version: int
) -> None:
    fields = {"client_software_name": name, "client_software_version": told}
    with attacked.wire() as wire:
        assert codes_of(wire.ask(API_VERSIONS, version, fields)) == (code,)
        assert codes_of(wire.ask(METADATA, 12, metadata_fields(MISSING))) == READ


TRAILING: Final = {
    "Metadata 1": (METADATA, 1, metadata_fields(MISSING), READ),
    "Metadata 12": (METADATA, 12, metadata_fields(MISSING), READ),
    "Produce 9": (PRODUCE, 9, produce_fields(MISSING, [(0, b"x")]), (3,)),
    "Produce 3": (PRODUCE, 3, produce_fields(MISSING, [(0, b"x")]), (3,)),
    "Fetch 4": (FETCH, 4, fetch_fields(topic=MISSING), (3,)),
    "Fetch 12": (FETCH, 12, fetch_fields(topic=MISSING), (0, 3)),
    "ApiVersions 0": (API_VERSIONS, 0, {}, (0,)),
}


@pytest.mark.parametrize(("row", "version", "fields", "codes"), TRAILING.values(), ids=TRAILING)
def test_bytes_after_the_body_are_let_be(
    attacked: Target, row: ApiRow, version: int, fields: dict[str, object], codes: tuple[int, ...]
) -> None:
    """As Kafka does: a later version of a client may have said more than we know."""
    body = encode_request(row, version, fields)
    frame = framed(head_of(row, version) + body + b"and more")
    assert codes_of(attacked.ask_raw(row, version, frame)) == codes
