"""A node that dies while librdkafka writes to it: kill -9 at random points, and power cuts.

A foreign, idempotent producer notes what was acknowledged and where. The node dies in the middle
of it; `ottla log verify` looks at the directory as the dead node left it; the next node must have
every acknowledged record at its offset, nothing that was never sent, and nothing twice. Topics and
options that were acknowledged are there too.
"""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest
from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
)

from tests.integration.commands import verify
from tests.integration.nodes import NodeFailedError, RunningNode, running_node, wait_until
from tests.portion import portion

pytestmark = pytest.mark.integration

DEADLINE_S = 30.0
PARTITIONS = 3
# What the process leaves with when the fault seam cuts its power.
CUT = 137


def place_of(message: Message) -> tuple[str, int, int]:
    topic, partition, offset = message.topic(), message.partition(), message.offset()
    assert topic is not None
    assert partition is not None
    assert offset is not None
    return topic, partition, offset


class Notebook:
    """What was sent, what was acknowledged, and what must therefore be there."""

    def __init__(self) -> None:
        self.sent: set[bytes] = set()
        self.kept: dict[tuple[str, int, int], bytes] = {}
        self.topics: dict[str, str] = {}

    def on_delivery(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            key = place_of(message)
            assert key not in self.kept, f"two records were acknowledged at {key}"
            self.kept[key] = message.value() or b""


def _write_until(
    node: RunningNode, notebook: Notebook, topic: str, dice: Random, acknowledged: int
) -> None:
    """Write until so many were acknowledged, then kill; or until the node dies by itself."""
    producer = Producer(
        {
            "bootstrap.servers": node.bootstrap,
            "enable.idempotence": True,
            "linger.ms": dice.choice((0, 1, 5)),
            "message.timeout.ms": 60_000,
            "log_level": 0,
        }
    )
    before, number = len(notebook.kept), 0
    end = time.monotonic() + DEADLINE_S
    while node.is_running and time.monotonic() < end:
        for _ in range(dice.randint(1, 50)):
            # With the largest, segments grow until they ask for room ahead (ADR 0035).
            filler = b"x" * dice.choice((1, 100, 3000, 30_000))
            value = f"{len(notebook.sent)}-".encode() + filler
            notebook.sent.add(value)
            producer.produce(
                topic, value, partition=number % PARTITIONS, on_delivery=notebook.on_delivery
            )
            number += 1
        producer.poll(0.001)
        if len(notebook.kept) - before >= acknowledged:
            node.kill()
    assert not node.is_running, "the node should be dead by now"
    # What came back before the end counts; what did not is unknown, and given up.
    producer.poll(0.05)
    producer.purge()
    producer.flush(1)


def _create(node: RunningNode, notebook: Notebook, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": node.bootstrap, "log_level": 0})
    (made,) = admin.create_topics([NewTopic(topic, PARTITIONS, 1)]).values()
    made.result(DEADLINE_S)
    notebook.topics[topic] = "604800000"
    change = ConfigEntry("retention.ms", "999999999", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[change])
    (altered,) = admin.incremental_alter_configs([resource]).values()
    altered.result(DEADLINE_S)
    notebook.topics[topic] = "999999999"


def _read_all(node: RunningNode, topic: str) -> dict[tuple[str, int, int], bytes]:
    consumer = Consumer(
        {
            "bootstrap.servers": node.bootstrap,
            "group.id": "judge",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 10,
            "enable.partition.eof": False,
            "log_level": 0,
        }
    )
    try:
        found: dict[tuple[str, int, int], bytes] = {}
        ends = {}
        for index in range(PARTITIONS):
            low, high = consumer.get_watermark_offsets(TopicPartition(topic, index), DEADLINE_S)
            assert low == 0
            ends[index] = high
        consumer.assign([TopicPartition(topic, index, 0) for index in ends])

        def is_complete() -> bool:
            for message in consumer.consume(1000, 0.1):
                assert message.error() is None, message.error()
                found[place_of(message)] = message.value() or b""
            return len(found) >= sum(ends.values())

        wait_until(is_complete, DEADLINE_S, f"all of {topic} is read")
        return found
    finally:
        consumer.close()


def _judge(node: RunningNode, notebook: Notebook) -> None:
    admin = AdminClient({"bootstrap.servers": node.bootstrap, "log_level": 0})
    for topic, retention in notebook.topics.items():
        found = _read_all(node, topic)
        kept = {key: value for key, value in notebook.kept.items() if key[0] == topic}
        lost = {key: value[:40] for key, value in kept.items() if found.get(key) != value}
        assert not lost, f"acknowledged and gone, or changed: {lost}"
        assert set(found.values()) <= notebook.sent, "somebody wrote what was never sent"
        assert len(set(found.values())) == len(found), "a record is there twice"
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
        (described,) = admin.describe_configs([resource]).values()
        assert described.result(DEADLINE_S)["retention.ms"].value == retention


@pytest.mark.parametrize("count", [1, pytest.param(portion(20), id="20", marks=pytest.mark.long)])
def test_kill_minus_nine_in_the_middle_of_writing_loses_nothing_acknowledged(
    count: int, tmp_path: Path
) -> None:
    notebook, dice = Notebook(), Random(count)
    for number in range(count):
        with running_node(tmp_path) as node:
            _judge(node, notebook)
            topic = f"topic-{number // 5}"
            if topic not in notebook.topics:
                _create(node, notebook, topic)
            _write_until(node, notebook, topic, dice, dice.randint(1, 1500))
        verify(tmp_path / "data")
    with running_node(tmp_path) as node:
        _judge(node, notebook)
    assert len(notebook.kept) >= count, "nothing was acknowledged: this proved nothing"


def _write_while_powered(root: Path, faults: str, notebook: Notebook, dice: Random) -> None:
    with running_node(root, environment={"OTTLA_FAULTS": faults}) as node:
        _write_until(node, notebook, "synced", dice, 10**9)


@pytest.mark.parametrize("count", [1, pytest.param(portion(20), id="20", marks=pytest.mark.long)])
def test_a_power_cut_loses_nothing_acknowledged_with_fsync(count: int, tmp_path: Path) -> None:
    notebook, dice = Notebook(), Random(count)
    cuts = 0
    with running_node(tmp_path) as node:
        _create(node, notebook, "synced")
    for _ in range(count):
        style = dice.choice(("drop", "torn", "reorder", "mixed"))
        # The first moments are those of the start: the power may go there as well.
        moment = dice.choice((dice.randint(1, 30), dice.randint(30, 400)))
        faults = f"power_cut={moment};style={style};seed={dice.randrange(1000)}"
        with pytest.raises(NodeFailedError, match=f"ended (by itself )?with {CUT}"):
            _write_while_powered(tmp_path, faults, notebook, dice)
        cuts += 1
        verify(tmp_path / "data")
        with running_node(tmp_path) as node:
            _judge(node, notebook)
    assert cuts == count
    assert len(notebook.kept) >= count, "nothing was acknowledged: this proved nothing"


# Each is reached while `_write_until` writes, and not at a start.
DEATHS = (
    "log.append.before=crash@5",
    "log.append.after=crash@5",
    "log.sync.before=kill@4",
    "log.sync.after=crash@4",
    "log.roll.after=kill@2",
    "log.checkpoint.before=crash@2",
)


@pytest.mark.parametrize("failpoint", DEATHS)
def test_a_node_that_dies_at_a_failpoint_loses_nothing_acknowledged(
    failpoint: str, tmp_path: Path
) -> None:
    notebook, dice = Notebook(), Random(failpoint)
    options = {"log.segment.bytes": "1048576", "log.flush.offset.checkpoint.interval.ms": "300"}
    with running_node(tmp_path, options=options) as node:
        _create(node, notebook, "mortal")
    environment = {"OTTLA_FAILPOINTS": failpoint}
    with (
        pytest.raises(NodeFailedError, match=r"ended by itself with (137|-9)"),
        running_node(tmp_path, options=options, environment=environment) as node,
    ):
        _write_until(node, notebook, "mortal", dice, 10**9)
    verify(tmp_path / "data")
    with running_node(tmp_path, options=options) as node:
        _judge(node, notebook)
        assert notebook.sent, "nothing was written: this proved nothing"


def test_a_node_that_cannot_store_metadata_ends_and_loses_nothing_acknowledged(
    tmp_path: Path,
) -> None:
    faults = {"OTTLA_FAULTS": "error=EIO:commit:*quorum*:20"}
    acknowledged: list[str] = []
    with running_node(tmp_path, environment=faults) as node:
        admin = AdminClient({"bootstrap.servers": node.bootstrap, "log_level": 0})

        def has_ended() -> bool:
            name = f"t{len(acknowledged)}"
            (made,) = admin.create_topics([NewTopic(name, 1, 1)], request_timeout=1).values()
            with suppress(KafkaException):
                made.result(DEADLINE_S)
                acknowledged.append(name)
            return not node.is_running

        wait_until(has_ended, DEADLINE_S, "the node has ended")
        node.kill()
        assert node.exit_code == 1
        assert "The quorum's member stopped" in node.log_tail()
    assert acknowledged, "nothing was made: this proved nothing"
    with running_node(tmp_path) as node:
        admin = AdminClient({"bootstrap.servers": node.bootstrap, "log_level": 0})
        assert set(acknowledged) <= set(admin.list_topics(timeout=DEADLINE_S).topics)
