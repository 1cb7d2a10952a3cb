"""What stands in a record, and how a wrong one gives itself away."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ottla.chaos.history import Place
from ottla.chaos.payload import KEYS, decode_payload, encode_payload, key_of, wire_name

HERE = Place("orders", 2)
TOPICS = st.text("abz09._-#", min_size=1, max_size=20)
VALUES = st.builds("{}-{}".format, st.sampled_from(["w1", "k2.3", "a1"]), st.integers(1, 10**7))


@given(topic=TOPICS, partition=st.integers(0, 10_000), value=VALUES)
def test_a_payload_is_read_back_in_its_own_partition(
    topic: str, partition: int, value: str
) -> None:
    place = Place(topic, partition)
    assert decode_payload(place, encode_payload(place, value)) == value


@given(value=VALUES, partition=st.integers(0, 50), topic=TOPICS)
def test_a_payload_of_another_partition_is_none_of_ours(
    value: str, partition: int, topic: str
) -> None:
    other = Place(topic, partition)
    if other != HERE:
        assert decode_payload(HERE, encode_payload(other, value)) is None


@given(value=VALUES, data=st.data())
def test_a_payload_with_one_changed_byte_is_none_of_ours(value: str, data: st.DataObject) -> None:
    payload = bytearray(encode_payload(HERE, value))
    at = data.draw(st.integers(0, len(payload) - 1))
    payload[at] ^= data.draw(st.integers(1, 255))
    assert decode_payload(HERE, bytes(payload)) is None


@given(data=st.one_of(st.none(), st.binary(max_size=60)))
def test_whatever_else_is_none_of_ours(data: bytes | None) -> None:
    assert decode_payload(HERE, data) is None


def test_a_record_of_an_earlier_life_of_a_topic_is_none_of_ours() -> None:
    before, now = Place("churn#1", 0), Place("churn#2", 0)
    assert decode_payload(now, encode_payload(before, "a1-4")) is None
    assert wire_name(before.topic) == wire_name(now.topic) == "churn"


def test_many_values_share_few_keys() -> None:
    keys = {key_of(f"l1-{number}") for number in range(1000)}
    assert len(keys) == KEYS
