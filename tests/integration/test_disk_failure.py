"""A disk fails under a broker that leads, or gives back bad bytes (rules 48 and 55).

Others take over, nothing is lost, and the node says why.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.integration.clusters import ClusterNode, living, make_cluster, running_cluster
from tests.integration.nodes import running_node, wait_until

pytestmark = [pytest.mark.integration, pytest.mark.long]

DEADLINE_S = 60.0
RECORDS = 400
# The fifth sync of that log is an error of the disk.
FAULT = {"OTTLA_FAULTS": "eio=sync:*orders-0*.log:5"}
# Of a batch.
HEADER_BYTES = 61
OPTIONS = {"leader.imbalance.check.interval.seconds": "1"}


def _says_offline(status: int, text: str) -> bool:
    return status == 503 and "the data directory is offline" in text


def _write(bootstrap: str, kept: dict[tuple[int, int], bytes]) -> None:
    """Write so many records that all are acknowledged in the end; note where they are."""

    def on_delivery(error: KafkaError | None, message: Message) -> None:
        partition, offset = message.partition(), message.offset()
        if error is None and partition is not None and offset is not None:
            kept[partition, offset] = message.value() or b""

    producer = Producer(
        {"bootstrap.servers": bootstrap, "enable.idempotence": True, "log_level": 0}
    )
    for number in range(RECORDS):
        producer.produce("orders", b"%d" % number, partition=0, on_delivery=on_delivery)
        producer.poll(0.005)
    assert producer.flush(DEADLINE_S) == 0


def _read(bootstrap: str, count: int) -> dict[tuple[int, int], bytes]:
    found: dict[tuple[int, int], bytes] = {}
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "g", "enable.auto.commit": False}
    )
    consumer.assign([TopicPartition("orders", 0, 0)])

    def has_all() -> bool:
        message = consumer.poll(0.5)
        if message is not None and message.error() is None:
            partition, offset = message.partition(), message.offset()
            assert partition is not None
            assert offset is not None
            found[partition, offset] = message.value() or b""
        return len(found) >= count

    try:
        wait_until(has_all, DEADLINE_S, f"{count} records are read")
    finally:
        consumer.close()
    return found


def test_a_node_whose_disk_failed_stays_up_is_not_ready_and_says_why(tmp_path: Path) -> None:
    with running_node(tmp_path, environment=FAULT) as node:
        admin = AdminClient({"bootstrap.servers": node.bootstrap, "log_level": 0})
        admin.create_topics([NewTopic("orders", 1, 1)])["orders"].result(DEADLINE_S)
        producer = Producer(
            {"bootstrap.servers": node.bootstrap, "message.timeout.ms": 2_000, "log_level": 0}
        )

        def is_offline() -> bool:
            producer.produce("orders", b"x")
            producer.flush(1)
            return _says_offline(*node.get("/health/ready"))

        wait_until(is_offline, DEADLINE_S, "the disk has failed")

        def is_fenced() -> bool:
            return bool(json.loads(node.get("/status")[1])["broker"]["is_fenced"])

        wait_until(is_fenced, DEADLINE_S, "the broker is fenced")
        assert node.get("/health/live")[0] == 200
        assert "fence_wanted" in node.log_path.read_text()
    # It has ended well; and it begins again where the disk is mended.
    with running_node(tmp_path) as node:
        kept: dict[tuple[int, int], bytes] = {}
        _write(node.bootstrap, kept)
        assert len(kept) == RECORDS


def test_what_a_broker_led_whose_disk_failed_is_led_by_others_and_nothing_is_lost(
    tmp_path: Path,
) -> None:
    made = make_cluster(
        tmp_path, options=OPTIONS, environment_of=lambda one: FAULT if one == 1 else {}
    )
    with living(made) as cluster:
        cluster.start()
        cluster.wait_until_ready()
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        wanted = NewTopic("orders", 1, replica_assignment=[[1, 2, 3]])
        admin.create_topics([wanted])["orders"].result(DEADLINE_S)
        kept: dict[tuple[int, int], bytes] = {}
        _write(cluster.bootstrap, kept)
        assert len(kept) == RECORDS
        hurt = cluster[1]
        assert _says_offline(*hurt.get("/health/ready"))
        assert _leader(admin) in (2, 3)
        assert kept.items() <= _read(cluster.bootstrap, len(kept)).items()
        # Mended, it copies what it lacks, and leads again.
        _mend(hurt)
        wait_until(lambda: _leader(admin) == 1, DEADLINE_S, "the preferred leader leads again")
        assert kept.items() <= _read(cluster.bootstrap, len(kept)).items()


def test_a_partition_whose_bytes_are_bad_is_led_by_others_and_its_broker_goes_on(
    tmp_path: Path,
) -> None:
    with running_cluster(tmp_path, options=OPTIONS) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        wanted = NewTopic("orders", 1, replica_assignment=[[1, 2, 3]])
        admin.create_topics([wanted])["orders"].result(DEADLINE_S)
        kept: dict[tuple[int, int], bytes] = {}
        _write(cluster.bootstrap, kept)
        hurt = cluster[1]
        (segment,) = (hurt.data_dir / "orders-0").glob("*.log")
        with segment.open("r+b") as file:
            file.write(bytes(HEADER_BYTES))
        assert kept.items() <= _read(cluster.bootstrap, len(kept)).items()
        assert _leader(admin) in (2, 3)
        assert hurt.is_ready()
        assert hurt.log_path.read_text().count("partition_given_up") == 1
        # It is not the preferred leader's turn again, for as long as its copy is bad.
        _write(cluster.bootstrap, kept)
        assert _leader(admin) in (2, 3)


def _mend(node: ClusterNode) -> None:
    assert node.stop() == 0
    node.environment.clear()
    node.start()
    node.wait_until_ready()


def _leader(admin: AdminClient) -> int:
    return int(admin.list_topics("orders", timeout=10).topics["orders"].partitions[0].leader)
