"""Every alert rule is fired by causing what it watches for, in real nodes, and clears again.

The rules are those of compose/prometheus/rules.yml with every duration divided by thirty. One test
has all of it, because one node that dies fires many of them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import Producer, TopicPartition

from ottla.clients.consumer.sync_consumer import Consumer
from tests.integration.clusters import ClusterNode, RunningCluster, living, make_cluster
from tests.integration.nodes import wait_until
from tests.observed.faults import (
    crowd,
    deaf,
    fill,
    limit_descriptors,
    set_descriptors,
    small_room,
)
from tests.observed.load import (
    DEADLINE_S,
    admin_of,
    blunder,
    commit,
    create,
    ends_of,
    load_on,
    open_transaction,
    set_option,
)
from tests.observed.prometheus import Prometheus, running_prometheus
from tests.observed.rules import RULES, shortened

pytestmark = [pytest.mark.integration, pytest.mark.long]

ALERT_S: Final = 180.0
READY_S: Final = 90.0
ROTATIONS: Final = ((1, 2, 3), (2, 3, 1), (3, 1, 2))
# A broker that hangs is out of sync before it is taken for dead.
OPTIONS: Final = {"replica.lag.time.max.ms": "3000", "broker.session.timeout.ms": "15000"}
# Above what OttlaVoterBehind allows.
ENTRIES: Final = 120
ROOM_MB: Final = 128
FILL_BYTES: Final = 2_000_000
SLOW: Final = {"OTTLA_FAILPOINTS": "log.sync.before=sleep(900)"}
# Longer than what OttlaEventLoopLate allows.
HANG_S: Final = 0.6
DISK_FAILS: Final = {"OTTLA_FAULTS": "eio=sync:*orders-0*.log:5"}
CONNECTIONS_MAX: Final = 5


class Watch:
    """Knows which alerts fire, and which have fired."""

    def __init__(self, prometheus: Prometheus) -> None:
        self.prometheus: Final = prometheus
        self.fired: Final[set[str]] = set()
        self._began_s: Final = time.monotonic()

    def look(self) -> set[str]:
        states = self.prometheus.alerts()
        firing = {name for name, state in states.items() if state == "firing"}
        for name in firing - self.fired:
            print(f"{time.monotonic() - self._began_s:6.1f} s  {name} fires")
        self.fired.update(firing)
        return firing

    def fires(self, *names: str, again: Callable[[], object] = lambda: None) -> None:
        """Wait until each of them has fired from now on; `again` is done meanwhile."""
        seen = set[str]()

        def holds() -> bool:
            again()
            seen.update(self.look())
            return seen.issuperset(names)

        self._wait(holds, lambda: f"these fire: {sorted(set(names) - seen)}")

    def clears(self, *names: str) -> None:
        """Wait until none of them fires; all of them if none is named."""
        self._wait(
            lambda: not self.look() & set(names or self.fired),
            lambda: f"these clear: {sorted(self.look() & set(names or self.fired))}",
        )
        print(f"{time.monotonic() - self._began_s:6.1f} s  clear: {', '.join(names) or 'all'}")

    def _wait(self, holds: Callable[[], bool], what: Callable[[], str]) -> None:
        try:
            wait_until(holds, ALERT_S, "alerts")
        except TimeoutError:
            raise TimeoutError(f"waited {ALERT_S:.0f} s until {what()}") from None


# ── One node by itself ────────────────────────────────────────────────────────────────────────


def hurt_one_node(watch: Watch, cluster: RunningCluster, stranger: ClusterNode) -> None:
    """A node of another cluster is scraped as one of ours, and is short of everything."""
    watch.prometheus.scrape(stranger.http, *(node.http for node in cluster.nodes.values()))
    filler = stranger.data_dir / "filler"

    def trouble() -> None:
        blunder(stranger.bootstrap)
        with crowd(stranger.bootstrap, 2 * CONNECTIONS_MAX):
            # A disk that fills by and by is foreseen; one that fills at once is not.
            fill(filler, FILL_BYTES, free_share=0.05)

    before = limit_descriptors(stranger, 0.9)
    watch.fires("OttlaFileDescriptorsShort")
    set_descriptors(stranger, before)
    names = (
        *("OttlaManyActiveControllers", "OttlaConnectionsRefused", "OttlaProtocolErrors"),
        *("OttlaLogLinesLost", "OttlaDiskNearlyFull", "OttlaDiskFillsSoon"),
    )
    watch.fires(*names, again=trouble)
    filler.unlink()
    watch.clears(*(name for name in names if name != "OttlaManyActiveControllers"))
    watch.prometheus.scrape(*(node.http for node in cluster.nodes.values()))
    watch.clears("OttlaManyActiveControllers", "OttlaFileDescriptorsShort")


# ── Nodes that die ────────────────────────────────────────────────────────────────────────────


def lose_nodes(watch: Watch, cluster: RunningCluster) -> None:
    """One dies, then another; the first comes back, and lacks what the second has."""
    decided = open_transaction(cluster.bootstrap, "decided-and-not-marked", "single")
    cluster[3].kill()
    cluster.active_controller(not_=3)
    # Its only partition is away.
    decided.commit_transaction(DEADLINE_S)
    admin = admin_of(bootstrap_of_running(cluster))
    for number in range(ENTRIES):
        set_option(admin, "orders", "retention.ms", str(600_000_000 + number))
    of_one = (
        *("OttlaNodeDown", "OttlaUnderReplicated", "OttlaUnderMinIsr", "OttlaOfflinePartitions"),
        *("OttlaProduceFails", "OttlaStreamDown", "OttlaVoterBehind", "OttlaMarkersWait"),
    )
    watch.fires(*of_one)
    write_alone(cluster, "unclean")
    cluster[2].kill()
    of_two = ("OttlaNoActiveController", "OttlaQuorumWithoutLeader", "OttlaNodeNotReady")
    watch.fires(*of_two)
    cluster[3].start()
    cluster[3].wait_until_ready(READY_S)
    cluster.active_controller()
    admin = admin_of(bootstrap_of_running(cluster))
    set_option(admin, "unclean", "unclean.leader.election.enable", "true")
    watch.fires("OttlaUncleanElection")
    cluster[2].start()
    cluster[2].wait_until_ready(READY_S)
    watch.clears(*of_one, *of_two, "OttlaUncleanElection")


def bootstrap_of_running(cluster: RunningCluster) -> str:
    return ",".join(node.bootstrap for node in cluster.running)


def write_alone(cluster: RunningCluster, topic: str) -> None:
    """Write what only the replica has that is left."""
    bootstrap = bootstrap_of_running(cluster)
    producer = Producer({"bootstrap.servers": bootstrap, "acks": 1, "log_level": 0})
    producer.produce(topic, b"x")
    assert producer.flush(DEADLINE_S) == 0


def start_again_and_again(watch: Watch, node: ClusterNode) -> None:
    def again() -> None:
        node.kill()
        node.start()
        node.wait_until_ready(READY_S)

    watch.fires("OttlaNodeRestarts", "OttlaStreamsBreak", again=again)


# ── Nodes that are slow, or hang ──────────────────────────────────────────────────────────────


def slow_down(watch: Watch, node: ClusterNode) -> None:
    """Its disk is slow, and so is every write that it has a copy of; then its processor is."""
    live_with(node, SLOW)
    watch.fires("OttlaFsyncSlow", "OttlaProduceSlow")
    live_with(node, {})

    def hang() -> None:
        node.pause()
        node.live_for(HANG_S)
        node.resume()

    watch.fires("OttlaEventLoopLate", again=hang)
    watch.clears("OttlaFsyncSlow", "OttlaEventLoopLate", "OttlaProduceSlow")


def break_disk(watch: Watch, node: ClusterNode) -> None:
    begin_life(node, DISK_FAILS)
    names = ("OttlaDataDirectoryOffline", "OttlaOfflineReplicas", "OttlaBrokerFenced")
    watch.fires(*names)
    live_with(node, {})
    watch.clears(*names)


def live_with(node: ClusterNode, environment: dict[str, str]) -> None:
    begin_life(node, environment)
    node.wait_until_ready(READY_S)


def begin_life(node: ClusterNode, environment: dict[str, str]) -> None:
    """Begin another life of a node in these surroundings; it may never be ready."""
    node.kill()
    node.environment.clear()
    node.environment.update(environment)
    node.start()


def pause_followers(watch: Watch, cluster: RunningCluster) -> None:
    """A broker hangs until it is out of sync, and goes on, and hangs again."""
    under = "sum(kafka_server_replicamanager_underreplicatedpartitions)"

    def again() -> None:
        active = cluster.active_controller().node_id
        node = next(one for one in cluster.running if one.node_id != active)
        # Those of the others: what hangs is not scraped.
        shrinks = f'sum(kafka_server_replicamanager_isrshrinks_total{{instance!="{node.http}"}})'
        seen = watch.prometheus.value(shrinks) or 0.0
        node.pause()
        wait_until(
            lambda: (watch.prometheus.value(shrinks) or 0.0) > seen, ALERT_S, "it is out of sync"
        )
        node.resume()
        wait_until(lambda: watch.prometheus.value(under) == 0, ALERT_S, "it is in sync again")

    watch.fires("OttlaIsrUnsteady", again=again)


def pause_controllers(watch: Watch, cluster: RunningCluster) -> None:
    """Whoever is the active controller hangs until another one is."""

    def again() -> None:
        active = cluster.active_controller()
        active.pause()
        wait_until(lambda: another_leads(cluster, active), ALERT_S, "another one leads")
        active.resume()

    watch.fires("OttlaQuorumElectsOften", again=again)


def another_leads(cluster: RunningCluster, than: ClusterNode) -> bool:
    return any(node.leader() == node.node_id for node in cluster.others(than.node_id))


# ── Groups ────────────────────────────────────────────────────────────────────────────────────


def leave_behind(watch: Watch, cluster: RunningCluster) -> None:
    """A group has read nothing of a topic that is written; then it has read all of it, and goes.

    If it stayed, it would fall behind again.
    """
    count = len(ROTATIONS)
    nothing = {TopicPartition("orders", index): 0 for index in range(count)}
    commit(cluster.bootstrap, "left-behind", nothing)
    watch.fires("OttlaGroupLags")
    commit(cluster.bootstrap, "left-behind", ends_of(cluster.bootstrap, "orders", count))
    watch.clears("OttlaGroupLags")
    admin = admin_of(cluster.bootstrap)
    admin.delete_consumer_groups(["left-behind"])["left-behind"].result(DEADLINE_S)


def never_settle(watch: Watch, cluster: RunningCluster) -> None:
    """A member wants other topics again and again, and each time its group shares out anew."""
    options = {"bootstrap.servers": cluster.bootstrap, "group.id": "unsettled"}
    with Consumer({**options, "enable.auto.commit": False}) as consumer:

        def want(topics: set[str]) -> None:
            def has() -> bool:
                consumer.poll(0.02)
                return {one.topic for one in consumer.assignment()} == topics

            consumer.subscribe(sorted(topics))
            wait_until(has, DEADLINE_S, f"it is given {topics}")

        def again() -> None:
            for _ in range(10):
                want({"orders"})
                want({"orders", "strict"})

        watch.fires("OttlaGroupsRebalanceOften", again=again)
    watch.clears("OttlaGroupsRebalanceOften")


# ── Transactions ──────────────────────────────────────────────────────────────────────────────


def hold_open(watch: Watch, cluster: RunningCluster) -> None:
    """A producer begins a transaction, and does not end it for long."""
    producer = open_transaction(cluster.bootstrap, "held-open", "orders")
    watch.fires("OttlaTransactionOpenForLong")
    producer.commit_transaction(DEADLINE_S)
    watch.clears("OttlaTransactionOpenForLong")


# ── All of it ─────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def stranger(tmp_path: Path) -> Iterator[ClusterNode]:
    """Yield a node that is its own cluster, on a small disk, and whose log nobody takes."""
    with ExitStack() as stack:
        stack.enter_context(small_room(tmp_path / "stranger" / "node-1" / "data", ROOM_MB))
        options = {"max.connections.per.ip": str(CONNECTIONS_MAX)}
        made = deaf(make_cluster(tmp_path / "stranger", nodes=1, options=options))
        cluster = stack.enter_context(living(made))
        cluster.start()
        cluster.wait_until_ready(deadline_s=READY_S)
        yield cluster[1]


def test_every_alert_fires_when_its_condition_is_caused_and_clears_again(
    tmp_path: Path, stranger: ClusterNode
) -> None:
    rules = shortened(RULES.read_text(encoding="utf-8"))
    cluster = make_cluster(tmp_path / "nodes", options=OPTIONS)
    with running_prometheus(tmp_path / "prometheus", rules) as prometheus, living(cluster):
        watch = Watch(prometheus)
        cluster.start()
        cluster.wait_until_ready(deadline_s=READY_S)
        watch.fires("OttlaNobodyScraped")
        prometheus.scrape(*(node.http for node in cluster.nodes.values()))
        watch.clears("OttlaNobodyScraped")
        admin = admin_of(cluster.bootstrap)
        create(admin, "orders", ROTATIONS, min_insync_replicas="2")
        create(admin, "strict", ROTATIONS[:1], min_insync_replicas="3")
        create(admin, "single", [[3]])
        create(admin, "unclean", [[2, 3]], min_insync_replicas="1")
        with load_on(cluster.bootstrap, "orders", len(ROTATIONS), also_write=["strict"]):
            hurt_one_node(watch, cluster, stranger)
            never_settle(watch, cluster)
            leave_behind(watch, cluster)
            hold_open(watch, cluster)
            lose_nodes(watch, cluster)
            slow_down(watch, cluster[3])
            break_disk(watch, cluster[3])
            start_again_and_again(watch, cluster[3])
            pause_followers(watch, cluster)
            pause_controllers(watch, cluster)
            watch.clears()
        assert watch.fired == set(prometheus.alerts())
