"""A commit whose answer is lost is asked for again, and told as unknown only when the time is up.

On Apache Kafka, behind a gate that lets EndTxn through, and drops what comes back.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ottla.chaos.backends.reserved import reserve_ports
from ottla.clients.admin.blocking import Admin
from ottla.clients.errors import TransactionStateError, TransactionUnknownError
from ottla.clients.loop_thread import LoopThread
from ottla.clients.producer.client import Producer
from ottla.proto.kafka.apis import END_TXN
from tests.integration.clients_own.transacting import Cluster, make_topic, new_name, require_read
from tests.integration.gate import Gate
from tests.interop.broker import start_broker
from tests.interop.kafka import class_path, missing_tools

pytestmark = [pytest.mark.integration, pytest.mark.interop, pytest.mark.transactions]


@pytest.fixture(scope="module", params=[2, 0], ids=["second dialect", "first dialect"])
def gated(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Cluster, Gate]]:
    missing = missing_tools()
    if missing is not None:
        pytest.skip(missing)
    class_path()
    port, inner, controller = reserve_ports(3)
    listeners = f"PLAINTEXT://127.0.0.1:{inner},CONTROLLER://127.0.0.1:{controller}"
    settings = {
        "listeners": listeners,
        "advertised.listeners": listeners.replace(str(inner), str(port)),
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
    }
    thread = LoopThread("gate")
    gate = Gate(inner, END_TXN)
    thread.run(gate.listen(port))
    folder = tmp_path_factory.mktemp("gated")
    with start_broker(folder, settings, {"transaction.version": request.param}, port=inner):
        yield Cluster("apache-kafka", f"127.0.0.1:{port}"), gate
    thread.run(gate.close())
    thread.stop()


def test_a_commit_is_asked_for_until_it_is_answered(gated: tuple[Cluster, Gate]) -> None:
    cluster, gate = gated
    with Admin({"bootstrap.servers": cluster.bootstrap}) as admin:
        topic = make_topic(admin, 1)
    with Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": new_name()}) as own:
        for number in range(3):
            gate.to_drop, before = 2, gate.dropped
            with own.transaction():
                own.send(topic, b"%d" % number)
            assert gate.dropped - before == 2
    require_read(cluster, topic, [b"0", b"1", b"2"])


def test_a_commit_without_an_answer_is_unknown_and_can_be_asked_for_again(
    gated: tuple[Cluster, Gate],
) -> None:
    cluster, gate = gated
    with Admin({"bootstrap.servers": cluster.bootstrap}) as admin:
        topic = make_topic(admin, 1)
    with Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": new_name()}) as own:
        own.init_transactions()
        own.begin()
        own.send(topic, b"one").result()
        gate.to_drop = 1 << 30
        with pytest.raises(TransactionUnknownError, match="may or may not have happened"):
            own.commit(1.5)
        with pytest.raises(TransactionStateError, match="call commit again"):
            own.abort()
        gate.to_drop = 0
        own.commit()
        with own.transaction():
            own.send(topic, b"two")
    require_read(cluster, topic, [b"one", b"two"])
