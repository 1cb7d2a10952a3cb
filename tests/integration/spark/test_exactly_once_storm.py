"""200,000 records exactly once into a topic, while everything under the pipeline is killed.

On three nodes of ours. Rows get a random number and are dealt anew among tasks on their way, so a
task that is run again writes other bytes. Five rounds, in each of which

  1. Python workers of tasks are killed while they write
  2. those of one machine of Spark stand still, until it has done their tasks on the other
     (speculation); then they go on
  3. the leader of a partition is killed, and comes back
  4. the coordinator of the driver's transactions is killed, and comes back
  5. the driver is killed when all tasks of a batch have reported: before the batch is decided, or,
     in every second round, when its book says commit and a transaction of it is still open

After one of each kind the nodes forget every id that has no open transaction, and the leaders of
the results every producer, before the next driver starts. Whoever reads what is committed sees each
result once, and those of a key in order.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from ottla.chaos.backends.reserved import HOST
from ottla.clients.admin.answers import NewTopic
from ottla.clients.admin.blocking import Admin
from ottla.clients.consumer.sync_consumer import Consumer
from ottla.clients.metadata import TopicInfo
from ottla.clients.producer.client import Producer
from ottla.clients.spark.decider import Decider
from ottla.clients.spark.decisions import Book, PeekBook, driver_id
from ottla.clients.spark.options import read_sink_options
from ottla.proto.ids import TopicPartition
from tests.integration.clusters import RunningCluster, running_cluster
from tests.integration.nodes import wait_until
from tests.integration.spark.pipeline_process import QUICK_JVM, PipelineProcess
from tests.integration.spark.standalone import Standalone, standalone
from tests.integration.transactions.forgetting import OFTEN, forget_producers, wait_in_sync
from tests.integration.transactions.ledger_clients import coordinator_of
from tests.portion import portion

pytest.importorskip("pyspark")

pytestmark = [pytest.mark.integration, pytest.mark.long]
ROUNDS = 5
RECORDS = 200_000
KEYS = 97
PARTITIONS = 4
# Small ones while things are killed, so that something is left to read at the end.
BATCH = 1_000
LAST_BATCH = 20_000
DEADLINE_S = 600.0
PREFIX = "storm.topic_out"
QUERIES = {"topic_out"}
CONF = {
    "spark.driver.host": HOST,
    "spark.driver.bindAddress": HOST,
    "spark.driver.memory": "1g",
    "spark.executor.memory": "700m",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.extraJavaOptions": QUICK_JVM,
    "spark.executor.extraJavaOptions": QUICK_JVM,
    "spark.task.maxFailures": "16",
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.multiplier": "2",
    "spark.speculation.minTaskRuntime": "2s",
    "spark.excludeOnFailure.enabled": "false",
    "spark.eventLog.enabled": "true",
    "spark.eventLog.rolling.enabled": "false",
    "spark.eventLog.compress": "false",
}
FILE = """
[pipeline]
name = "storm"
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
schema = "key string, number bigint"

[[steps]]
name = "drawn"
kind = "sql"
sql = '''
select /*+ REPARTITION(5, key) */ key, number, chance
from (select key, number, rand() as chance from parsed)
'''

