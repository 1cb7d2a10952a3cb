"""Which partition a record goes to."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from random import Random

import pytest

from ottla.clients.errors import SerdeError
from ottla.clients.producer.partitioning import Chooser, chooser_of


def _chooser(partitioner: object, count: int, usable: list[int] | None = None) -> Chooser:
    made = chooser_of("t", partitioner, dice=Random(1).randrange, stay_bytes=100)
    made.know(count, list(range(count)) if usable is None else usable)
    return made


def test_the_same_key_always_goes_to_the_same_partition() -> None:
    chooser = _chooser("sticky", 7)
    assert {chooser.choose(b"21", 10) for _ in range(50)} == {(-973932308 & 0x7FFFFFFF) % 7}


def test_without_a_key_a_partition_is_kept_until_a_batch_is_full() -> None:
    chooser = _chooser("sticky", 3)
    chosen = [chooser.choose(None, 25) for _ in range(40)]
    runs = [chosen[at : at + 4] for at in range(0, 40, 4)]
    assert all(len(set(run)) == 1 for run in runs)
    assert all(before[0] != after[0] for before, after in pairwise(runs))
    assert set(chosen) == {0, 1, 2}


def test_without_a_key_partitions_without_a_leader_are_passed_over() -> None:
    chooser = _chooser("sticky", 3, [2])
    assert {chooser.choose(None, 100) for _ in range(10)} == {2}


def test_round_robin_is_exact_whatever_the_key() -> None:
    chooser = _chooser("round_robin", 4)
    chosen = Counter(chooser.choose(b"k" if at % 3 else None, 5) for at in range(400))
    assert chosen == {0: 100, 1: 100, 2: 100, 3: 100}


def test_a_callable_gets_topic_key_and_count() -> None:
    asked = []

    def mine(topic: str, key: bytes | None, count: int) -> int:
        asked.append((topic, key, count))
        return 1

    assert _chooser(mine, 4).choose(b"k", 5) == 1
    assert asked == [("t", b"k", 4)]


@pytest.mark.parametrize("bad", [-1, 4, "0", None, True])
def test_a_callable_that_names_no_partition_is_told_so(bad: object) -> None:
    with pytest.raises(SerdeError, match="partitions 0 to 3"):
        _chooser(lambda *_: bad, 4).choose(None, 5)
