"""What a node counts, the text of it, and that the table is all there is."""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Iterable
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from ottla.node import metric_table as table
from ottla.node.commands.docs import metrics_markdown
from ottla.node.exposition import exposition
from ottla.node.metric_table import METRICS, MetricRow
from ottla.node.metrics import (
    REASONS_MAX,
    TOPIC_ROWS_MAX,
    Histogram,
    Metrics,
    Reading,
    stream_readings,
)
from ottla.node.process import disk_readings, measure_loop_delay, process_readings
from ottla.node.stream_counts import COUNTS_MAX, StreamCounts
from ottla.proto.errors import InvariantError


def _text(metrics: Metrics) -> str:
    return asyncio.run(exposition(metrics)).decode()


def _samples(metrics: Metrics) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Read the text as Prometheus does; no series may be there twice."""
    found: list[Sample] = [
        sample
        for family in text_string_to_metric_families(_text(metrics))
        for sample in family.samples
    ]
    keys = [(one.name, tuple(sorted(one.labels.items()))) for one in found]
    assert len(set(keys)) == len(keys)
    return dict(zip(keys, (one.value for one in found), strict=True))


def _value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return _samples(metrics).get((name, tuple(sorted(labels.items()))))


def _busy() -> Metrics:
    """Return metrics in which everything has happened."""
    metrics = Metrics(version="1.2.3")
    metrics.connections_of("CLIENT").open += 1
    orders = metrics.topic("orders")
    orders.messages_in += 3
    orders.bytes_in += 300
    metrics.requests["Produce"].observe(0.3, version=13)
    metrics.requests["Produce"].observe_phases(0.2, 0.1)
    metrics.watch(metrics.controller.readings)
    metrics.watch(lambda: disk_readings("/"))
    metrics.streams.of("quorum", 2).opened()
    metrics.streams.of("quorum", 2).heard_ms = 0
    metrics.watch(lambda: stream_readings(metrics.streams, 1_000))
    metrics.request_failed("Produce", 3)
    metrics.refused("connections")
    metrics.protocol_error("frame_too_large")
    metrics.fsync.observe(0.002)
    metrics.loop_delay.observe(0.0)
    metrics.watch(process_readings)
    metrics.watch(lambda: [Reading(row, 1, _labels(row)) for row in METRICS if _is_looked_up(row)])
    return metrics


def _labels(row: MetricRow) -> tuple[str, ...]:
    return tuple("x" for _ in row.labels)


def _is_looked_up(row: MetricRow) -> bool:
    looked_up = ("kafka_log_", "kafka_server_replica", "kafka_controller_", "kafka_server_raft_")
    ours = (
        *("ottla_quorum_", "ottla_metadata_", "ottla_broker_", "ottla_replication_"),
        *("ottla_node_", "ottla_log_size"),
        # Those of groups: tests/unit/node/kafka/test_groups.py.
        *("ottla_group_", "kafka_coordinator_", "kafka_consumergroup_"),
        # Those of transactions: tests/unit/node/kafka/test_transactions.py.
        "ottla_transaction",
    )
    counted = ("kafka_server_replica", "kafka_controller_controllerstats_")
    is_counted_here = row.kind == "histogram" or (
        row.kind == "counter" and row.name.startswith(counted)
    )
    return row.name.startswith((*looked_up, *ours)) and not is_counted_here


# ── The table ─────────────────────────────────────────────────────────────────────────────────


def test_what_is_exported_is_what_the_table_has() -> None:
    types = re.findall(r"^# TYPE (\S+) (\S+)$", _text(_busy()), re.MULTILINE)
    assert types == [(row.name, row.kind) for row in METRICS]


def test_every_line_belongs_to_the_metric_above_it() -> None:
    name = ""
    for line in _text(_busy()).splitlines():
        if line.startswith("# HELP "):
            name = line.split()[2]
        elif not line.startswith("#"):
            assert re.match(rf"{name}(_bucket|_sum|_count)?[{{ ]", line), line


@pytest.mark.parametrize("row", METRICS, ids=lambda row: str(row.name))
def test_a_row_is_named_as_prometheus_asks(row: MetricRow) -> None:
    assert re.fullmatch(r"(kafka|ottla|process|python)_[a-z0-9_]+", row.name)
    assert row.name.endswith("_total") == (row.kind == "counter")
    assert row.doc.endswith(".")
    assert "\n" not in row.doc
    assert "|" not in row.doc
    assert all(re.fullmatch(r"[a-z][A-Za-z]*", label) for label in row.labels)


def test_no_metric_is_there_twice() -> None:
    names = [row.name for row in METRICS]
    assert len(set(names)) == len(names)


def test_every_row_is_documented() -> None:
    page = metrics_markdown()
    assert [row.name for row in METRICS] == re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)


def test_a_reading_outside_the_table_is_a_bug() -> None:
    metrics = Metrics(version="1")
    metrics.watch(lambda: [Reading(MetricRow("ottla_made_up", "gauge", "x."), 1)])
    with pytest.raises(InvariantError, match="a metric has a row"):
        _text(metrics)


# ── Topics ────────────────────────────────────────────────────────────────────────────────────


def test_a_topic_is_counted_under_its_name_and_in_the_sum() -> None:
    metrics = Metrics(version="1")
    metrics.topic("a").bytes_in += 10
    metrics.topic("b").bytes_in += 5
    metrics.topic("a").bytes_in += 10
    name = "kafka_server_brokertopicmetrics_bytesin_total"
    assert _value(metrics, name, topic="a") == 20
    assert _value(metrics, name, topic="b") == 5
    assert _value(metrics, name) == 25


def test_a_deleted_topic_loses_its_label_and_the_sum_does_not_fall() -> None:
    metrics = Metrics(version="1")
    metrics.topic("a").messages_in += 10
    metrics.topic("b").messages_in += 5
    metrics.keep_topics({"b"})
    name = "kafka_server_brokertopicmetrics_messagesin_total"
    assert _value(metrics, name, topic="a") is None
    assert _value(metrics, name) == 15
    # A topic of the same name begins anew.
    metrics.topic("a").messages_in += 1
    assert (_value(metrics, name, topic="a"), _value(metrics, name)) == (1, 16)


@pytest.mark.parametrize("more", [0, 1])
def test_above_a_number_of_topics_only_the_sum_is_told(more: int) -> None:
    metrics = Metrics(version="1")
    for number in range(TOPIC_ROWS_MAX + more):
        metrics.topic(f"t{number}").bytes_in += 1
    name = "kafka_server_brokertopicmetrics_bytesin_total"
    assert _value(metrics, name) == TOPIC_ROWS_MAX + more
    assert _value(metrics, name, topic="t0") == (None if more else 1)


def test_a_topic_that_is_not_ours_counts_under_no_name() -> None:
    metrics = Metrics(version="1")
    metrics.unknown_topic.failed_produce += 1
    found = [key for key in _samples(metrics) if "failedproduce" in key[0]]
    assert found == [("kafka_server_brokertopicmetrics_failedproducerequests_total", ())]


@pytest.mark.parametrize(
    ("attribute", "name"),
    [
        ("messages_in", "messagesin"),
        ("bytes_in", "bytesin"),
        ("bytes_out", "bytesout"),
        ("produce_requests", "totalproducerequests"),
        ("fetch_requests", "totalfetchrequests"),
        ("failed_produce", "failedproducerequests"),
        ("failed_fetch", "failedfetchrequests"),
    ],
)
def test_each_counter_of_a_topic_has_kafkas_name(attribute: str, name: str) -> None:
    metrics = Metrics(version="1")
    setattr(metrics.topic("t"), attribute, 7)
    assert _value(metrics, f"kafka_server_brokertopicmetrics_{name}_total", topic="t") == 7


# ── Requests ──────────────────────────────────────────────────────────────────────────────────


def test_requests_are_counted_by_version_and_timed() -> None:
    metrics = Metrics(version="1")
    for ms, version in [(0.05, 3), (0.3, 13), (700, 13)]:
        metrics.requests["Fetch"].observe(ms, version=version)
    times = "kafka_network_requestmetrics_totaltimems"
    count = "kafka_network_requestmetrics_requests_total"
    assert _value(metrics, count, request="Fetch", version="3") == 1
    assert _value(metrics, count, request="Fetch", version="13") == 2
    assert _value(metrics, f"{times}_count", request="Fetch") == 3
    assert _value(metrics, f"{times}_sum", request="Fetch") == pytest.approx(700.35)
    assert _value(metrics, f"{times}_bucket", request="Fetch", le="0.1") == 1
    assert _value(metrics, f"{times}_bucket", request="Fetch", le="500.0") == 2
    assert _value(metrics, f"{times}_bucket", request="Fetch", le="+Inf") == 3


def test_a_request_is_told_in_phases_only_if_it_has_them() -> None:
    metrics = Metrics(version="1")
    metrics.request_answered("Metadata", 12, took_ms=3.0, queue_ms=1.0, errors=[3])
    metrics.requests["Produce"].observe(9.0, 1.0, 13)
    metrics.requests["Produce"].observe_phases(2.0, 6.0)
    prefix = "kafka_network_requestmetrics_"
    told = {
        (phase, request): _value(metrics, f"{prefix}{phase}timems_sum", request=request)
        for phase in ("total", "requestqueue", "local", "remote")
        for request in ("Metadata", "Produce")
    }
    assert told == {
        ("total", "Metadata"): 3.0,
        ("requestqueue", "Metadata"): 1.0,
        ("local", "Metadata"): None,
        ("remote", "Metadata"): None,
        ("total", "Produce"): 9.0,
        ("requestqueue", "Produce"): 1.0,
        ("local", "Produce"): 2.0,
        ("remote", "Produce"): 6.0,
    }
    errors = f"{prefix}errors_total"
    assert _value(metrics, errors, request="Metadata", error="UNKNOWN_TOPIC_OR_PARTITION") == 1


@pytest.mark.parametrize(
    ("delay_ms", "seconds"), [(1_500, 1.5), (-20, 0.0), (2**60, 86_400.0), (0, 0.0)]
)
def test_the_age_of_a_batch_is_a_time_whatever_its_timestamp_is(
    delay_ms: int, seconds: float
) -> None:
    metrics = Metrics(version="1")
    metrics.batch_appended(delay_ms)
    name = "ottla_record_append_delay_seconds"
    assert (_value(metrics, f"{name}_count"), _value(metrics, f"{name}_sum")) == (1, seconds)


@pytest.mark.parametrize("version", [-(2**15), -1, 32, 2**15 - 1])
def test_a_version_that_no_api_has_is_other(version: int) -> None:
    metrics = Metrics(version="1")
    metrics.requests["ApiVersions"].observe(0.1, version=version)
    name = "kafka_network_requestmetrics_requests_total"
    assert _value(metrics, name, request="ApiVersions", version="other") == 1


def test_errors_have_their_names() -> None:
    metrics = Metrics(version="1")
    metrics.request_failed("Produce", 3)
    metrics.request_failed("Produce", 3)
    metrics.request_failed("Produce", 9_999)
    name = "kafka_network_requestmetrics_errors_total"
    known = _value(metrics, name, request="Produce", error="UNKNOWN_TOPIC_OR_PARTITION")
    assert known == 2
    assert _value(metrics, name, request="Produce", error="9999") == 1


def test_names_that_are_made_up_have_a_limit() -> None:
    metrics = Metrics(version="1")
    for number in range(500):
        metrics.requests[f"made up {number}"].observe(1, version=0)
        metrics.refused(f"made up {number}")
        metrics.protocol_error(f"made up {number}")
    assert len(metrics.requests) == 129
    refused = 'ottla_connections_refused_total{reason="'
    assert _text(metrics).count(refused) == REASONS_MAX + 1
    assert _value(metrics, "ottla_protocol_errors_total", reason="other") == 500 - REASONS_MAX


# ── Histograms and text ───────────────────────────────────────────────────────────────────────


def test_a_bound_belongs_to_its_own_bucket() -> None:
    histogram = Histogram((1.0, 2.0))
    for value in (0.5, 1.0, 1.5, 2.0, 2.1, math.inf):
        histogram.observe(value)
    assert histogram.counts == [2, 2, 2]


def test_gauges_of_connections_and_waiting_are_there() -> None:
    metrics = Metrics(version="1")
    inside = metrics.connections_of("INSIDE")
    inside.open, inside.created, inside.closed = 2, 5, 3
    metrics.connections_of("OUTSIDE").open += 1
    metrics.waiting_fetches, metrics.waiting_produces = 7, 1
    sockets = "kafka_server_socket_server_metrics_connection"
    assert _value(metrics, f"{sockets}_count", listener="INSIDE") == 2
    assert _value(metrics, f"{sockets}_creation_total", listener="INSIDE") == 5
    assert _value(metrics, f"{sockets}_close_total", listener="INSIDE") == 3
    assert _value(metrics, f"{sockets}_count", listener="OUTSIDE") == 1
    waiting = "kafka_server_delayedoperationpurgatory_purgatorysize"
    assert _value(metrics, waiting, delayedOperation="Fetch") == 7
    assert _value(metrics, waiting, delayedOperation="Produce") == 1


def test_a_label_cannot_break_the_text() -> None:
    hostile = 'x"} 1\nkafka_made_up{y="\\'
    metrics = Metrics(version=hostile)
    assert _value(metrics, "ottla_build_info", version=hostile) == 1


def test_the_process_tells_about_itself() -> None:
    metrics = Metrics(version="1")
    metrics.watch(process_readings)
    samples = {key[0]: value for key, value in _samples(metrics).items()}
    assert samples["process_resident_memory_bytes"] > 1_000_000
    assert samples["process_virtual_memory_bytes"] > samples["process_resident_memory_bytes"]
    assert samples["process_cpu_seconds_total"] > 0
    assert samples["process_open_fds"] > 0
    assert samples["process_start_time_seconds"] > 1_600_000_000
    assert samples["python_gc_collections_total"] >= 0


def test_others_are_served_while_a_long_text_is_made() -> None:
    count = 40_000

    def many() -> Iterable[Reading]:
        return (Reading(table.LOG_SIZE, number, ("t", str(number))) for number in range(count))

    async def run() -> int:
        metrics = Metrics(version="1")
        metrics.watch(many)
        task = asyncio.create_task(exposition(metrics))
        turns = 0
        while not task.done():
            await asyncio.sleep(0)
            turns += 1
        assert task.result().count(b"kafka_log_log_size{") == count
        return turns

    # It takes more than 20 ms on any machine, and somebody is let in after each.
    assert asyncio.run(run()) >= 10


class Waited(Histogram):
    """Tells when it has seen three values."""

    def __init__(self) -> None:
        super().__init__((60.0,))
        self.is_enough = asyncio.Event()

    def observe(self, value: float) -> None:
        super().observe(value)
        if sum(self.counts) == 3:
            self.is_enough.set()


def test_lateness_of_the_loop_is_observed() -> None:
    async def run() -> Histogram:
        delay = Waited()
        task = asyncio.create_task(measure_loop_delay(delay, period_s=0))
        async with asyncio.timeout(10):
            await delay.is_enough.wait()
        task.cancel()
        return delay

    delay = asyncio.run(run())
    assert delay.sum >= 0
    assert delay.counts[1] == 0


# ── Replication ───────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("before", "wanted", "code", "counts"),
    [
        ((1, 2, 3), (1, 2), 0, (1, 0, 0)),
        ((1, 2), (1, 2, 3), 0, (0, 1, 0)),
        ((1, 2), (1, 3), 0, (1, 1, 0)),
        # A leader that says only that it is in office.
        ((1,), (1,), 0, (0, 0, 0)),
        ((1, 2, 3), (1, 2), 7, (0, 0, 1)),
    ],
)
def test_in_sync_sets_are_counted_by_what_became_of_them(
    before: tuple[int, ...], wanted: tuple[int, ...], code: int, counts: tuple[int, int, int]
) -> None:
    metrics = Metrics(version="1.2.3")
    metrics.replication.isr_answered(before, wanted, code)
    names = ("isrshrinks", "isrexpands", "failedisrupdates")
    found = [_value(metrics, f"kafka_server_replicamanager_{name}_total") for name in names]
    assert tuple(found) == counts


def test_bytes_of_copies_are_counted_apart_from_those_of_clients() -> None:
    metrics = Metrics(version="1.2.3")
    metrics.replication.bytes_in += 5
    metrics.replication.bytes_out += 7
    prefix = "kafka_server_brokertopicmetrics_"
    assert _value(metrics, f"{prefix}replicationbytesin_total") == 5
    assert _value(metrics, f"{prefix}replicationbytesout_total") == 7
    assert _value(metrics, f"{prefix}bytesin_total") == 0


# ── Streams and the disk ──────────────────────────────────────────────────────────────────────


def _streams(streams: StreamCounts, now_ms: int = 5_000) -> dict[str, float]:
    metrics = Metrics(version="1")
    metrics.watch(lambda: stream_readings(streams, now_ms))
    told = {key[0]: value for key, value in _samples(metrics).items() if "stream" in key[0]}
    return {name.removeprefix("ottla_stream_"): value for name, value in told.items()}


def test_a_stream_is_told_as_open_broken_and_silent() -> None:
    streams = StreamCounts()
    count = streams.of("replication", 2)
    count.wanted()
    assert _streams(streams) == {"open": 0, "breaks_total": 0}
    count.opened()
    count.heard_ms = 3_500
    assert _streams(streams) == {"open": 1, "breaks_total": 0, "silence_seconds": 1.5}
    count.broke()
    assert _streams(streams) == {"open": 0, "breaks_total": 1, "silence_seconds": 1.5}


def test_a_stream_that_nobody_wants_any_more_is_not_a_broken_one() -> None:
    streams = StreamCounts()
    count = streams.of("replication", 2)
    count.opened()
    count.left()
    assert _streams(streams) == {"breaks_total": 0}


def test_peers_that_are_made_up_have_a_limit() -> None:
    streams = StreamCounts()
    for peer in range(COUNTS_MAX + 10):
        streams.of("quorum", peer).opened()
    assert len(list(streams)) == COUNTS_MAX


def test_a_directory_that_is_not_there_has_no_room_to_tell_of(tmp_path: Path) -> None:
    assert list(disk_readings(str(tmp_path / "gone"))) == []
    free, size = (reading.value for reading in disk_readings(str(tmp_path)))
    assert isinstance(free, int)
    assert isinstance(size, int)
    assert 0 <= free <= size
