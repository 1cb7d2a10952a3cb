"""Our consumer as a member of a group: shares, commits, rebalances."""

from __future__ import annotations

import time
from collections.abc import Sequence

import pytest

from ottla.clients.consumer.errors import CommitError, ConsumerError
from ottla.clients.consumer.listener import RebalanceListener
from ottla.clients.consumer.record import OffsetAndMetadata
from ottla.clients.consumer.sync_consumer import Consumer
from ottla.clients.producer.client import Producer
from ottla.proto.errors import OttlaError
from ottla.proto.ids import TopicPartition
from tests.integration.clients.confluent import ConfluentAdmin
from tests.integration.clients_own.conftest import NamedTopic
from tests.integration.clients_own.consuming import poll_until, read, settings, write

pytestmark = pytest.mark.integration


class Story(RebalanceListener):
    """Remembers what it was told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, tuple[int, ...]]] = []

    def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        self.told.append(("assigned", tuple(one.partition for one in partitions)))

    def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        self.told.append(("revoked", tuple(one.partition for one in partitions)))

    def on_partitions_lost(self, partitions: Sequence[TopicPartition]) -> None:
        self.told.append(("lost", tuple(one.partition for one in partitions)))


def _shares(consumers: Sequence[Consumer]) -> list[int]:
    return sorted(len(one.assignment()) for one in consumers)


def _owned_once(consumers: Sequence[Consumer], count: int) -> bool:
    held = [partition for one in consumers for partition in one.assignment()]
    return len(held) == len(set(held)) == count


def test_a_member_reads_all_commits_and_another_goes_on(
    groups: str, producer: Producer, new_topic: NamedTopic, name: str
) -> None:
    topic = new_topic(2)
    write(producer, topic, 100, partitions=2)
    partitions = [TopicPartition(topic, 0), TopicPartition(topic, 1)]
    with Consumer(settings(groups, name, enable_auto_commit=False)) as consumer:
        consumer.subscribe(topic)
        assert len(read(consumer, 100)) == 100
        assert consumer.committed(partitions) == dict.fromkeys(partitions, None)
        consumer.commit({partitions[0]: OffsetAndMetadata(30, "half way")})
        consumer.commit({partitions[1]: 50})
        found = consumer.committed(partitions)[partitions[0]]
        assert found is not None
        assert (found.offset, found.metadata) == (30, "half way")
        with pytest.raises(CommitError, match="0 or more"):
            consumer.commit({partitions[0]: -5})
    with Consumer(settings(groups, name)) as consumer:
        consumer.subscribe([topic])
        assert sorted(int(one.value) for one in read(consumer, 20)) == list(range(60, 100, 2))


def test_what_is_in_hand_is_not_committed_by_itself_before_it_is_done(
    groups: str, producer: Producer, new_topic: NamedTopic, name: str
) -> None:
    topic = new_topic()
    write(producer, topic, 10)
    partition = TopicPartition(topic, 0)
    with Consumer(settings(groups, name, auto_commit_interval_ms=50)) as consumer:
        consumer.subscribe(topic)
        read(consumer, 4)
        poll_until([], lambda: consumer.metrics().get("commits", 0) >= 0, "nothing")
        end = time.monotonic() + 0.4
        while time.monotonic() < end:
            found = consumer.committed([partition])[partition]
            assert found is None or found.offset == 0
        assert len(consumer.consume(1, 5)) == 1
        end = time.monotonic() + 10
        while (found := consumer.committed([partition])[partition]) is None or found.offset < 4:
            assert time.monotonic() < end
        assert found.offset == 4
    with Consumer(settings(groups, name)) as consumer:
        # Closing was the sign that all of it was done.
        found = consumer.committed([partition])[partition]
        assert found is not None
        assert found.offset == 5


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "sticky", "cooperative-sticky"])
def test_members_come_and_go_and_every_partition_has_one_reader(
    groups: str, producer: Producer, new_topic: NamedTopic, name: str, strategy: str
) -> None:
    topic = new_topic(4)
    write(producer, topic, 200, partitions=4)
    chosen = settings(groups, name) | {"partition.assignment.strategy": strategy}
    story = Story()
    with Consumer(chosen) as first:
        first.subscribe(topic, story)
        seen = [int(one.value) for one in read(first, 200)]
        assert seen
        second = Consumer(chosen)
        second.subscribe(topic)
        both = [first, second]
        poll_until(both, lambda: _shares(both) == [2, 2] and _owned_once(both, 4), "two and two")
        write(producer, topic, 200, partitions=4, start=200)
        got: list[int] = []
        poll_until(both, lambda: True, "")
        end = time.monotonic() + 30
        while len(set(got)) < 200:
            assert time.monotonic() < end
            got += [int(one.value) for each in both for one in each.consume(500, 0.05)]
            got = [number for number in got if number >= 200]
        second.close()
        poll_until([first], lambda: len(first.assignment()) == 4, "all come back")
    if strategy == "cooperative-sticky":
        # Only what moves is taken away.
        revoked = [numbers for what, numbers in story.told if what == "revoked"]
        assert len(revoked[0]) == 2
        assert story.told[0] == ("assigned", (0, 1, 2, 3))
    else:
        assert ("revoked", (0, 1, 2, 3)) in story.told


def test_a_static_member_that_restarts_keeps_its_share_without_a_rebalance(
    groups: str, producer: Producer, new_topic: NamedTopic, name: str
) -> None:
    topic = new_topic(4)
    chosen = settings(groups, name, session_timeout_ms=20_000)
    first = Consumer(chosen | {"group.instance.id": "one"})
    second = Consumer(chosen | {"group.instance.id": "two"})
    both = [first, second]
    for one in both:
        one.subscribe(topic)
    poll_until(both, lambda: _shares(both) == [2, 2], "two and two")
    before = second.assignment()
    generation = first.group_metadata()[1]
    second.close()
    with Consumer(chosen | {"group.instance.id": "two"}) as again:
        again.subscribe(topic)
        poll_until([first, again], lambda: again.assignment() == before, "the same share")
        assert first.group_metadata()[1] == generation
    first.close()


def test_a_leader_that_restarts_as_a_static_member_notices_new_partitions(
    groups: str, new_topic: NamedTopic, name: str
) -> None:
    topic = new_topic(2)
    chosen = settings(groups, name, metadata_max_age_ms=200) | {"group.instance.id": "one"}
    with Consumer(chosen) as first:
        first.subscribe(topic)
        poll_until([first], lambda: len(first.assignment()) == 2, "both partitions")
        generation = first.group_metadata().generation
    with Consumer(chosen) as again:
        again.subscribe(topic)
        poll_until([again], lambda: len(again.assignment()) == 2, "the same share")
        assert again.group_metadata().generation == generation, "it has shared nothing out"
        ConfluentAdmin(groups).add_partitions(topic, 4)
        poll_until([again], lambda: len(again.assignment()) == 4, "new partitions")


def test_a_leader_that_returns_finds_partitions_that_came_while_it_was_away(
    groups: str, new_topic: NamedTopic, name: str
) -> None:
    topic = new_topic(2)
    chosen = settings(groups, name, session_timeout_ms=30_000)
    first = Consumer(chosen | {"group.instance.id": "leads"})
    first.subscribe(topic)
    poll_until([first], lambda: len(first.assignment()) == 2, "both partitions")
    with Consumer(chosen | {"group.instance.id": "follows"}) as other:
        other.subscribe(topic)
        poll_until([first, other], lambda: _shares([first, other]) == [1, 1], "one each")
        first.close()
        ConfluentAdmin(groups).add_partitions(topic, 4)
        with Consumer(chosen | {"group.instance.id": "leads"}) as again:
            again.subscribe(topic)
            both = [again, other]
            poll_until(both, lambda: _shares(both) == [2, 2], "new partitions are shared")
            assert _owned_once(both, 4)


def test_a_pattern_finds_topics_that_are_made_later_and_partitions_that_are_added(
    groups: str, producer: Producer, new_topic: NamedTopic, name: str
) -> None:
    first = new_topic(1, topic=f"{name}-a")
    with Consumer(settings(groups, name, metadata_max_age_ms=200)) as consumer:
        consumer.subscribe(f"^{name}-.*")
        poll_until([consumer], lambda: len(consumer.assignment()) == 1, "one topic")
        second = new_topic(1, topic=f"{name}-b")
        poll_until([consumer], lambda: consumer.subscription() == {first, second}, "both topics")
        ConfluentAdmin(groups).add_partitions(first, 3)
        poll_until([consumer], lambda: len(consumer.assignment()) == 4, "new partitions")
        write(producer, second, 1, start=9)
        assert read(consumer, 1)[0].topic == second


def test_a_program_that_does_not_poll_is_out_and_comes_back(
    groups: str, producer: Producer, new_topic: NamedTopic, name: str
) -> None:
    topic = new_topic()
    write(producer, topic, 2)
    story = Story()
    chosen = settings(groups, name, max_poll_interval_ms=700, enable_auto_commit=False)
    with Consumer(chosen) as consumer:
        consumer.subscribe(topic, story)
        read(consumer, 1)
        end = time.monotonic() + 20
        while not consumer.metrics().get("group.overdue"):
            assert time.monotonic() < end
        with pytest.raises(CommitError, match="went on without this member"):
            consumer.commit({TopicPartition(topic, 0): 1})
        assert consumer.committed([TopicPartition(topic, 0)])[TopicPartition(topic, 0)] is None
        assert [one.offset for one in read(consumer, 2)] == [0, 1]
    assert ("lost", (0,)) in story.told


def test_an_asynchronous_commit_tells_its_callback(
    groups: str, producer: Producer, new_topic: NamedTopic, name: str
) -> None:
    topic = new_topic()
    write(producer, topic, 3)
    told: list[tuple[dict[TopicPartition, OffsetAndMetadata], OttlaError | None]] = []
    with Consumer(settings(groups, name, enable_auto_commit=False)) as consumer:
        consumer.subscribe(topic)
        read(consumer, 3)
        consumer.commit(asynchronous=True, callback=lambda *outcome: told.append(outcome))
        poll_until([consumer], lambda: bool(told), "the callback was called")
        ((offsets, error),) = told
        assert error is None
        assert offsets[TopicPartition(topic, 0)].offset == 3


def test_a_listener_may_seek_and_commit(
    groups: str, producer: Producer, new_topic: NamedTopic, name: str
) -> None:
    topic = new_topic()
    write(producer, topic, 10)

    class FromSix(RebalanceListener):
        def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> None:
            for one in partitions:
                consumer.seek(one, 6)

        def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> None:
            consumer.commit()

    with Consumer(settings(groups, name, enable_auto_commit=False)) as consumer:
        consumer.subscribe(topic, FromSix())
        assert [one.offset for one in read(consumer, 2)] == [6, 7]
    with Consumer(settings(groups, name)) as consumer:
        found = consumer.committed([TopicPartition(topic, 0)])[TopicPartition(topic, 0)]
        assert found is not None
        assert found.offset == 8


def test_unsubscribing_lets_everything_go(
    groups: str, producer: Producer, new_topic: NamedTopic, name: str
) -> None:
    topic = new_topic()
    write(producer, topic, 3)
    with Consumer(settings(groups, name)) as consumer:
        consumer.subscribe(topic)
        read(consumer, 3)
        consumer.subscribe([])
        assert consumer.assignment() == set()
        with pytest.raises(ConsumerError, match="subscribe or assign comes first"):
            consumer.poll(0.05)
        consumer.assign([TopicPartition(topic, 0)])
        consumer.seek_to_beginning()
        assert len(read(consumer, 3)) == 3
