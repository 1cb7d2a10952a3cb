"""What kafka-python 3.0.12 misses now and then, on any cluster, and why: a join that it forgets.

It watches topics itself, and joins anew when there are more partitions than it shared out. Then:

  1. JoinGroup is answered. It notes that what is known now is shared out, and sends SyncGroup.
  2. Its `poll` comes to its end, and leaves the rest to the next one.
  3. SyncGroup is answered.
  4. The next `poll` asks whether there is something to join for. There is not: by step 1 all is
     shared out. So nobody looks at the answer of step 3.

It goes on reading what it had, and sends no heartbeats, for these wait for the end of the join. The
chance of that is the time to step 3 over the time that a `poll` takes: a few in a hundred with
polls of 100 ms. Here a gate holds the answer for longer than a `poll`, so it happens each time.

Not here: how often it happens without a gate (`misses.py`).
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from ottla.chaos.backends.reserved import reserve_ports
from ottla.clients.admin.answers import GroupInfo
from ottla.clients.admin.blocking import Admin
from ottla.clients.loop_thread import LoopThread
from ottla.proto.kafka.apis import SYNC_GROUP
from tests.integration.gate import Gate
from tests.integration.groups.conftest import OPTIONS
from tests.integration.groups.crew import CLIENTS, Cooperative, KafkaPython, Member, Readings, until
from tests.integration.nodes import running_node
from tests.interop.broker import start_broker
from tests.interop.kafka import class_path, missing_tools

pytestmark = pytest.mark.integration

# Much longer than a poll of the crew, much shorter than a session.
LATE_S = 0.5
OTHERS = [name for name, kind in CLIENTS.items() if kind not in (KafkaPython, Cooperative)]


@pytest.fixture(
    scope="module", params=["ottla", pytest.param("apache-kafka", marks=pytest.mark.interop)]
)
def gated(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, Gate]]:
    """Yield where one broker is reached, behind a gate for the answers to SyncGroup."""
    port, inner, third = reserve_ports(3)
    thread, gate = LoopThread("gate"), Gate(inner, SYNC_GROUP)
    thread.run(gate.listen(port))
    broker = _apache if request.param == "apache-kafka" else _ottla
    yield from broker(tmp_path_factory.mktemp("gated"), port, inner, third, gate)
    thread.run(gate.close())
    thread.stop()


def _ottla(
    folder: Path, port: int, inner: int, third: int, gate: Gate
) -> Iterator[tuple[str, Gate]]:
    listeners = f"CLIENT://127.0.0.1:{inner},INTERNAL://127.0.0.1:{third},HTTP://127.0.0.1:0"
    advertised = f"CLIENT://127.0.0.1:{port}"
    options = {**OPTIONS, "listeners": listeners, "advertised.listeners": advertised}
    with running_node(folder, options=options):
        yield f"127.0.0.1:{port}", gate


def _apache(
    folder: Path, port: int, inner: int, third: int, gate: Gate
) -> Iterator[tuple[str, Gate]]:
    missing = missing_tools()
    if missing is not None:
        pytest.skip(missing)
    class_path()
    listeners = f"PLAINTEXT://127.0.0.1:{inner},CONTROLLER://127.0.0.1:{third}"
    settings = {
        "listeners": listeners,
        "advertised.listeners": listeners.replace(str(inner), str(port)),
        "controller.quorum.voters": f"1@127.0.0.1:{third}",
    }
    with start_broker(folder, settings, port=inner):
        yield f"127.0.0.1:{port}", gate


@pytest.fixture
def grown(gated: tuple[str, Gate]) -> Iterator[Grown]:
    bootstrap, gate = gated
    yield Grown(bootstrap, gate)
    gate.late_s = 0.0


class Grown:
    """A topic of one partition that gets two more, when answers to SyncGroup are late."""

    def __init__(self, bootstrap: str, gate: Gate) -> None:
        self.bootstrap = bootstrap
        self.gate = gate
        self.topic = f"t-{uuid.uuid4().hex[:8]}"
        self._admin = AdminClient({"bootstrap.servers": bootstrap})
        for made in self._admin.create_topics([NewTopic(self.topic, 1, 1)]).values():
            made.result(30)

    def member(self, kind: type[Member]) -> Member:
        return kind(self.bootstrap, self.topic, self.topic, Readings())

    def grow(self) -> None:
        self.gate.late_s, self.gate.held = LATE_S, 0
        for made in self._admin.create_partitions([NewPartitions(self.topic, 3)]).values():
            made.result(30)

    def write(self) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap})
        producer.produce(self.topic, b"x", partition=0)
        assert producer.flush(30) == 0


def test_kafka_python_forgets_a_join_whose_answer_comes_between_two_polls(grown: Grown) -> None:
    member = grown.member(KafkaPython)
    member.start()
    until(lambda: len(member.owned) == 1, "it reads the first partition")
    grown.grow()
    with Admin({"bootstrap.servers": grown.bootstrap}) as admin:

        def counted() -> int:
            told = admin.describe_groups([grown.topic])[grown.topic]
            assert isinstance(told, GroupInfo), told
            return len(told.members)

        until(lambda: grown.gate.held == 1, "it is told that it has all three")
        assert counted() == 1
        until(lambda: counted() == 0, "its silence is noticed")
    assert len(member.owned) == 1, "it knows nothing of that"
    assert grown.gate.held == 1, "nor has it joined again"
    member.stop()


def test_kafka_python_that_polls_for_longer_does_not_forget_it(grown: Grown) -> None:
    member = grown.member(KafkaPython)
    member.poll_s = 60.0
    member.start()

    def reads(count: int) -> bool:
        # A record ends its poll.
        grown.write()
        return len(member.owned) == count

    until(lambda: reads(1), "it reads the first partition")
    grown.grow()
    until(lambda: grown.gate.held == 1, "it is told that it has all three")
    until(lambda: reads(3), "it reads them")
    assert grown.gate.held == 1
    member.poll_s = 0.1
    grown.write()
    member.stop()


@pytest.mark.parametrize("name", OTHERS)
def test_other_clients_take_a_late_answer(grown: Grown, name: str) -> None:
    member = grown.member(CLIENTS[name])
    member.start()
    until(lambda: len(member.owned) == 1, "it reads the first partition")
    grown.grow()
    until(lambda: len(member.owned) == 3, "it reads all three")
    assert grown.gate.held == 1
    member.stop()
