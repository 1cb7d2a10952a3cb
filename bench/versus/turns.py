"""How one turn of each kind that only loads a cluster is taken, and what it gives.

Every record of a turn was acknowledged, or the turn fails. Processor time and memory are those of
the nodes, between the word "go" and the last answer.

Not here: turns that start or break clusters (`lives.py`); their order (`run.py`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from bench.peers.peer import NODES, Peer
from bench.versus.disk import paced_syncs
from bench.versus.driving import Drivers, Told, seconds_of
from bench.versus.figures import at_share, is_saturated
from bench.versus.results import Figures
from bench.versus.stage import Stage, Watch
from bench.versus.workloads import Workload

# How long the disk alone is asked, before each turn of single synced records without a reader.
_DISK_S: Final = 1.5
# For how long records are handed over as fast as they go: who is quick is done before.
TRAFFIC_S: Final = 2.0
_CURVE: Final = (0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999, 1.0)


def _options(stage: Stage, row: Workload, topic: str, **more: Any) -> dict[str, Any]:
    return {
        "to": stage.peer.bootstrap,
        "topic": topic,
        "partitions": row.partitions,
        "size": row.size,
        "acks": row.acks,
        "codec": row.codec,
        "rate": row.rate,
        **more,
    }


def _spent(watch: Watch, payload_bytes: float, told: Sequence[Told]) -> Figures:
    drivers_cpu_s = sum(one["cpu_s"] for one in told)
    with_kernel_s = watch.cpu_s + watch.elsewhere_cores(drivers_cpu_s) * watch.seconds
    return {
        "cpu_s": round(watch.cpu_s, 2),
        "cpu_s_per_gb": round(watch.cpu_s / (payload_bytes / 1e9), 3),
        # A sync may run in a thread of the kernel, which is in no node's account.
        "cpu_s_per_gb_with_kernel": round(with_kernel_s / (payload_bytes / 1e9), 3),
        "node_cores": round(watch.cpu_s / watch.seconds, 2),
        "others_cores": round(watch.others_cpu_s / watch.seconds, 3),
        "elsewhere_cores": round(watch.elsewhere_cores(drivers_cpu_s), 3),
        "driver_cores": round(drivers_cpu_s / watch.seconds, 2),
        "rss_peak_mb": round(watch.rss_peak_mb, 1),
    }


def speed(count: int, size: int, seconds: float) -> Figures:
    return {
        "seconds": round(seconds, 4),
        "mb_per_s": round(count * size / seconds / 1e6, 2),
        "records_per_s": round(count / seconds),
    }


def written(
    stage: Stage, row: Workload, topic: str, seconds: float | None = None
) -> tuple[list[Told], Watch]:
    """Write the records of a row, by as many processes as it says; return what they saw.

    With `seconds`, nothing is handed over after that: what is measured is a speed.
    """
    limit = {} if seconds is None else {"seconds": seconds}
    with Drivers(row.seconds_max) as drivers:
        with stage.lap("drivers"):
            for number in range(row.clients):
                more = {
                    **limit,
                    "clients": row.clients,
                    "count": row.records // row.clients,
                    # Together they begin at all partitions, not only at the first few.
                    "first": number * row.partitions // row.clients,
                }
                drivers.add(stage.driver, "produce", _options(stage, row, topic, **more))
            drivers.wait_ready()
        stage.wait_calm()
        stage.warm(row.payload_bytes)
        with stage.watch() as watch:
            drivers.go()
            told = drivers.results()
    return told, watch


def produce(stage: Stage, row: Workload) -> Figures:
    with stage.topic(row.partitions) as topic:
        told, watch = written(stage, row, topic, TRAFFIC_S)
    count, seconds = sum(one["count"] for one in told), seconds_of(told)
    return {
        **speed(count, row.size, seconds),
        **_spent(watch, count * row.size, told),
    }


def consume(stage: Stage, row: Workload) -> Figures:
    """Read a topic that was written once for all turns that read; warm, it was just read once."""

    def fill(topic: str) -> None:
        written(stage, row, topic)
        # What is not on disk yet would be written while it is read, and cannot leave the cache.
        settle(stage.peer, topic, leave=False)

    topic = stage.kept_topic(f"{row.records} records", row.partitions, fill)
    options = _options(stage, row, topic, count=row.records, warm_count=row.warm_records)
    with Drivers(row.seconds_max) as drivers:
        with stage.lap("drivers"):
            drivers.add(stage.driver, "consume", {**options, "ahead": row.is_ahead})
            drivers.wait_ready()
        stage.wait_calm()
        if row.is_cold:
            settle(stage.peer, topic, leave=True)
        with stage.watch() as watch:
            drivers.go()
            told = drivers.results()
    seconds = seconds_of(told)
    return {
        **speed(row.records, row.size, seconds),
        **_spent(watch, row.payload_bytes, told),
    }


def settle(peer: Peer, topic: str, *, leave: bool) -> None:
    """Have the files of a topic on disk; with `leave`, out of the page cache too."""
    for node in NODES:
        for path in peer.data_dir(node).glob(f"**/{topic}-*/*"):
            _settle_file(path, leave=leave)


def _settle_file(path: Path, *, leave: bool) -> None:
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fdatasync(descriptor)
        if leave:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)


def together(stage: Stage, row: Workload) -> Figures:
    with stage.topic(row.partitions) as topic, Drivers(row.seconds_max) as drivers:
        with stage.lap("drivers"):
            drivers.add(stage.driver, "produce", _options(stage, row, topic, count=row.records))
            # The writer's own warm-up is over before the reader asks where the end is.
            drivers.wait_ready()
            options = _options(stage, row, topic, count=row.records, from_end=True)
            drivers.add(stage.driver, "consume", options).wait_ready()
        stage.wait_calm()
        stage.warm(row.payload_bytes)
        with stage.watch() as watch:
            drivers.go()
            wrote, read = drivers.results()
    count = wrote["count"]
    all_s = read["ended"] - wrote["began"]
    return {
        **speed(count, row.size, seconds_of([wrote])),
        **_spent(watch, count * row.size, [wrote, read]),
        "consume_mb_per_s": round(count * row.size / all_s / 1e6, 2),
    }


def latency(times_us: list[int]) -> Figures:
    """Return shares of sorted times, in milliseconds."""
    return {
        "p50_ms": round(at_share(times_us, 0.5) / 1000, 3),
        "p99_ms": round(at_share(times_us, 0.99) / 1000, 3),
        "p999_ms": round(at_share(times_us, 0.999) / 1000, 3),
        "max_ms": round(times_us[-1] / 1000, 3),
        "curve_ms": [[share, round(at_share(times_us, share) / 1000, 3)] for share in _CURVE],
    }


def _disk_alone(stage: Stage, row: Workload) -> Figures:
    """Return what the disk alone does at this pace, moments before; nothing if nobody waits."""
    if stage.variant.durability != "fsync":
        return {}
    with stage.lap("disk alone"):
        times_us = paced_syncs(stage.peer.directory, row.rate, _DISK_S)
    return {
        "disk_p50_ms": round(at_share(times_us, 0.5) / 1000, 3),
        "disk_p99_ms": round(at_share(times_us, 0.99) / 1000, 3),
    }


def _paced(stage: Stage, row: Workload, *, is_followed: bool) -> Figures:
    # With a reader nobody asks: the same disk was asked for the same rates without.
    disk = {} if is_followed else _disk_alone(stage, row)
    with stage.topic(row.partitions) as topic, Drivers(row.seconds_max) as drivers:
        options = _options(stage, row, topic, count=row.records)
        with stage.lap("drivers"):
            drivers.add(stage.driver, "pace", options).wait_ready()
            if is_followed:
                drivers.add(stage.driver, "follow", options).wait_ready()
        stage.wait_calm()
        with stage.watch() as watch:
            drivers.go()
            wrote, *followed = drivers.results()
    drivers_cpu_s = sum(one["cpu_s"] for one in (wrote, *followed))
    planned_s, took_s = row.records / row.rate, wrote["ended"] - wrote["began"]
    acked = latency(wrote["times_us"])
    seen = latency(followed[0]["times_us"]) if followed else acked
    left = max(one["left"] for one in (wrote, *followed))
    acked_count = max(1, row.records - wrote["left"])
    return {
        **seen,
        **disk,
        "ack_p50_ms": acked["p50_ms"],
        "ack_p99_ms": acked["p99_ms"],
        "is_saturated": left > 0 or is_saturated(planned_s, took_s),
        # Not acknowledged, or not read, when it was certain that the pace is not kept.
        "left": left,
        "took_s": round(took_s, 3),
        "planned_s": round(planned_s, 3),
        "sent_late": wrote["late"],
        "cpu_us_per_record": round(watch.cpu_s / acked_count * 1e6, 1),
        "driver_cores": round(drivers_cpu_s / watch.seconds, 2),
        "elsewhere_cores": round(watch.elsewhere_cores(drivers_cpu_s), 3),
        "others_cores": round(watch.others_cpu_s / watch.seconds, 3),
        "rss_peak_mb": round(watch.rss_peak_mb, 1),
    }


def pace(stage: Stage, row: Workload) -> Figures:
    return _paced(stage, row, is_followed=False)


def flow(stage: Stage, row: Workload) -> Figures:
    return _paced(stage, row, is_followed=True)


LOADS: Final[Mapping[str, Callable[[Stage, Workload], Figures]]] = {
    "produce": produce,
    "consume": consume,
    "together": together,
    "pace": pace,
    "flow": flow,
}
