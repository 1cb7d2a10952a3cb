"""The profile `spark`: a pipeline of docs/ on a Spark master and worker beside the nodes."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from ottla.clients.admin.answers import NewTopic
from ottla.clients.admin.blocking import Admin
from ottla.clients.consumer.sync_consumer import Consumer
from ottla.clients.producer.client import Producer
from ottla.proto.ids import TopicPartition
from tests.containers.engine import ContainerCluster
from tests.integration.nodes import wait_until

pytestmark = pytest.mark.long
WORKER_DEADLINE_S = 90
TOPICS = {"clicks": 3, "clicks-dead": 1, "page-views": 1}


@pytest.fixture
def with_spark(cluster: ContainerCluster) -> Iterator[ContainerCluster]:
    cluster.environment.update({"SPARK_IMAGE": "ottla-spark-test", "SPARK_PORT": "0"})
    cluster.compose("--profile", "spark", "build", "--quiet", "spark-master")
    names = ("spark-master", "spark-worker")
    try:
        cluster.compose("--profile", "spark", "up", "--detach", "--no-build", *names)
        wait_until(
            lambda: "Successfully registered with master" in _log(cluster, "spark-worker"),
            WORKER_DEADLINE_S,
            "the worker has found its master",
        )
        yield cluster
    finally:
        cluster.compose("--profile", "spark", "rm", "--stop", "--force", "--volumes", *names)


def _log(cluster: ContainerCluster, service: str) -> str:
    return cluster.try_compose("--profile", "spark", "logs", "--no-color", service).text


def _click(number: int, minute: int) -> bytes:
    at = f"2025-10-09T09:{minute:02}:00Z"
    return json.dumps({"id": f"c{number}", "user": "u", "page": "home", "at": at}).encode()


def test_a_pipeline_runs_on_a_master_and_a_worker_in_containers(
    with_spark: ContainerCluster,
) -> None:
    cluster = with_spark
    config = {"bootstrap.servers": cluster.bootstrap}
    with Admin(config) as admin:
        admin.create_topics([NewTopic(name, count) for name, count in TOPICS.items()])
    with Producer(config) as producer:
        for number in range(20):
            producer.send("clicks", _click(number, minute=number // 10), key=b"u")
        producer.send("clicks", b"{broken", key=b"u")
        producer.send("clicks", _click(99, minute=30), key=b"u")
    cluster.compose(
        *("--profile", "spark", "run", "--rm", "pipeline", "run", "/pipelines/clickstream.toml"),
        *("--master", "spark://spark-master:7077", "--bootstrap-server", "node1:19092"),
        *("--into", "/var/lib/spark/clicks", "--conf", "spark.executor.memory=700m"),
        *("--conf", "spark.sql.shuffle.partitions=2"),
    )
    assert "Asked to launch executor" in _log(cluster, "spark-worker")
    with Consumer({**config, "auto.offset.reset": "earliest"}) as consumer:
        consumer.assign([TopicPartition("page-views", 0), TopicPartition("clicks-dead", 0)])
        told = [consumer.poll(30.0) for _ in range(3)]
    views = sorted(
        json.loads(one.value)["views"] for one in told if one and one.topic == "page-views"
    )
    assert views == [10, 10]
    assert [one.value for one in told if one and one.topic == "clicks-dead"] == [b"{broken"]
    files = cluster.compose(
        *("--profile", "spark", "run", "--rm", "--entrypoint", "find", "pipeline"),
        *("/var/lib/spark/clicks/lake", "-name", "*.parquet"),
    )
    assert "/lake/day=2025-10-09/hour=09/" in files
