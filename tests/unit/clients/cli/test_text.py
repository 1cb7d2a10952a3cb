"""Lines that become records, and records that become lines."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.clients.cli.text import (
    BadLineError,
    JsonRule,
    LineRule,
    Printed,
    as_json,
    parse_separator,
    parse_template,
    parse_time,
    time_text,
)
from ottla.proto.errors import ConfigError

RECORD = Printed(
    topic="orders",
    partition=2,
    offset=41,
    timestamp_ms=1_794_820_126_222,
    key=b"k",
    value="ä€".encode(),
    headers=[("a", b"1"), ("b", None)],
)


@pytest.mark.parametrize(
    ("line", "key", "value"),
    [
        (b"a:1\n", b"a", b"1"),
        (b"a:1", b"a", b"1"),
        (b"a:1:2\n", b"a", b"1:2"),
        (b":\n", b"", b""),
        (b"NULL:NULL\n", None, None),
        (b"NULL :NULL\r\n", b"NULL ", b"NULL\r"),
        (b"\x00\xff:\xfe\n", b"\x00\xff", b"\xfe"),
    ],
)
def test_a_line_is_cut_at_the_first_separator(line: bytes, key: bytes, value: bytes) -> None:
    assert LineRule(b":", b"NULL").parse(line, 1)[:2] == (key, value)


def test_without_a_separator_the_whole_line_is_the_value() -> None:
    rule = LineRule(None, None)
    assert rule.parse(b"a:1\n", 1)[:2] == (None, b"a:1")
    assert rule.parse(b"\n", 2)[:2] == (None, b"")
    assert rule.parse(b"null", 3)[:2] == (None, b"null")


def test_a_line_without_its_separator_is_named() -> None:
    with pytest.raises(BadLineError, match=r'^line 7 has no "\\t" between a key and a value\.$'):
        LineRule(b"\t", None).parse(b"abc\n", 7)


@given(st.binary().filter(lambda raw: b"\n" not in raw), st.binary(min_size=1))
def test_what_is_joined_by_a_separator_is_cut_there_again(value: bytes, separator: bytes) -> None:
    key = b"key".replace(separator, b"")
    if separator in key + separator[:-1] or separator.endswith(b"\n"):
        return
    assert LineRule(separator, None).parse(key + separator + value, 1)[:2] == (key, value)


@pytest.mark.parametrize(
    ("text", "separator"), [(":", b":"), ("=>", b"=>"), (r"\t", b"\t"), ("n", b"n"), (r"\\", b"\\")]
)
def test_a_separator_may_be_a_tab(text: str, separator: bytes) -> None:
    assert parse_separator(text) == separator


def test_a_separator_may_not_be_empty() -> None:
    with pytest.raises(ConfigError):
        parse_separator("")


@pytest.mark.parametrize(
    ("template", "printed"),
    [
        ("{value}", "ä€"),
        ("{topic}-{partition}@{offset}", "orders-2@41"),
        (r"{key}\t{size}\\", "k\t5\\"),
        ("{{{key}}}", "{k}"),
        ("{headers}", "a=1,b=null"),
        ("{timestamp} {time}", "1794820126222 2026-11-16T09:08:46.222Z"),
        ("", ""),
    ],
)
def test_a_template_shows_what_it_names(template: str, printed: str) -> None:
    assert parse_template(template).render(RECORD) == printed.encode()


def test_null_is_shown_as_it_was_asked_for() -> None:
    empty = RECORD._replace(key=None, value=None, timestamp_ms=None)
    assert parse_template("{key} {value} {time}", null="-").render(empty) == b"- - -"


@pytest.mark.parametrize(
    ("template", "told"),
    [
        ("{valeu}", 'no field "valeu"; there are {topic}, {partition}'),
        ("{value.__class__}", "no field"),
        ("{", "a single { means nothing"),
        ("a}", "a single } means nothing"),
        (r"\q", "means nothing; a backslash is written"),
    ],
)
def test_a_template_that_means_nothing_is_refused(template: str, told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_template(template)
    assert told in str(caught.value)


@given(st.binary())
def test_a_value_is_printed_byte_for_byte(value: bytes) -> None:
    assert parse_template("{value}").render(RECORD._replace(value=value)) == value


def test_json_gives_text_where_it_is_text_and_base64_elsewhere() -> None:
    told = as_json(RECORD._replace(key=b"\xff", headers=[("h", b"\xfe")]))
    assert json.loads(json.dumps(told)) == {
        "topic": "orders",
        "partition": 2,
        "offset": 41,
        "timestamp": 1_794_820_126_222,
        "key_base64": "/w==",
        "value": "ä€",
        "headers": [{"name": "h", "value_base64": "/g=="}],
    }


@pytest.mark.parametrize(
    ("text", "timestamp_ms"),
    [
        ("0", 0),
        ("1794820126222", 1_794_820_126_222),
        ("2026-11-16T09:08:46.222Z", 1_794_820_126_222),
        ("2026-11-16T10:08:46.222+01:00", 1_794_820_126_222),
        ("2026-11-16", 1_794_787_200_000),
    ],
)
def test_a_time_is_a_number_or_a_date(text: str, timestamp_ms: int) -> None:
    assert parse_time(text) == timestamp_ms


@pytest.mark.parametrize("text", ["", "yesterday", "-1", "99999999999999999999", "2026-13-01"])
def test_another_text_is_no_time(text: str) -> None:
    with pytest.raises(ConfigError, match="a time is milliseconds since 1970"):
        parse_time(text)


def test_a_time_beyond_all_calendars_is_shown_as_a_number() -> None:
    assert time_text(2**63 - 1) == str(2**63 - 1)


def test_a_record_that_was_printed_as_json_can_be_written_again() -> None:
    record = RECORD._replace(key=b"\xff", headers=[("a", b"1"), ("b", None), ("c", b"\xfe")])
    line = json.dumps(as_json(record)).encode()
    parsed = JsonRule().parse(line, 1)
    assert (parsed.key, parsed.value) == (record.key, record.value)
    assert parsed.headers == tuple(record.headers)
    assert parsed.timestamp_ms == record.timestamp_ms


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (b"{", "line 3 is not JSON."),
        (b"[" * 100_000, "line 3 is not JSON."),
        (b"\xff", "line 3 is not JSON."),
        (b"7", "line 3 is not a JSON object."),
        (b'{"key": "k"}', "line 3 has no value; one that is null is written so."),
        (b'{"vlaue": "v"}', 'line 3 has a "vlaue", which no record has.'),
        (b'{"value": 7}', "line 3: a value is text or null; put other JSON in quotes."),
        (b'{"value_base64": "?"}', "line 3: value_base64 is not base64."),
        (b'{"value": "\\ud800"}', "line 3: the value is no text that can be encoded."),
        (b'{"value": "", "timestamp": -1}', "line 3: a timestamp is milliseconds since 1970."),
        (b'{"value": "", "timestamp": true}', "line 3: a timestamp is milliseconds since 1970."),
        (b'{"value": "", "headers": {}}', "line 3: headers are a list of objects."),
        (
            b'{"value": "", "headers": [1]}',
            "line 3: a header is an object with a name and a value.",
        ),
    ],
)
def test_a_line_that_is_no_record_is_named(line: bytes, told: str) -> None:
    with pytest.raises(BadLineError) as refused:
        JsonRule().parse(line, 3)
    assert str(refused.value) == told
