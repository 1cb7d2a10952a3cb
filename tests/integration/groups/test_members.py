"""Real clients in one group on three real nodes: they join, leave, crash, restart, find more.

Every record is read, each partition by one member at a time.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions
from confluent_kafka.admin import NewTopic as MadeTopic

from tests.integration.clusters import RunningCluster
from tests.integration.groups import mortal
from tests.integration.groups.crew import (
    CLIENTS,
    Aio,
    Confluent,
    Cooperative,
    KafkaPython,
    Member,
    Own,
    Place,
    Readings,
    committed,
    share_out,
    until,
)

pytestmark = pytest.mark.integration

# One of them in the quick run; the others take long, and stand for the same.
QUICK = "confluent-kafka"
EACH = [
    name if name == QUICK else pytest.param(name, marks=pytest.mark.long)
    for name in CLIENTS
    if CLIENTS[name] is not Cooperative
]
# Whoever comes first leads. Not kafka-python: it now and then forgets a join of which it was the
# reason, on any cluster (`test_forgotten_joins.py`), and who leads is the reason.
LEADERS = [Confluent, Aio, Own]
# So seldom does a poll of it end while it joins.
PATIENT_S = 20.0
NewTopic = Callable[[int], str]
Write = Callable[[str, int, int], None]


@pytest.mark.parametrize("name", CLIENTS)
def test_members_join_and_leave_and_nothing_is_missed(
    cluster: RunningCluster, new_topic: NewTopic, write: Write, name: str
) -> None:
    topic, readings = new_topic(2), Readings()
    write(topic, 2, 10)
    one, two = (CLIENTS[name](cluster.bootstrap, topic, topic, readings) for _ in range(2))
    one.start()
    share_out([one], 2, topic)
    two.start()
    share_out([one, two], 2, topic)
    write(topic, 2, 10)
    until(lambda: readings.has_all(topic, {0: 20, 1: 20}), "everything is read")
    _require_owners(readings, [one, two], 10)
    one.stop()
    share_out([two], 2, topic)
    write(topic, 2, 10)
    ends = {0: 30, 1: 30}
    until(lambda: readings.has_all(topic, ends), "everything is read")
    _require_owners(readings, [two], 10)
    until(lambda: committed(cluster.bootstrap, topic, topic, 2) == ends, "all is committed")
    two.stop()


def _require_owners(readings: Readings, members: Sequence[Member], last: int) -> None:
    """The last so many records of each partition were read by who has it, and by nobody else."""
    for member in members:
        for place in member.owned:
            end = len(readings.seen[place])
            assert readings.readers(place, range(end - last, end)) == {member}, place


def test_foreign_clients_share_a_group(
    cluster: RunningCluster, new_topic: NewTopic, write: Write
) -> None:
    topic, readings = new_topic(2), Readings()
    members: list[Member] = [
        kind(cluster.bootstrap, topic, topic, readings) for kind in (Confluent, KafkaPython)
    ]
    for member in members:
        member.start()
    share_out(members, 2, topic)
    write(topic, 2, 10)
    until(lambda: readings.has_all(topic, {0: 10, 1: 10}), "everything is read")
    for member in members:
        member.stop()


@pytest.mark.parametrize("name", EACH)
def test_a_static_member_restarts_without_a_rebalance(
    cluster: RunningCluster, new_topic: NewTopic, write: Write, name: str
) -> None:
    topic, readings = new_topic(2), Readings()
    one, two = (CLIENTS[name](cluster.bootstrap, topic, topic, readings) for _ in range(2))
    one.instance_id, two.instance_id = "desk-1", "desk-2"
    one.start()
    two.start()
    share_out([one, two], 2, topic)
    before, mine = _generations(cluster, topic), two.owned
    assert before > 0, "the logs tell of rebalances"
    two.vanish()
    again = CLIENTS[name](cluster.bootstrap, topic, topic, readings)
    again.instance_id = "desk-2"
    again.start()
    share_out([one, again], 2, topic)
    assert again.owned == mine
    assert _generations(cluster, topic) == before, "nobody was disturbed"
    write(topic, 2, 5)
    until(lambda: readings.has_all(topic, {0: 5, 1: 5}), "everything is read")
    one.stop()
    again.stop()


def _generations(cluster: RunningCluster, group: str) -> int:
    """Return how many rebalances of a group its coordinators have told of."""
    lines = (line for node in cluster.running for line in node.log_path.read_text().splitlines())
    return sum("group_rebalances" in line and f"group={group} " in line for line in lines)


@pytest.mark.parametrize("name", EACH)
def test_new_partitions_and_topics_are_found(
    cluster: RunningCluster, new_topic: NewTopic, write: Write, name: str
) -> None:
    topic, readings = new_topic(1), Readings()
    member = CLIENTS[name](cluster.bootstrap, topic, f"^{topic}.*", readings)
    if name == "kafka-python":
        member.poll_s = PATIENT_S
    member.start()
    share_out([member], 1, topic)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    for made in admin.create_partitions([NewPartitions(topic, 3)]).values():
        made.result(30)
    share_out([member], 3, topic)
    write(topic, 3, 5)
    until(lambda: readings.has_all(topic, {0: 5, 1: 5, 2: 5}), "everything is read")
    later = f"{topic}-later"
    for made in admin.create_topics([MadeTopic(later, 1, 3)]).values():
        made.result(30)
    everything = {(topic, 0), (topic, 1), (topic, 2), (later, 0)}
    until(lambda: member.owned == everything, f"{later} is found")
    write(later, 1, 5)
    until(lambda: readings.has_all(later, {0: 5}), "everything is read")
    member.stop()


@contextmanager
def _mortal(name: str, bootstrap: str, topic: str, said: Path) -> Iterator[Callable[[], list[str]]]:
    """Yield what a member in a process of its own has read so far; it is killed at the end."""
    command = [sys.executable, "-m", mortal.__name__, name, bootstrap, topic, topic]
    with said.open("wb") as out, subprocess.Popen(command, stdout=out) as process:
        try:
            yield lambda: said.read_text().splitlines()
        finally:
            process.kill()


def _note_all(readings: Readings, said: Sequence[str]) -> None:
    for line in said:
        topic, partition, offset = line.split()
        readings.note((topic, int(partition)), int(offset))


@pytest.mark.parametrize("name", EACH)
def test_the_partitions_of_a_member_that_is_killed_go_to_the_others(
    cluster: RunningCluster, new_topic: NewTopic, write: Write, tmp_path: Path, name: str
) -> None:
    topic, readings = new_topic(2), Readings()
    write(topic, 2, 10)
    survivor = CLIENTS[name](cluster.bootstrap, topic, topic, readings)
    survivor.start()
    share_out([survivor], 2, topic)
    with _mortal(name, cluster.bootstrap, topic, tmp_path / "said") as said:
        until(lambda: len(survivor.owned) == 1, "they share")
        ((_, kept),) = survivor.owned
        write(topic, 2, 10)
        until(lambda: f"{topic} {1 - kept} 19" in said(), "the other one reads")
    write(topic, 2, 10)
    share_out([survivor], 2, topic)
    _note_all(readings, said())
    until(lambda: readings.has_all(topic, {0: 30, 1: 30}), "everything is read")
    survivor.stop()


def _mixed(bootstrap: str, topic: str, readings: Readings, leader: type[Member]) -> list[Member]:
    """Return one static member of each library, who leads first. They assign by range."""
    found = []
    for kind in (leader, *(one for one in (*LEADERS, KafkaPython) if one is not leader)):
        # A later topic would be a reason for kafka-python to join.
        wanted = topic if kind is KafkaPython else f"^{topic}.*"
        member = kind(bootstrap, topic, wanted, readings)
        member.instance_id = kind.__name__
        found.append(member)
    return found


@pytest.mark.long
@pytest.mark.parametrize("leader", LEADERS)
def test_a_mixed_group_lives_through_all_of_it(
    cluster: RunningCluster,
    new_topic: NewTopic,
    write: Write,
    tmp_path: Path,
    leader: type[Member],
) -> None:
    topic, readings = new_topic(8), Readings()
    members = _mixed(cluster.bootstrap, topic, readings, leader)
    ends = dict.fromkeys(range(8), 0)

    def send(count: int) -> bool:
        write(topic, len(ends), count)
        for one in ends:
            ends[one] += count
        return True

    def pass_on(count: int) -> None:
        """Write so many records to each partition, and wait until they are read."""
        send(count)
        until(lambda: readings.has_all(topic, ends), "everything is read")
        _require_owners(readings, members, count)

    for count, member in enumerate(members, 1):
        member.start()
        share_out(members[:count], 8, topic)
    pass_on(10)
    with _mortal(_name_of(leader), cluster.bootstrap, topic, tmp_path / "said") as said:
        until(lambda: send(1) and bool(said()), "a fifth reads")
    _note_all(readings, said())
    share_out(members, 8, topic)
    pass_on(10)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    for made in admin.create_partitions([NewPartitions(topic, 12)]).values():
        made.result(30)
    share_out(members, 12, topic)
    ends.update(dict.fromkeys(range(8, 12), 0))
    pass_on(10)
    # After the partitions: who does not know JoinGroup 9 no longer leads when it comes back.
    _restart_each(cluster, members, topic)
    pass_on(10)
    later = f"{topic}-later"
    for made in admin.create_topics([MadeTopic(later, 3, 3)]).values():
        made.result(30)
    everything = {(topic, one) for one in range(12)} | {(later, one) for one in range(3)}
    until(lambda: _shares(members) == sorted(everything), f"{later} is found, and shared")
    members.pop().stop()
    until(lambda: _shares(members) == sorted(everything), "without one, all the same")
    write(later, 3, 10)
    until(lambda: readings.has_all(later, dict.fromkeys(range(3), 10)), "everything is read")
    send(10)
    until(lambda: readings.has_all(topic, ends), "everything is read")
    for member in members:
        member.stop()


def _name_of(kind: type[Member]) -> str:
    return next(name for name, one in CLIENTS.items() if one is kind)


def _shares(members: Sequence[Member]) -> list[Place]:
    """Return what they all own, in order; what two of them own comes twice."""
    return sorted(one for member in members for one in member.owned)


def _restart_each(cluster: RunningCluster, members: list[Member], topic: str) -> None:
    """Each of the static members goes without a word and comes back; nobody is disturbed."""
    before = _generations(cluster, topic)
    assert before > 0, "the logs tell of rebalances"
    for place, gone in enumerate(members):
        mine = gone.owned
        gone.vanish()
        again = type(gone)(gone.bootstrap, gone.group, gone.topic, gone.into)
        again.instance_id = gone.instance_id
        again.start()
        members[place] = again
        share_out(members, 12, topic)
        assert again.owned == mine
    assert _generations(cluster, topic) == before, "nobody was disturbed"
