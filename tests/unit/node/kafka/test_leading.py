"""Records are written and read at the leader; everybody else says so, and where it is.

A real broker on a disk in memory, a real connection to it, and two brokers that are not there but
in the metadata.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from ottla.controller.image import ClientEndpoint, MetadataImage
from ottla.controller.proposal import NO_REQUEST, Proposal, encode_proposal
from ottla.node.kafka.leading import require_standing
from ottla.proto.errors import RequestError
from ottla.proto.ids import BrokerId, LeaderEpoch, TopicPartition
from ottla.proto.kafka import apis
from ottla.proto.kafka.message import Message
from ottla.replication.leader import PartitionView
from tests.builders import produced
from tests.replicas import HeardFeed
from tests.unit.node.kafka.asking_for_offsets import listed
from tests.unit.node.kafka.asking_for_records import (
    CLOSED,
    Scene,
    ask,
    endpoints,
    found,
    question,
    read,
    topic_id,
    until,
    wish,
    write,
    written,
)
from tests.unit.node.kafka.desk import Desk, Place, open_desk
from tests.unit.node.kafka.guest import settled

OUT_OF_RANGE, UNKNOWN, NOT_LEADER, STORAGE, FENCED, UNKNOWN_EPOCH = 1, 3, 6, 56, 74, 75
LATEST, OF_LARGEST_TIME = -1, -3
SESSION_MS = 2_000


@pytest.fixture
def desk() -> Iterator[Desk]:
    """Node 1 of three.

    It leads "here" alone. "there" is alone on broker 2, "nobody" alone on broker 3, which is down.
    It leads "first" and follows "second", each of which is also on broker 2.
    """
    place = Place()
    cluster = place.cluster
    for number in (1, 2, 3):
        cluster.start(number)
    with open_desk(place) as opened:
        cluster.create((1,), name="here")
        cluster.create((2,), name="there")
        cluster.create((3,), name="nobody")
        cluster.create((1, 2), name="first")
        cluster.create((2, 1), name="second")
        cluster.fence(3)
        opened.tell()
        yield opened


class Elsewhere:
    """A controller whose newest image has moved a topic on by one epoch."""

    def __init__(self, image: MetadataImage, topic: str) -> None:
        info = image.topics[topic]
        (one,) = info.partitions
        moved = replace(one, leader_epoch=LeaderEpoch(one.leader_epoch + 1))
        self.image = replace(image, topics={topic: replace(info, partitions=(moved,))})


# ── Produce and Fetch ─────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("version", [3, 9, 10, 13])
def test_what_is_led_here_is_written_and_read_here(desk: Desk, version: int) -> None:
    assert written(write(desk, "here", version=version)) == (0, None)
    assert found(read(desk, "here")) == (0, None)


@pytest.mark.parametrize("topic", ["there", "second"])
def test_another_leader_is_told_to_producers_that_can_be_told(desk: Desk, topic: str) -> None:
    for version in range(3, 14):
        answer = write(desk, topic, version=version)
        assert written(answer) == (NOT_LEADER, (2, 0) if version >= 10 else None)
        assert endpoints(answer) == ([(2, "host-2", 9092)] if version >= 10 else [])


@pytest.mark.parametrize("topic", ["there", "second"])
def test_another_leader_is_told_to_consumers_that_can_be_told(desk: Desk, topic: str) -> None:
    for version in range(4, 19):
        answer = read(desk, topic, version=version)
        assert found(answer) == (NOT_LEADER, (2, 0) if version >= 16 else None)
        assert endpoints(answer) == ([(2, "host-2", 9092)] if version >= 16 else [])


@pytest.mark.parametrize(
    ("listener", "expected"), [("INSIDE", ("node2", 19092)), ("OUTSIDE", ("localhost", 9093))]
)
def test_another_leader_is_told_where_clients_of_the_same_listener_find_it(
    desk: Desk, listener: str, expected: tuple[str, int]
) -> None:
    told = (
        ClientEndpoint("INSIDE", "node2", 19092),
        ClientEndpoint("OUTSIDE", "localhost", 9093),
    )
    wanted = replace(desk.cluster.registration(2), endpoints=told)
    desk.cluster.feed(encode_proposal(Proposal(NO_REQUEST, wanted)))
    desk.cluster.unfence(2)
    desk.tell()
    fields = wish(-1, "there", topic_id(desk, "there"))
    for row, version, asked in (
        (apis.PRODUCE, 13, fields),
        (apis.FETCH, 17, question(desk, "there")),
    ):
        answer = ask(desk, row, version, asked, listener)
        assert endpoints(answer) == [(2, *expected)]


def test_who_is_asked_for_what_it_follows_hurries_to_find_that_it_leads(desk: Desk) -> None:
    asked = list[TopicPartition]()
    desk.broker.hurry = asked.append
    assert written(write(desk, "second"))[0] == NOT_LEADER
    assert asked == [TopicPartition("second", 0)]

    def lead(partition: TopicPartition) -> None:
        replica = desk.broker.replicas.get(partition.topic, partition.partition)
        assert replica is not None
        view = PartitionView(
            leader_epoch=LeaderEpoch(replica.leader_epoch + 1),
            partition_epoch=1,
            replicas=(BrokerId(1),),
            isr=(BrokerId(1),),
            min_isr=1,
            broker_epochs={},
            active=(BrokerId(1),),
        )
        replica.lead(view)

    desk.broker.hurry = lead
    assert written(write(desk, "second")) == (0, None)


def test_who_leads_asks_whether_it_still_does(desk: Desk) -> None:
    """The image may say otherwise already, and its turn to obey has not come."""
    asked = list[TopicPartition]()
    desk.broker.hurry = asked.append
    assert written(write(desk, "here"))[0] == 0
    assert asked == [TopicPartition("here", 0)]


def test_where_nobody_leads_nobody_is_told(desk: Desk) -> None:
    for told, answer in (
        (written, write(desk, "nobody")),
        (found, read(desk, "nobody")),
    ):
        assert told(answer) == (NOT_LEADER, None)
        assert endpoints(answer) == []


def test_a_partition_that_is_not_there_has_no_leader_either(desk: Desk) -> None:
    for index in (1, -1):
        assert written(write(desk, "there", index=index)) == (UNKNOWN, None)
        assert found(read(desk, "there", index=index)) == (UNKNOWN, None)


def test_one_who_leads_elsewhere_spoils_no_neighbour(desk: Desk) -> None:
    fields = wish(-1, "there", topic_id(desk, "there"))
    fields["topic_data"] += wish(-1, "here", topic_id(desk, "here"))["topic_data"]
    answer = ask(desk, apis.PRODUCE, 13, fields)
    assert isinstance(answer, Message)
    codes = [one.partition_responses[0].error_code for one in answer.responses]
    assert codes == [NOT_LEADER, 0]
    assert endpoints(answer) == [(2, "host-2", 9092)]


# ── Alone with its word (rule 13) ─────────────────────────────────────────────────────────────


def unheard(desk: Desk, *ages_ms: int | None) -> None:
    """No controller answers; broker 2 was heard so long ago by the leader of "first", or never."""
    desk.broker.is_heard = lambda: False
    for age_ms in ages_ms:
        at_ms = None if age_ms is None else desk.broker.clock.monotonic_ms() - age_ms
        desk.replica("first").feeds[BrokerId(2)] = HeardFeed(at_ms)


def delete(desk: Desk, topic: str) -> int:
    doomed = {"partition_index": 0, "offset": -1}
    answer = desk.ask(
        apis.DELETE_RECORDS, 2, timeout=100, topics=[{"name": topic, "partitions": [doomed]}]
    )
    code: int = answer["topics"][0]["partitions"][0]["error_code"]
    return code


def end_of_epoch(desk: Desk, topic: str, epoch: int) -> int:
    wanted = {"partition": 0, "current_leader_epoch": -1, "leader_epoch": epoch}
    answer = desk.ask(
        apis.OFFSET_FOR_LEADER_EPOCH,
        4,
        replica_id=-1,
        topics=[{"topic": topic, "partitions": [wanted]}],
    )
    code: int = answer["topics"][0]["partitions"][0]["error_code"]
    return code


def producers_of(desk: Desk, topic: str) -> int:
    asked = [{"name": topic, "partition_indexes": [0]}]
    answer = desk.ask(apis.DESCRIBE_PRODUCERS, 0, topics=asked)
    code: int = answer["topics"][0]["partitions"][0]["error_code"]
    return code


def outcomes(desk: Desk, topic: str) -> dict[str, int]:
    """Return what is answered to everything that writes, or looks at the end."""
    return {
        "produce acks=1": written(write(desk, topic, acks=1))[0],
        "fetch at the end": found(read(desk, topic, offset=desk.replica(topic).log.end_offset))[0],
        "fetch beyond it": found(read(desk, topic, offset=1_000))[0],
        "latest": listed(desk, LATEST, topic=topic)[0],
        "of the largest time": listed(desk, OF_LARGEST_TIME, topic=topic)[0],
        "of a time to come": listed(desk, 2**60, topic=topic)[0],
        "end of this epoch": end_of_epoch(desk, topic, 0),
        "delete": delete(desk, topic),
        "who wrote last": producers_of(desk, topic),
    }


NOTHING_IS_DONE = {
    "produce acks=1": NOT_LEADER,
    "fetch at the end": NOT_LEADER,
    # Not OFFSET_OUT_OF_RANGE: the new leader may have come so far, and the consumer would start
    # over.
    "fetch beyond it": NOT_LEADER,
    "latest": NOT_LEADER,
    "of the largest time": NOT_LEADER,
    "of a time to come": NOT_LEADER,
    "end of this epoch": NOT_LEADER,
    "delete": NOT_LEADER,
    "who wrote last": NOT_LEADER,
}
ALL_IS_DONE = dict.fromkeys(NOTHING_IS_DONE, 0) | {"fetch beyond it": OUT_OF_RANGE}


@pytest.mark.parametrize("age_ms", [None, SESSION_MS, SESSION_MS * 100])
def test_rule_13_a_leader_that_no_controller_hears_does_nothing_that_another_may_do(
    desk: Desk, age_ms: int | None
) -> None:
    unheard(desk, age_ms)
    assert outcomes(desk, "first") == NOTHING_IS_DONE
    assert desk.replica("first").log.end_offset == 0


@pytest.mark.parametrize("acks", [0, 1, -1])
def test_rule_13_no_acks_let_a_leader_write_that_may_be_replaced(desk: Desk, acks: int) -> None:
    unheard(desk, None)
    answer = write(desk, "first", acks=acks)
    assert answer == CLOSED if acks == 0 else written(answer) == (NOT_LEADER, None)
    assert desk.replica("first").log.end_offset == 0


def test_rule_13b_while_the_others_follow_it_the_leader_needs_no_controller(desk: Desk) -> None:
    desk.write("first", produced(b"a"))
    desk.copy("first", 2)
    # Within the session for as long as this test may take.
    unheard(desk, -60_000)
    assert outcomes(desk, "first") == ALL_IS_DONE


def test_rule_13c_where_nobody_else_can_lead_it_goes_on_without_controllers(desk: Desk) -> None:
    unheard(desk)
    assert outcomes(desk, "here") == ALL_IS_DONE


def test_rule_13_what_is_committed_may_be_read_until_the_leader_hears_of_another(
    desk: Desk,
) -> None:
    desk.write("first", produced(b"a"))
    desk.copy("first", 2)
    unheard(desk, None)
    assert found(read(desk, "first")) == (0, None)
    assert listed(desk, -2, topic="first")[0] == 0
    # Of what was written before it was cut off, who waits for more hears that it may have moved.
    assert found(read(desk, "first", offset=1)) == (NOT_LEADER, None)


def test_rule_13_who_waited_in_vain_hears_that_the_leader_may_have_moved(desk: Desk) -> None:
    async def story() -> Message | str:
        scene = Scene(desk)
        try:
            await scene.send(apis.FETCH, 17, question(desk, "first", wait_ms=50))
            await until(lambda: len(scene.dispatch.fetch.waiting) == 1)
            unheard(desk, None)
            return await scene.read(apis.FETCH, 17)
        finally:
            scene.close()

    assert found(desk.run(story())) == (NOT_LEADER, None)


def test_rule_13_who_is_only_proposed_may_lead_already(desk: Desk) -> None:
    cluster = desk.cluster
    cluster.configure("first", min__insync__replicas=1)
    cluster.alter(1, cluster.change([1], topic="first"))
    desk.tell()
    unheard(desk, None)
    # Nobody else is in sync, or could be.
    assert written(write(desk, "first", acks=1)) == (0, None)
    desk.copy("first", 2)
    core = desk.replica("first").leader
    assert core is not None
    assert core.proposed is not None
    assert written(write(desk, "first", acks=1)) == (NOT_LEADER, None)


def test_rule_13_newer_metadata_counts_before_the_replica_has_heard_of_it(desk: Desk) -> None:
    unheard(desk)
    replica = desk.replica("here")
    image = desk.broker.controller.image
    desk.broker.controller = Elsewhere(image, "here")  # type: ignore[assignment]
    with pytest.raises(RequestError, match="NOT_LEADER_OR_FOLLOWER"):
        require_standing(desk.broker, replica)


@pytest.mark.parametrize(("topic", "acks"), [("first", -1), ("first", 1), ("here", 1)])
def test_rule_13_is_asked_again_when_a_produce_is_acknowledged(
    desk: Desk, topic: str, acks: int
) -> None:
    # Once, when the batch is written; from then on nobody answers.
    heard = iter([True])
    desk.broker.is_heard = lambda: next(heard, False)

    async def story() -> Message | str:
        scene = Scene(desk)
        try:
            fields = wish(acks, topic, topic_id(desk, topic), timeout_ms=60_000)
            await scene.send(apis.PRODUCE, 13, fields)
            await until(lambda: desk.replica(topic).log.held_offset == 1)
            if topic == "first":
                desk.copy(topic, 2)
            return await scene.read(apis.PRODUCE, 13)
        finally:
            scene.close()

    code, _ = written(desk.run(story()))
    assert code == (0 if topic == "here" else NOT_LEADER)
    assert desk.replica(topic).log.end_offset == 1


def test_rule_44_a_replica_that_may_lack_what_is_committed_does_not_lead(desk: Desk) -> None:
    desk.replica("first").fail("it lacks records")
    desk.replica("second").fail("it lacks records")
    answer = write(desk, "first")
    assert written(answer) == (STORAGE, None)
    assert isinstance(answer, Message)
    assert answer.responses[0].partition_responses[0].error_message == "it lacks records"
    assert found(read(desk, "first")) == (STORAGE, None)
    # Where another one leads, that one is to be asked.
    assert written(write(desk, "second")) == (NOT_LEADER, (2, 0))


def test_who_wants_no_answers_is_told_so_by_closing(desk: Desk) -> None:
    assert write(desk, "there", acks=0) == CLOSED


# ── When the leader changes ───────────────────────────────────────────────────────────────────


def test_who_knows_another_epoch_hears_it_first(desk: Desk) -> None:
    now = desk.replica("here").leader_epoch
    desk.replica("here").leader_epoch = now + 1  # type: ignore[assignment]
    assert found(read(desk, "here", epoch=now))[0] == FENCED
    assert found(read(desk, "here", epoch=now + 2))[0] == UNKNOWN_EPOCH
    # Also where this node does not lead.
    assert found(read(desk, "second", epoch=7))[0] == UNKNOWN_EPOCH


def test_who_waits_for_bytes_hears_that_the_leader_has_moved(desk: Desk) -> None:
    async def story() -> Message | str:
        scene = Scene(desk)
        try:
            fields = question(desk, "first", wait_ms=60_000)
            await scene.send(apis.FETCH, 17, fields)
            await settled()
            assert len(scene.dispatch.fetch.waiting) == 1
            cluster = desk.cluster
            cluster.alter(1, cluster.change([1, 2], topic="first"))
            cluster.shut_down(1)
            await desk.tell_soon()
            return await scene.read(apis.FETCH, 17)
        finally:
            scene.close()

    answer = desk.run(story())
    assert found(answer) == (NOT_LEADER, (2, 1))
    assert endpoints(answer) == [(2, "host-2", 9092)]


# ── The others ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("topic", "code"), [("here", 0), ("there", 6), ("second", 6), ("x", 3)])
def test_every_other_request_finds_the_leader_in_the_same_way(
    desk: Desk, topic: str, code: int
) -> None:
    assert listed(desk, LATEST, topic=topic)[0] == code
    wanted = {"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0}
    ended = desk.ask(
        apis.OFFSET_FOR_LEADER_EPOCH,
        4,
        replica_id=-1,
        topics=[{"topic": topic, "partitions": [wanted]}],
    )
    assert ended["topics"][0]["partitions"][0]["error_code"] == code
    doomed = {"partition_index": 0, "offset": -1}
    deleted = desk.ask(
        apis.DELETE_RECORDS, 2, timeout=100, topics=[{"name": topic, "partitions": [doomed]}]
    )
    assert deleted["topics"][0]["partitions"][0]["error_code"] == code
    assert producers_of(desk, topic) == code
