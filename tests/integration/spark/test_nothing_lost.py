"""200,000 records through a pipeline while everything under it is killed: nothing is lost.

Five rounds. In each, 40,000 records are sent while the pipeline runs, the Python of its tasks is
killed, the node that leads is killed and started again, and at last the driver is killed. Then the
pipeline runs once more, to the end.

Parquet must have each result once. The topic, of which the pipeline asks no more, must have each at
least once and, for each key, in order if repeats are left out; how many repeats there are is
printed.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest

from ottla.clients.admin.answers import NewTopic
from ottla.clients.admin.blocking import Admin
from ottla.clients.consumer.sync_consumer import Consumer
from ottla.clients.metadata import TopicInfo
from ottla.clients.producer.client import Producer
from ottla.proto.ids import TopicPartition
from tests.integration.clusters import RunningCluster, running_cluster
from tests.integration.nodes import wait_until
from tests.integration.spark.pipeline_process import QUICK_JVM, PipelineProcess
from tests.portion import portion

pytestmark = [pytest.mark.integration, pytest.mark.long]
ROUNDS = 5
RECORDS = 200_000
KEYS = 97
PARTITIONS = 4
# So small that there is something left to read whenever somebody is killed: a query that has read
# everything does no batch more, and would be waited for in vain.
BATCH = 1_000
LAST_BATCH = 20_000
# So often may a task fail before its query does.
URL = "local[2,16]"
CONF = {"spark.driver.memory": "1g", "spark.driver.extraJavaOptions": QUICK_JVM}
DEADLINE_S = 600.0
QUERIES = {"topic_out", "lake_out"}

FILE = """
[pipeline]
name = "survivor"
checkpoint = "state"
bootstrap = "{bootstrap}"
trigger = "{trigger}"
guarantee = "at-least-once"

[[sources]]
name = "raw"
kind = "topic"
topic = "numbers"
max_per_batch = {batch}

[[steps]]
name = "parsed"
kind = "parse_json"
from = "raw"
schema = "key string, number bigint"

[[steps]]
name = "doubled"
kind = "sql"
sql = "select key, number, number * 2 as twice from parsed"

[[sinks]]
name = "topic_out"
kind = "topic"
from = "doubled"
topic = "results"
key = "key"

[[sinks]]
name = "lake_out"
kind = "parquet"
from = "doubled"
path = "lake"
"""


def _send(bootstrap: str, first: int, count: int) -> None:
    with Producer({"bootstrap.servers": bootstrap, "acks": "all"}) as producer:
        for number in range(first, first + count):
            key = f"k{number % KEYS}"
            value = json.dumps({"key": key, "number": number}).encode()
            producer.send("numbers", value, key=key.encode())


class _Sending:
    """Records on their way, in a thread, while nodes die."""

    def __init__(self, bootstrap: str, first: int, count: int) -> None:
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(bootstrap, first, count))
        self._thread.start()

    def _run(self, bootstrap: str, first: int, count: int) -> None:
        try:
            _send(bootstrap, first, count)
        except BaseException as error:  # noqa: BLE001  (handed to whoever waits for it)
            self._error = error

    def wait(self) -> None:
        self._thread.join(DEADLINE_S)
        assert not self._thread.is_alive(), "the records are not sent"
        if self._error is not None:
            raise self._error


def _kill_a_leader(cluster: RunningCluster, admin: Admin, dice: Random) -> int:
    found = admin.describe_topics(["results"])["results"]
    assert isinstance(found, TopicInfo), found
    leader = dice.choice(found.partitions).leader
    cluster[leader].kill()
    return leader


def _all_in_sync(admin: Admin) -> bool:
    topics = [
        one
        for one in admin.describe_topics(["numbers", "results"]).values()
        if isinstance(one, TopicInfo)
    ]
    return len(topics) == 2 and all(
        len(each.in_sync) == 3 for topic in topics for each in topic.partitions
    )


def _results(bootstrap: str) -> list[tuple[bytes, int]]:
    """Return key and number of everything in the topic, partition after partition, in order."""
    got = list[tuple[bytes, int]]()
    with Consumer({"bootstrap.servers": bootstrap, "auto.offset.reset": "earliest"}) as consumer:
        for number in range(PARTITIONS):
            where = TopicPartition("results", number)
            consumer.assign([where])
            end = consumer.end_offsets([where])[where]
            while consumer.position(where) < end:
                for record in consumer.consume(5_000, 5.0):
                    told = json.loads(record.value)
                    assert told["twice"] == 2 * told["number"]
                    got.append((record.key, told["number"]))
    return got


def _require_order(results: list[tuple[bytes, int]]) -> None:
    """For each key, what was not there before comes in order."""
    last, seen = dict[bytes, int](), set[int]()
    for key, number in results:
        if number in seen:
            continue
        seen.add(number)
        assert last.get(key, -1) < number, f"{key!r}: {number} came after {last[key]}"
        last[key] = number


def test_nothing_is_lost_while_tasks_drivers_and_leaders_are_killed(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    rounds, dice = portion(ROUNDS), Random(4711)
    chunk = RECORDS // ROUNDS
    tasks_killed = 0
    with running_cluster(tmp_path / "cluster") as cluster:
        bootstrap = cluster.bootstrap
        file, last = tmp_path / "survivor.toml", tmp_path / "last.toml"
        kinds = ((file, "1 second", BATCH), (last, "available-now", LAST_BATCH))
        for path, trigger, batch in kinds:
            text = FILE.format(bootstrap=bootstrap, trigger=trigger, batch=batch)
            path.write_text(text)
        log = tmp_path / "pipeline.log"
        log.touch()
        with Admin({"bootstrap.servers": bootstrap}) as admin:
            admin.create_topics([NewTopic(name, PARTITIONS) for name in ("numbers", "results")])
            for number in range(rounds):
                sending = _Sending(bootstrap, number * chunk, chunk)
                process = PipelineProcess(file, log, url=URL, conf=CONF)
                try:
                    process.wait_for_batches(QUERIES)
                    tasks_killed += process.kill_tasks()
                    process.wait_for_batches(QUERIES)
                    leader = _kill_a_leader(cluster, admin, dice)
                    process.wait_for_batches(QUERIES)
                    cluster[leader].restart()
                    wait_until(lambda: _all_in_sync(admin), DEADLINE_S, "all are in sync")
                    sending.wait()
                    process.kill_driver()
                finally:
                    process.end()
                print(f"round {number + 1}: tasks, node {leader} and the driver killed", flush=True)
        process = PipelineProcess(last, log, url=URL, conf=CONF)
        try:
            process.wait_until_done(DEADLINE_S)
        finally:
            process.end()
        results = _results(bootstrap)
        failed = process.failed_tasks()

    wanted = set(range(rounds * chunk))
    spark: Any = request.getfixturevalue("spark")
    kept = Counter(row.number for row in spark.read.parquet(str(tmp_path / "lake")).collect())
    assert kept.keys() == wanted, f"{len(wanted - kept.keys())} results are not in Parquet"
    assert set(kept.values()) == {1}, "a result is in Parquet twice"
    told = {number for _, number in results}
    assert told == wanted, f"{len(wanted - told)} results are not in the topic"
    _require_order(results)
    assert failed >= rounds, "no task has failed in a round: nothing was shown"
    print(
        f"{len(wanted)} records, {rounds} drivers and {rounds} leaders killed, {tasks_killed} "
        f"Python workers killed ({failed} task failures): each result once in Parquet, "
        f"{len(results) - len(wanted)} repeats in the topic, in order per key."
    )
