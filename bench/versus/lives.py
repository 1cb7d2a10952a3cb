"""Turns that start, break or fill a cluster of their own.

    start        processes are begun; a topic is made as soon as it can be; one record, acks=all
    outage       the node that leads the only partition is killed while a writer writes
    partitions   the speed of one partition, before and after thousands are made; then a node dies
    restart      a cluster with data is stopped and started, then killed and started

What has to be done once before the first start (Kafka's disks are formatted) is not in a start.
Turns that share a life are taken on one cluster: an outage where a start was measured just before,
and every restart on the data that was written for the first (`order.py`).
Not here: turns that only load a cluster (`turns.py`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from statistics import median
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import NewTopic

from bench.peers import topics
from bench.peers.nats import NatsPeer
from bench.peers.peer import NODES, PeerError, wait_until
from bench.versus.drive_kafka import SHORT_PATIENCE
from bench.versus.driving import Drivers
from bench.versus.figures import longest_gap
from bench.versus.results import Figures
from bench.versus.stage import Stage
from bench.versus.turns import produce, speed, written
from bench.versus.workloads import Workload

_FIRST_ACK_S_MAX: Final = 180.0
_TRY_S: Final = 1.0
# Who is asked too early does not answer at all: a try that waits longer is what is measured.
_NATS_TRY_S: Final = 0.1
_PAUSE_S: Final = 0.02
_CALM_S: Final = 2.0
_IDLE_S: Final = 3.0
_FLOWING_S: Final = 1.0
_TOPIC_PARTITIONS: Final = 1000
_REPEATS: Final = 3
# 3 GB, as much as the clusters take that are shared.
_WARM_TURNS: Final = 12


# -- the first write -------------------------------------------------------------------------------


def first_ack(stage: Stage, name: str, *, is_new: bool) -> None:
    """Return when a record was acknowledged by a cluster that may be still starting."""
    if isinstance(stage.peer, NatsPeer):
        asyncio.run(_first_ack_of_nats(stage.peer, name))
        return
    if is_new:
        _make_soon(stage, name)
    _write_soon(stage, name)


def _make_soon(stage: Stage, name: str) -> None:
    """Make a topic of three copies, trying until the cluster can."""
    admin = topics.admin_to(stage.peer.bootstrap)
    configs = {"min.insync.replicas": "2", **stage.variant.topic_configs}
    end = time.perf_counter() + _FIRST_ACK_S_MAX
    while time.perf_counter() < end:
        row = NewTopic(name, num_partitions=1, replication_factor=3, config=configs)
        asked = admin.create_topics([row], operation_timeout=_TRY_S, request_timeout=_TRY_S)
        try:
            asked[name].result(2 * _TRY_S)
        except KafkaException as error:
            if error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS:
                return
        except TimeoutError:
            pass
        else:
            return
        time.sleep(_PAUSE_S)
    raise PeerError(f"no topic could be made in {_FIRST_ACK_S_MAX:.0f} s")


def _write_soon(stage: Stage, name: str) -> None:
    told = list[KafkaError | None]()
    settings: dict[str, Any] = {
        "bootstrap.servers": stage.peer.bootstrap,
        "acks": "all",
        "linger.ms": 0,
        "log_level": 0,
        "message.timeout.ms": int(_FIRST_ACK_S_MAX * 1000),
        **SHORT_PATIENCE,
    }
    producer = Producer(settings)
    producer.produce(name, b"first", partition=0, on_delivery=lambda error, _: told.append(error))
    producer.flush(_FIRST_ACK_S_MAX)
    if not told or told[0] is not None:
        raise PeerError(f"the first record was not acknowledged: {told}")


async def _first_ack_of_nats(peer: NatsPeer, name: str) -> None:
    import nats
    from nats.js.errors import BadRequestError

    async def expected(_: Exception) -> None:
        """A server that is not there yet is not worth a line each time."""

    end = time.perf_counter() + _FIRST_ACK_S_MAX
    while time.perf_counter() < end:
        try:
            connection = await nats.connect(
                peer.bootstrap.split(","),
                error_cb=expected,
                max_reconnect_attempts=1,
                # Its default is 2 s before a server is tried again.
                reconnect_time_wait=_PAUSE_S,
                connect_timeout=_NATS_TRY_S,
            )
        except (nats.errors.Error, OSError, TimeoutError):
            await asyncio.sleep(_PAUSE_S)
            continue
        try:
            jetstream = connection.jetstream(timeout=_NATS_TRY_S)
            try:
                await jetstream.add_stream(name=name, subjects=[name], num_replicas=len(NODES))
            except BadRequestError as error:
                # Its name is taken: by an earlier try whose answer did not come in time.
                if "in use" not in str(error):
                    raise
            await jetstream.publish(name, b"first", timeout=_NATS_TRY_S)
        except (nats.errors.Error, OSError, TimeoutError):
            await asyncio.sleep(_PAUSE_S)
        else:
            return
        finally:
            await connection.close()
    raise PeerError(f"nothing was acknowledged in {_FIRST_ACK_S_MAX:.0f} s")


# -- turns -----------------------------------------------------------------------------------------


def start(stage: Stage, _: Workload) -> Figures:
    began = time.perf_counter()
    stage.begin()
    first_ack(stage, "first", is_new=True)
    first_ack_s = time.perf_counter() - began
    start_cpu_s = stage.peer.cpu_s()
    stage.peer.wait_ready()
    # Nothing is awaited here: what is measured is what it costs to do nothing.
    with stage.lap("idle"):
        time.sleep(_CALM_S)
    with stage.watch() as watch:
        time.sleep(_IDLE_S)
    memory = stage.peer.rss_mb()
    return {
        "first_ack_s": round(first_ack_s, 3),
        "start_cpu_s": round(start_cpu_s, 2),
        "rss_idle_mb": round(max(memory.values()), 1),
        "rss_idle_mb_by_node": {str(node): round(mb, 1) for node, mb in memory.items()},
        "idle_cores": round(watch.cpu_s / watch.seconds, 4),
    }


def _begun(stage: Stage) -> None:
    """Have a cluster that is ready, unless an earlier turn of its life left one."""
    if not stage.is_begun:
        with stage.lap("start"):
            stage.begin()
            stage.peer.wait_ready()


def outage(stage: Stage, row: Workload) -> Figures:
    _begun(stage)
    name = "written"
    if isinstance(stage.peer, NatsPeer):
        stage.make(name, 1)
        victim = stage.peer.leader_of(name)
    else:
        controller = topics.quorum_leader(stage.peer.bootstrap)
        victim = controller if row.is_controller else controller % len(NODES) + 1
        stage.make(name, 1, first=victim)
        _require_led(stage, name, victim, controller)
    options = {"to": stage.peer.bootstrap, "topic": name, "size": row.size, "acks": "all"}
    with Drivers(row.seconds_max) as drivers:
        writer = drivers.add(stage.driver, "outage", options)
        writer.wait_ready()
        writer.say("go")
        # Long enough that it is seen to flow; how long does not matter.
        time.sleep(_FLOWING_S)
        killed_at = time.perf_counter()
        stage.peer.kill(victim)
        writer.say(f"killed {killed_at!r}")
        told = writer.result()
    after = [acked - killed_at for sent, acked in told["pairs"] if sent > killed_at]
    if not after:
        raise PeerError(f"nothing was written again; {told['first_failure']}")
    acks = sorted(acked for _, acked in told["pairs"])
    return {
        "gap_s": round(longest_gap(acks, killed_at), 4),
        "first_ack_after_s": round(min(after), 4),
        "failed_records": told["failed"],
        "victim": victim,
    }


def _require_led(stage: Stage, name: str, leader: int, controller: int) -> None:
    """Raise `PeerError` unless those lead now that are killed, or spared, because they do."""
    bootstrap = stage.peer.bootstrap
    found = topics.leaders(topics.admin_to(bootstrap), [name])
    if found != [leader] or topics.quorum_leader(bootstrap) != controller:
        raise PeerError(f"node {leader} was to lead {name}, and {controller} the quorum: {found}")


def partitions(stage: Stage, row: Workload) -> Figures:
    _begun(stage)
    one = replace(row, partitions=1)
    with stage.lap("warm up"), stage.topic(1) as topic:
        warm = replace(one, records=_WARM_TURNS * row.records)
        written(stage, warm, topic)
    before = [produce(stage, one)["mb_per_s"] for _ in range(_REPEATS)]
    counts = _shares(row.partitions)
    with stage.lap("partitions"):
        create_s = sum(stage.make(f"many-{at}", count) for at, count in enumerate(counts))
    after = [produce(stage, one)["mb_per_s"] for _ in range(_REPEATS)]
    memory = max(stage.peer.rss_mb().values())
    return {
        # Written to one partition, which was removed before the first measurement.
        "warm_gb": round(warm.payload_bytes / 1e9, 2),
        "before_mb_per_s": median(before),
        "after_mb_per_s": median(after),
        "all_mb_per_s": {"before": before, "after": after},
        "after_share": round(median(after) / median(before), 3),
        "create_s": round(create_s, 2),
        "rss_mb": round(memory, 1),
        "failover_s": round(_failed_over(stage, len(counts)), 2),
    }


def _shares(count: int) -> list[int]:
    """Return how many partitions each topic gets."""
    whole, rest = divmod(count, _TOPIC_PARTITIONS)
    return [_TOPIC_PARTITIONS] * whole + ([rest] if rest else [])


def _failed_over(stage: Stage, topic_count: int) -> float:
    """Kill a node; return how long until each of its partitions has another leader."""
    victim = topics.quorum_leader(stage.peer.bootstrap) % len(NODES) + 1
    addresses = stage.peer.bootstrap.split(",")
    survivor = topics.admin_to(addresses[victim % len(NODES)])
    names = [f"many-{at}" for at in range(topic_count)]

    def moved() -> bool:
        found = topics.leaders(survivor, names)
        return bool(found) and all(leader > 0 and leader != victim for leader in found)

    start_at = time.perf_counter()
    stage.peer.kill(victim)
    wait_until(moved, _FIRST_ACK_S_MAX, "every partition has another leader")
    return time.perf_counter() - start_at


def restart(stage: Stage, row: Workload) -> Figures:
    """Stop and start, kill and start; the first turn of this life writes the data.

    Before it is killed, the cluster was stopped politely in every turn: what is left to look
    through is the same, whether it was written just now or was there two turns ago.
    """
    filled = dict[str, float]()
    if not stage.is_begun:
        _begun(stage)
        stage.make("kept", row.partitions)
        told, _ = written(stage, row, "kept")
        seconds = told[0]["ended"] - told[0]["began"]
        filled["fill_mb_per_s"] = speed(told[0]["count"], row.size, seconds)["mb_per_s"]
    stop_s = -time.perf_counter()
    stage.peer.stop()
    stop_s += time.perf_counter()
    stopped_s = _started_again(stage)
    stage.peer.wait_ready()
    for node in NODES:
        stage.peer.kill(node)
    killed_s = _started_again(stage)
    stage.peer.wait_ready()
    topics.wait_in_sync(stage.peer.bootstrap, "kept", row.partitions)
    return {
        "stop_s": round(stop_s, 2),
        "stopped_s": round(stopped_s, 3),
        "killed_s": round(killed_s, 3),
        **filled,
    }


def _started_again(stage: Stage) -> float:
    began = time.perf_counter()
    stage.peer.spawn()
    first_ack(stage, "kept", is_new=False)
    return time.perf_counter() - began


LIVES: Final[Mapping[str, Callable[[Stage, Workload], Figures]]] = {
    "start": start,
    "outage": outage,
    "partitions": partitions,
    "restart": restart,
}
