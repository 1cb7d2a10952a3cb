"""ElectLeaders: each partition is answered where it was named."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from ottla.node.kafka.elections import elect_leaders
from ottla.proto.kafka.apis import ELECT_LEADERS
from tests.unit.node.kafka.one_door import Cluster
from tests.unit.node.kafka.stage import Stage

PREFERRED, UNCLEAN = 0, 1
Named = Sequence[tuple[str, Sequence[int]]]
Told = list[tuple[str, list[tuple[int, int]]]]


def elect(
    stage: Stage, named: Named | None, *, kind: int = PREFERRED, version: int = 2
) -> tuple[int, Told]:
    """Return the code of the whole answer, and of each partition."""
    told = None
    if named is not None:
        told = [{"topic": name, "partitions": list(indexes)} for name, indexes in named]
    fields = {"election_type": kind, "topic_partitions": told, "timeout": 1000}
    answer = stage.ask(elect_leaders, ELECT_LEADERS, version, fields)
    results = [
        (topic.topic, [(one.partition_id, one.error_code) for one in topic.partition_result])
        for topic in answer.replica_election_results
    ]
    return answer.get("error_code", 0), results


@pytest.fixture
def moved() -> Stage:
    """A topic "t": the first is led by 2 instead of 1, the second as it should be, by 2.

    And a topic "gone", which nobody leads: 3 may have lost records of it.
    """
    cluster = Cluster(size=3)
    cluster.create((1, 2), (2, 1))
    cluster.create((3,), name="gone")
    stage = Stage(cluster=cluster)
    cluster.alter(2, cluster.change([2, 1], index=0), cluster.change([2, 1], index=1))
    cluster.fence(3)
    stage.tell()
    assert [one.leader for one in stage.image.topics["t"].partitions] == [2, 2]
    assert stage.image.topics["gone"].partitions[0].leader is None
    return stage


@pytest.mark.parametrize("version", range(3))
def test_a_preferred_leader_that_is_in_sync_gets_its_partition_back(
    moved: Stage, version: int
) -> None:
    code, told = elect(moved, [("t", [0, 1])], version=version)
    assert (code, told) == (0, [("t", [(0, 0), (1, 84)])])
    assert moved.image.topics["t"].partitions[0].leader == 1
    assert moved.door.clients == ["127.0.0.1/a test"]


def test_a_preferred_leader_that_is_down_cannot_be_elected(moved: Stage) -> None:
    assert elect(moved, [("gone", [0])]) == (0, [("gone", [(0, 80)])])


def test_without_anybody_who_is_up_there_is_no_unclean_election_either(moved: Stage) -> None:
    assert elect(moved, [("gone", [0])], kind=UNCLEAN) == (0, [("gone", [(0, 83)])])


def test_a_partition_that_is_led_needs_no_unclean_election(moved: Stage) -> None:
    assert elect(moved, [("t", [0])], kind=UNCLEAN) == (0, [("t", [(0, 84)])])
    assert moved.image.topics["t"].partitions[0].leader == 2


def test_a_partition_that_is_named_twice_is_answered_twice(moved: Stage) -> None:
    code, told = elect(moved, [("t", [0, 0]), ("t", [0])])
    assert (code, told) == (0, [("t", [(0, 0), (0, 0)]), ("t", [(0, 0)])])


def test_a_partition_that_is_not_there_spoils_no_other(moved: Stage) -> None:
    code, told = elect(moved, [("missing", [0]), ("t", [0, 9, -1]), ("", [0])])
    assert (code, told) == (
        0,
        [("missing", [(0, 3)]), ("t", [(0, 0), (9, 3), (-1, 3)]), ("", [(0, 3)])],
    )


def test_who_names_none_means_all_and_hears_of_the_changed_ones(moved: Stage) -> None:
    code, told = elect(moved, None)
    assert code == 0
    assert dict(told)["t"] == [(0, 0)]
    assert moved.image.topics["t"].partitions[0].leader == 1
    # Now there is nothing left to do.
    assert dict(elect(moved, None)[1])["t"] == []


@pytest.mark.parametrize("named", [[], [("t", [])]])
def test_who_names_nothing_changes_nothing(moved: Stage, named: Named) -> None:
    assert elect(moved, named) == (0, [(name, []) for name, _ in named])
    assert moved.image.topics["t"].partitions[0].leader == 2


@pytest.mark.parametrize("kind", [2, -1, 127])
def test_an_unknown_kind_is_refused_as_a_whole(moved: Stage, kind: int) -> None:
    assert elect(moved, [("t", [0])], kind=kind) == (42, [("t", [(0, 42)])])
    assert elect(moved, None, kind=kind) == (42, [])


@pytest.mark.parametrize("named", [[("t", [0])], None])
def test_without_a_controller_nothing_is_elected(named: Named | None) -> None:
    cluster = Cluster(size=1)
    cluster.create((1,))
    stage = Stage(cluster=cluster, timeout_ms=30)
    stage.door.is_deposed = True
    code, told = elect(stage, named)
    codes = {code} | {one for _, results in told for _, one in results}
    assert 41 in codes
    assert codes <= {0, 41}
