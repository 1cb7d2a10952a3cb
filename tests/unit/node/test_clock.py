"""Real time and real dice."""

from __future__ import annotations

import re
import time
from uuid import UUID

from ottla.node.clock import Clock, id_text, new_id, new_uuid


def test_wall_time_is_in_milliseconds_since_1970() -> None:
    before = time.time_ns() // 1_000_000
    assert before <= Clock().now_ms() <= time.time_ns() // 1_000_000


def test_monotonic_times_are_the_same_moment_in_two_units() -> None:
    clock = Clock()
    first_ms, us, last_ms = clock.monotonic_ms(), clock.monotonic_us(), clock.monotonic_ms()
    assert first_ms <= us // 1000 <= last_ms


def test_an_id_is_22_safe_characters_and_never_looks_like_an_option() -> None:
    drawn = [new_id() for _ in range(2_000)]
    assert all(re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_-]{21}", one) for one in drawn)
    assert len(set(drawn)) == len(drawn)


def test_a_new_uuid_is_random_and_not_zero() -> None:
    assert new_uuid().version == 4
    assert new_uuid() != new_uuid()


def test_an_id_is_written_as_kafka_writes_it() -> None:
    assert id_text(UUID(int=0)) == "AAAAAAAAAAAAAAAAAAAAAA"
    assert id_text(UUID(int=1)) == "AAAAAAAAAAAAAAAAAAAAAQ"
    assert id_text(UUID(int=2**128 - 1)) == "_____________________w"
