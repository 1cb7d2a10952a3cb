"""A pipeline into a topic, exactly once, while tasks and drivers are killed, on Apache Kafka.

The driver is killed at any moment, also between a decision and its commits: the model of
`tests/unit/clients/spark/test_decisions_model.py` has every such moment, this test has real ones.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from ottla.clients.admin.answers import NewTopic
from ottla.clients.admin.blocking import Admin
from ottla.clients.consumer.sync_consumer import Consumer
from ottla.clients.producer.client import Producer
from ottla.clients.spark.decider import Decider
from ottla.clients.spark.decisions import Claim
from ottla.clients.spark.options import read_sink_options
from ottla.proto.ids import TopicPartition
from tests.integration.nodes import wait_until
from tests.integration.spark.pipeline_process import QUICK_JVM, PipelineProcess
from tests.interop.broker import start_broker
from tests.interop.kafka import class_path, missing_tools

pytest.importorskip("pyspark")

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.interop]
DRIVERS = 2
RECORDS = 3_000
BATCH = 300
PARTITIONS = 2
DEADLINE_S = 600.0
SETTINGS = {
    "unstable.api.versions.enable": "true",
    "transaction.two.phase.commit.enable": "true",
}
PREFIX = "once"
CONF = {"spark.driver.extraJavaOptions": QUICK_JVM}
FILE = """
[pipeline]
name = "once"
checkpoint = "state"
bootstrap = "{bootstrap}"
trigger = "{trigger}"

[[sources]]
name = "raw"
kind = "topic"
topic = "numbers"
max_per_batch = {batch}

[[steps]]
name = "parsed"
kind = "parse_json"
from = "raw"
schema = "number bigint"

[[sinks]]
name = "topic_out"
kind = "topic"
from = "parsed"
topic = "results"
options = {{ exactlyOnce = true, transactionalIdPrefix = "once" }}
"""


def _results(bootstrap: str) -> Counter[int]:
    places = [TopicPartition("results", number) for number in range(PARTITIONS)]
    config = {"bootstrap.servers": bootstrap, "isolation.level": "read_committed"}
    found = Counter[int]()
    with Consumer(config) as consumer:
        consumer.assign(places)
        consumer.seek_to_beginning()
        ends = consumer.end_offsets(places)
        while any(consumer.position(one) < ends[one] for one in places):
            found.update(json.loads(one.value)["number"] for one in consumer.consume(500, 0.2))
    return found


def _live_and_die(file: Path, log: Path, admin: Admin) -> int:
    """Kill the workers of a batch, and the driver of a later one, while tasks write."""
    process = PipelineProcess(file, log, url="local[2,16]", conf=CONF)

    def is_writing() -> bool:
        return not process.is_running or bool(admin.list_transactions(states=["Ongoing"]))

    try:
        process.wait_for_batches({"topic_out"})
        wait_until(is_writing, DEADLINE_S, "a task writes")
        killed = process.kill_workers()
        before = process.batches()
        # A task is done again; the query itself ends if it was its own worker.
        wait_until(
            lambda: not process.is_running or process.batches() != before, DEADLINE_S, "it goes on"
        )
        wait_until(is_writing, DEADLINE_S, "a task writes")
    finally:
        process.end()
    return killed


def test_every_result_is_there_once_though_tasks_and_drivers_are_killed(tmp_path: Path) -> None:
    missing = missing_tools()
    if missing is not None:
        pytest.skip(missing)
    class_path()
    log = tmp_path / "pipeline.log"
    log.touch()
    with start_broker(tmp_path, SETTINGS) as broker:
        address = {"bootstrap.servers": broker.address}
        with Admin(address) as admin:
            admin.create_topics([NewTopic(name, PARTITIONS) for name in ("numbers", "results")])
        with Producer(address) as producer:
            for number in range(RECORDS):
                producer.send("numbers", json.dumps({"number": number}).encode())
        file, last = tmp_path / "once.toml", tmp_path / "last.toml"
        for path, trigger in ((file, "1 second"), (last, "available-now")):
            path.write_text(FILE.format(bootstrap=broker.address, trigger=trigger, batch=BATCH))
        with Admin(address) as admin:
            killed = sum(_live_and_die(file, log, admin) for _ in range(DRIVERS))
        process = PipelineProcess(last, log, url="local[2,16]", conf=CONF)
        try:
            process.wait_until_done(DEADLINE_S)
        finally:
            process.end()
        with Decider(
            read_sink_options(
                {
                    "kafka.bootstrap.servers": broker.address,
                    "exactlyOnce": "true",
                    "transactionalIdPrefix": PREFIX,
                }
            )
        ) as decider:
            rounds = decider.begin(Claim("", is_stream=True))
        results = _results(broker.address)
        with Admin(address) as admin:
            left = admin.list_transactions(states=["Ongoing"])
    assert results == Counter(range(RECORDS))
    assert left == []
    # One round for each batch, and the one of this test.
    again = rounds - RECORDS // BATCH - 1
    assert again > 0, "no batch was done again: nothing was shown"
    print(
        f"{RECORDS} results once: {DRIVERS} drivers ended, {killed} workers killed as tasks wrote, "
        f"{again} batches done again."
    )
