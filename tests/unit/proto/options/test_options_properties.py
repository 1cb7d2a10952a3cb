"""What is written is read back: properties files, and the values of every row."""

from __future__ import annotations

import contextlib

from hypothesis import given
from hypothesis import strategies as st

from ottla.proto.errors import ConfigError
from ottla.proto.ids import BrokerId
from ottla.proto.options import node
from ottla.proto.options.endpoints import LISTENERS, VOTERS, Address, Voter
from ottla.proto.options.load import load
from ottla.proto.options.option import environment_name
from ottla.proto.options.properties import parse_properties
from ottla.proto.options.sources import ConfigFile

# Lone halves of surrogate pairs are no text in UTF-8.
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
KEYS = TEXT.filter(bool)
SPECIAL = str.maketrans({"\n": "\\n", "\r": "\\r", "\t": "\\t", "\f": "\\f", "\\": "\\\\"})


def escaped_key(key: str) -> str:
    return "".join("\\" + c if c in " =:#!" else c for c in key.translate(SPECIAL))


def escaped_value(value: str, *, in_ascii: bool) -> str:
    escaped = value.translate(SPECIAL)
    # Right after a blank these would be taken for the rest of the separator.
    if escaped.startswith((" ", "=", ":")):
        escaped = "\\" + escaped
    if not in_ascii:
        return escaped
    units = escaped.encode("utf-16-be")
    pairs = [int.from_bytes(units[i : i + 2]) for i in range(0, len(units), 2)]
    return "".join(chr(u) if u < 128 else f"\\u{u:04x}" for u in pairs)


@given(
    st.dictionaries(KEYS, TEXT, max_size=6),
    st.booleans(),
    st.sampled_from(["=", ":", " ", " = ", "\t:\f"]),
    st.sampled_from(["\n", "\r\n", "\r", "\n\n# comment\n", "\n  ! comment \\\n"]),
)
def test_any_properties_survive_writing_and_reading(
    properties: dict[str, str], in_ascii: bool, separator: str, line_end: str
) -> None:
    lines = (
        escaped_key(key) + separator + escaped_value(value, in_ascii=in_ascii)
        for key, value in properties.items()
    )
    found = parse_properties(line_end.join(lines).encode(), file_name="f")
    assert {key: prop.value for key, prop in found.items()} == properties


@given(st.binary(max_size=200))
def test_any_bytes_are_properties_or_a_config_error(data: bytes) -> None:
    with contextlib.suppress(ConfigError):
        parse_properties(data, file_name="f")


FLAGS = st.dictionaries(
    st.one_of(st.sampled_from(sorted(node.BY_ANY_NAME)), TEXT),
    st.one_of(st.integers().map(str), TEXT),
    max_size=3,
)


@given(FLAGS, FLAGS, st.binary(max_size=60))
def test_any_sources_are_options_or_a_config_error(
    flags: dict[str, str], in_environment: dict[str, str], data: bytes
) -> None:
    environment = {environment_name(name): text for name, text in in_environment.items()}
    with contextlib.suppress(ConfigError):
        load(file=ConfigFile("f", data), environment=environment, flags=flags)


ADDRESSES = st.builds(
    Address,
    st.one_of(
        st.from_regex(r"[a-z]([a-z0-9_-]{0,9}[a-z0-9])?(\.[a-z])?", fullmatch=True),
        st.ip_addresses().map(str),
    ),
    st.integers(1, 65535),
)


@given(st.lists(ADDRESSES, unique=True, max_size=5))
def test_any_voters_can_be_written_down_and_given_back(addresses: list[Address]) -> None:
    voters = tuple(Voter(BrokerId(n), address) for n, address in enumerate(addresses))
    assert VOTERS.parse(VOTERS.text_of(voters)) == voters


@given(st.text(max_size=40))
def test_any_text_is_an_endpoint_list_or_a_value_error(text: str) -> None:
    for kind in (LISTENERS, VOTERS):
        with contextlib.suppress(ValueError):
            kind.parse(text)