[[sinks]]
name = "topic_out"
kind = "topic"
from = "drawn"
topic = "results"
key = "key"
"""


class _Storm:
    """The cluster, the pipeline on it, and what is done to them."""

    def __init__(
        self, place: Path, cluster: RunningCluster, spark: Standalone, admin: Admin
    ) -> None:
        self.cluster = cluster
        self.spark = spark
        self.admin = admin
        self.log = place / "pipeline.log"
        self.log.touch()
        self.events = place / "events"
        self.events.mkdir()
        self.process: PipelineProcess | None = None
        # To read the book, as a driver would.
        self.options = read_sink_options(
            {
                "kafka.bootstrap.servers": cluster.bootstrap,
                "topic": "results",
                "exactlyOnce": "true",
                "transactionalIdPrefix": PREFIX,
            }
        )

    def start(self, file: Path) -> PipelineProcess:
        conf = {**CONF, "spark.eventLog.dir": self.events.as_uri()}
        self.process = PipelineProcess(
            file, self.log, url=self.spark.url, conf=conf, elsewhere=self.spark.workers
        )
        return self.process

    def end(self) -> None:
        if self.process is not None:
            self.process.end()

    def wait_until_writing(self, process: PipelineProcess) -> None:
        def is_writing() -> bool:
            process.require_running()
            return bool(self.open_ids())

        wait_until(is_writing, DEADLINE_S, "a task writes")

    def open_ids(self) -> list[str]:
        listed = self.admin.list_transactions(states=["Ongoing"])
        names = [one.transactional_id for one in listed]
        return [one for one in names if one.startswith(f"{PREFIX}/") and one != driver_id(PREFIX)]

    def undone(self) -> set[str]:
        """Return the ids that the book says to commit, and that are still open."""
        with Decider(self.options) as decider:
            book: Book = decider.perform(PeekBook())
        if book.decision is None or book.decision.is_done:
            return set()
        decided = {one.transactional_id for one in book.decision.prepared}
        return decided.intersection(self.open_ids())

    def kill_and_restart(self, node_id: int, process: PipelineProcess) -> None:
        """Kill a node, see that the pipeline goes on without it, and take it back."""
        self.cluster[node_id].kill()
        process.wait_for_batches(QUERIES)
        self.cluster[node_id].restart()
        wait_in_sync(self.admin, "numbers", "results", "__transaction_state")

    def leader(self, number: int) -> int:
        found = self.admin.describe_topics(["results"])["results"]
        assert isinstance(found, TopicInfo), found
        return found.partitions[number % PARTITIONS].leader

    def attempts(self) -> tuple[int, int]:
        """Return how many attempts of tasks failed, and how many second ones were started."""
        failed = speculative = 0
        for path in self.events.iterdir():
            for line in path.read_text(errors="replace").splitlines():
                if '"SparkListenerTaskEnd"' in line:
                    failed += '"Reason":"ExceptionFailure"' in line
                elif '"SparkListenerTaskStart"' in line:
                    speculative += '"Speculative":true' in line
        return failed, speculative


def _send(bootstrap: str, count: int) -> None:
    with Producer({"bootstrap.servers": bootstrap}) as producer:
        for number in range(count):
            key = f"k{number % KEYS}"
            value = json.dumps({"key": key, "number": number}).encode()
            producer.send("numbers", value, key=key.encode())


def _results(bootstrap: str) -> list[tuple[bytes, int]]:
    """Return key and number of all that is committed, partition after partition, in order."""
    config = {"bootstrap.servers": bootstrap, "isolation.level": "read_committed"}
    got = list[tuple[bytes, int]]()
    with Consumer({**config, "auto.offset.reset": "earliest"}) as consumer:
        for number in range(PARTITIONS):
            where = TopicPartition("results", number)
            consumer.assign([where])
            end = consumer.end_offsets([where])[where]
            while consumer.position(where) < end:
                for record in consumer.consume(5_000, 5.0):
                    got.append((record.key, json.loads(record.value)["number"]))
    return got


def _round(storm: _Storm, file: Path, number: int) -> None:
    process = storm.start(file)
    process.wait_for_batches(QUERIES)
    storm.wait_until_writing(process)
    process.kill_workers()
    process.wait_for_batches(QUERIES)
    storm.wait_until_writing(process)
    assert process.freeze_tasks_below(storm.spark.workers[number % len(storm.spark.workers)])
    process.wait_for_batches(QUERIES)
    process.thaw()
    storm.kill_and_restart(storm.leader(number), process)
    storm.kill_and_restart(coordinator_of(storm.cluster, driver_id(PREFIX)), process)
    is_decided = number % 2 == 1
    process.kill_driver_at_commit(
        in_the_middle=is_decided, holds=lambda: not is_decided or bool(storm.undone())
    )
    assert bool(storm.undone()) is is_decided


def test_each_result_is_there_once_though_tasks_drivers_leaders_and_coordinators_are_killed(
    tmp_path: Path,
) -> None:
    rounds = portion(ROUNDS)
    records = RECORDS * rounds // ROUNDS
    with (
        running_cluster(tmp_path / "cluster", options=OFTEN) as cluster,
        standalone(tmp_path / "spark") as spark,
    ):
        address = {"bootstrap.servers": cluster.bootstrap}
        file, last = tmp_path / "storm.toml", tmp_path / "last.toml"
        for path, trigger, batch in (
            (file, "0 seconds", BATCH),
            (last, "available-now", LAST_BATCH),
        ):
            path.write_text(FILE.format(bootstrap=cluster.bootstrap, trigger=trigger, batch=batch))
        with Admin(address) as admin:
            admin.create_topics([NewTopic(name, PARTITIONS) for name in ("numbers", "results")])
            _send(cluster.bootstrap, records)
            storm = _Storm(tmp_path, cluster, spark, admin)
            undecided = forgotten = 0
            try:
                for number in range(rounds):
                    _round(storm, file, number)
                    undecided += len(storm.open_ids())
                    # After a driver that died between two commits, and one before the decision.
                    if number in (1, rounds // 2):
                        forgotten += forget_producers(cluster, admin, "results")
                    print(f"round {number + 1} of {rounds} is over", flush=True)
                storm.start(last).wait_until_done(DEADLINE_S)
            finally:
                storm.end()
            left = storm.open_ids()
        results = _results(cluster.bootstrap)
        failed, speculative = storm.attempts()
    assert Counter(number for _, number in results) == Counter(range(records))
    for key in {key for key, _ in results}:
        numbers = [number for one, number in results if one == key]
        assert numbers == sorted(numbers), f"{key!r} is not in order"
    assert left == []
    again = storm.log.read_text(errors="replace").count("was written before")
    shown = {"undecided": undecided, "forgotten": forgotten}
    shown |= {"failed": failed // rounds, "speculative": speculative // rounds}
    if rounds > 1:
        shown["again"] = again
    assert all(shown.values()), f"nothing was shown by some of this: {shown}"
    print(
        f"{records} results once and in order: {rounds} drivers killed between the commits of "
        f"tasks and of the batch ({undecided} transactions were open, {again} batches decided "
        f"before), {rounds} leaders and {rounds} coordinators killed, {failed} attempts of tasks "
        f"failed, {speculative} were speculative, {forgotten} ids forgotten before restarts."
    )
