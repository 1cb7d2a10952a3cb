"""hostile-input.md, "Config/env": every row with its exact sentence, or its exact outcome.

Each is tried as a node would meet it (`load`), and as a person would (`ottla config check`).
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from ottla.__main__ import main
from ottla.proto.errors import ConfigError
from ottla.proto.options import topic
from ottla.proto.options.load import load, load_topic

# Any free port, so that these tests do not care what else runs on the machine.
FREE_PORTS = "CLIENT://127.0.0.1:0,INTERNAL://127.0.0.1:0,HTTP://127.0.0.1:0"
VOTERS = "controller.quorum.voters"

BAD: dict[str, tuple[dict[str, str], str]] = {
    "non-numeric": (
        {"num.partitions": "many"},
        'num.partitions must be a whole number; it is "many" (command line).',
    ),
    "non-numeric, a fraction": (
        {"num.partitions": "1.5"},
        'num.partitions must be a whole number; it is "1.5" (command line).',
    ),
    "empty": (
        {"num.partitions": ""},
        'num.partitions must be a whole number; it is "" (command line).',
    ),
    "negative": (
        {"num.partitions": "-1"},
        'num.partitions must be at least 1; it is "-1" (command line).',
    ),
    "negative, in another unit": (
        {"log.retention.hours": "-2"},
        'log.retention.hours must be at least -1; it is "-2" (command line).',
    ),
    "too large for its type": (
        {"node.id": "2147483648"},
        'node.id must be a whole number of at most 2147483647; it is "2147483648" (command line).',
    ),
    "lag below fetch wait": (
        {"replica.lag.time.max.ms": "400"},
        "replica.lag.time.max.ms (400) must be more than 3 times replica.fetch.wait.max.ms (500), "
        "or idle followers leave the in-sync set.",
    ),
    "lag of exactly three fetch waits": (
        {"replica.lag.time.max.ms": "1500"},
        "replica.lag.time.max.ms (1500) must be more than 3 times replica.fetch.wait.max.ms (500), "
        "or idle followers leave the in-sync set.",
    ),
    "heartbeat above session": (
        {"broker.heartbeat.interval.ms": "3000"},
        "broker.session.timeout.ms (2000) must be at least 2 times broker.heartbeat.interval.ms "
        "(3000), or one late heartbeat fences a broker.",
    ),
    "duplicate voter ids": (
        {VOTERS: "1@a:9093,1@b:9093", "node.id": "1"},
        "controller.quorum.voters must be a list that names each id once, and 1 is there twice; "
        'it is "1@a:9093,1@b:9093" (command line).',
    ),
    "duplicate voter addresses": (
        {VOTERS: "1@a:9093,2@a:9093", "node.id": "1"},
        "controller.quorum.voters must be a list that names each address once, and a:9093 is there "
        'twice; it is "1@a:9093,2@a:9093" (command line).',
    ),
    "unknown key": (
        {"replica.lag.max.ms": "400"},
        'unknown option "replica.lag.max.ms" (command line): did you mean replica.lag.time.max.ms?',
    ),
    "unknown key like no other": (
        {"xyzzy": "1"},
        'unknown option "xyzzy" (command line): `ottla config describe` lists those there are.',
    ),
    "a topic's key at the node": (
        {"segment.ms": "1"},
        'unknown option "segment.ms" (command line): did you mean log.roll.ms?',
    ),
    "voter without an id": (
        {VOTERS: "a:9093"},
        'controller.quorum.voters must be a list of id@host:port, and "a:9093" is none; '
        'it is "a:9093" (command line).',
    ),
    "voter with a name as id": (
        {VOTERS: "one@a:9093"},
        "controller.quorum.voters must be a list of id@host:port with whole numbers as ids, "
        'not "one"; it is "one@a:9093" (command line).',
    ),
    "voter without a port": (
        {VOTERS: "1@a"},
        'controller.quorum.voters must be host:port everywhere, and "a" has no port; '
        'it is "1@a" (command line).',
    ),
    "voter with port 0": (
        {VOTERS: "1@a:0"},
        "controller.quorum.voters must be host:port with a port from 1 to 65535, "
        'not "a:0"; it is "1@a:0" (command line).',
    ),
    "voter without a host": (
        {VOTERS: "1@:9093"},
        "controller.quorum.voters must be host:port with a name or an address as host, "
        'not ":9093"; it is "1@:9093" (command line).',
    ),
    "voter with a blank in its host": (
        {VOTERS: "1@a b:9093"},
        "controller.quorum.voters must be host:port with a name or an address as host, "
        'not "a b:9093"; it is "1@a b:9093" (command line).',
    ),
    "voter with an empty part in its host": (
        {VOTERS: "1@a..b:9093"},
        "controller.quorum.voters must be host:port with a name or an address as host, "
        'not "a..b:9093"; it is "1@a..b:9093" (command line).',
    ),
    "voter with a bad IPv6 address": (
        {VOTERS: "1@[::g]:9093"},
        "controller.quorum.voters must be host:port with an IPv6 address in [ ], "
        'not "[::g]:9093"; it is "1@[::g]:9093" (command line).',
    ),
    "an empty voter": (
        {VOTERS: "1@a:9093,,2@b:9093"},
        'controller.quorum.voters must be a list of id@host:port, and "" is none; '
        'it is "1@a:9093,,2@b:9093" (command line).',
    ),
    "listener without a name": (
        {"listeners": "127.0.0.1:9092"},
        'listeners must be a list of NAME://host:port, and "127.0.0.1:9092" is none; '
        'it is "127.0.0.1:9092" (command line).',
    ),
    "listener that promises protection": (
        {"listeners": "SSL://a:9092"},
        "listeners must be a list of NAME://host:port, and SSL promises what no listener gives "
        "yet: clients are spoken to in plain text. Call it CLIENT if that is meant; "
        'it is "SSL://a:9092" (command line).',
    ),
    "listener whose name is a slip": (
        {"listeners": "INTERNL://a:9092"},
        'listeners must be a list of NAME://host:port, and "INTERNL" is too like INTERNAL: write '
        'INTERNAL, or choose another name; it is "INTERNL://a:9092" (command line).',
    ),
    "listener whose name is a slip for where followers come": (
        {"listeners": "REPLICATIONS://a:9094"},
        'listeners must be a list of NAME://host:port, and "REPLICATIONS" is too like REPLICATION: '
        "write REPLICATION, or choose another name; "
        'it is "REPLICATIONS://a:9094" (command line).',
    ),
    "listener whose name is none": (
        {"listeners": "IN SIDE://a:9092"},
        "listeners must be a list of NAME://host:port with names of letters, digits and _, not "
        '"IN SIDE"; it is "IN SIDE://a:9092" (command line).',
    ),
    "listener that Kafka's map protects": (
        {
            "listeners": "OUTSIDE://a:9092",
            "listener.security.protocol.map": "SSL:SSL,OUTSIDE:SASL_SSL",
        },
        "listener.security.protocol.map must say PLAINTEXT for OUTSIDE, not "
        '"SASL_SSL": clients are spoken to in plain text.',
    ),
    "advertised and not opened": (
        {"listeners": "INSIDE://a:9092", "advertised.listeners": "OUTSIDE://b:9092"},
        "advertised.listeners must name what listeners opens (INSIDE, INTERNAL, REPLICATION), not "
        "OUTSIDE: add OUTSIDE to listeners, or take it away.",
    ),
    "advertised for followers, who would meet another port": (
        {"advertised.listeners": "REPLICATION://node-1:9094"},
        "advertised.listeners must not name REPLICATION while it listens at any free port: write "
        "REPLICATION://127.0.0.1:9094 into listeners, or take it away.",
    ),
    "listener named twice, once by Kafka's name": (
        {"listeners": "CLIENT://a:1,PLAINTEXT://a:2"},
        "listeners must be a list that names each listener once, and CLIENT is there twice; "
        'it is "CLIENT://a:1,PLAINTEXT://a:2" (command line).',
    ),
    "listener with port 65536": (
        {"listeners": "CLIENT://a:65536"},
        'listeners must be host:port with a port from 0 to 65535, not "a:65536"; '
        'it is "CLIENT://a:65536" (command line).',
    ),
    "two listeners at one address": (
        {"listeners": "CLIENT://127.0.0.1:9100"},
        "listeners must not give CLIENT and HTTP the same address, 127.0.0.1:9100.",
    ),
    "two listeners for nodes at one address": (
        {"listeners": "REPLICATION://127.0.0.1:9093"},
        "listeners must not give REPLICATION and INTERNAL the same address, 127.0.0.1:9093.",
    ),
    "everywhere for nodes, without an advertised address": (
        {"listeners": "INTERNAL://:9093,REPLICATION://:9094"},
        "advertised.listeners must say which address others should use for INTERNAL, "
        "because listeners opens it on every address (:9093): for example "
        "advertised.listeners=INTERNAL://localhost:9093.",
    ),
    "everywhere, and advertised as that for followers": (
        {
            "listeners": "REPLICATION://:9094",
            "advertised.listeners": "REPLICATION://0.0.0.0:9094",
        },
        "advertised.listeners must say which address others should use for REPLICATION, "
        "because listeners opens it on every address (0.0.0.0:9094): for example "
        "advertised.listeners=REPLICATION://localhost:9094.",
    ),
    "everywhere, without an advertised address": (
        {"listeners": "CLIENT://0.0.0.0:9092"},
        "advertised.listeners must say which address others should use for CLIENT, "
        "because listeners opens it on every address (0.0.0.0:9092): for example "
        "advertised.listeners=CLIENT://localhost:9092.",
    ),
    "advertised HTTP": (
        {"advertised.listeners": "HTTP://a:1"},
        "advertised.listeners must not name HTTP, which is not advertised.",
    ),
    "two directories": (
        {"log.dirs": "a,b"},
        "log.dirs must be one directory (several are not supported yet); "
        'it is "a,b" (command line).',
    ),
    "no directory": (
        {"log.dirs": ""},
        'log.dirs must be one directory (several are not supported yet); it is "" (command line).',
    ),
    "a directory with a NUL in it": (
        {"log.dirs": "a\0b"},
        'log.dirs must be text without control characters; it is "a\\u0000b" (command line).',
    ),
    "no role": (
        {"process.roles": ""},
        "process.roles must be a list of broker and controller, each at most once; "
        'it is "" (command line).',
    ),
    "a controller that does not vote": (
        {"node.id": "4", VOTERS: "1@a:1,2@b:1,3@c:1"},
        "node.id (4) must be one of controller.quorum.voters (1, 2, 3), "
        "because process.roles makes this node a controller.",
    ),
    "a broker that votes": (
        {"node.id": "1", "process.roles": "broker", VOTERS: "1@a:1"},
        "node.id (1) must not be one of controller.quorum.voters (1), "
        "because process.roles makes this node a broker only.",
    ),
    "a broker without controllers": (
        {"process.roles": "broker"},
        "controller.quorum.voters must name the controllers, "
        "because process.roles makes this node a broker only.",
    ),
    "one of several without an id": (
        {VOTERS: "1@a:1,2@b:1,3@c:1"},
        "node.id must be given, because controller.quorum.voters names more than one node.",
    ),
    "batches that could never arrive": (
        {"message.max.bytes": "2000000", "socket.request.max.bytes": "1000000"},
        "message.max.bytes (2000000) must not be more than socket.request.max.bytes (1000000), "
        "or the largest batches could never arrive.",
    ),
    "compaction lags that cross": (
        {"log.cleaner.min.compaction.lag.ms": "20", "log.cleaner.max.compaction.lag.ms": "10"},
        "log.cleaner.min.compaction.lag.ms (20) must not be more than "
        "log.cleaner.max.compaction.lag.ms (10).",
    ),
    "group sessions that cross": (
        {"group.min.session.timeout.ms": "20", "group.max.session.timeout.ms": "10"},
        "group.min.session.timeout.ms (20) must not be more than group.max.session.timeout.ms "
        "(10).",
    ),
    "ZooKeeper": (
        {"zookeeper.connect": "zk:2181"},
        "zookeeper.connect is refused: there is no ZooKeeper here, controllers elect each other; "
        "list them in controller.quorum.voters and take this line out (command line).",
    ),
    "keys of a node without authorities": (
        {"listener.name.internal.ssl.keystore.location": "k"},
        "listener.name.internal.ssl.keystore.location and "
        "listener.name.internal.ssl.truststore.location must be given together.",
    ),
    "keys of a node with a pass phrase": (
        {"listener.name.internal.ssl.key.password": "p"},
        "listener.name.internal.ssl.key.password is refused: nodes need no more for TLS than "
        "listener.name.internal.ssl.keystore.location and .truststore.location, PEM files without "
        "a pass phrase (command line).",
    ),
    "keys for followers alone": (
        {"listener.name.replication.ssl.keystore.location": "k"},
        "listener.name.replication.ssl.keystore.location is refused: nodes need no more for TLS "
        "than listener.name.internal.ssl.keystore.location and .truststore.location, PEM files "
        "without a pass phrase (command line).",
    ),
    "protection that would not be given": (
        {"ssl.keystore.location": "k"},
        "ssl.keystore.location is refused: TLS and SASL for clients are not built yet, and without "
        "them the node would be open to all (command line).",
    ),
}
EVERY_BAD = pytest.mark.parametrize(("flags", "sentence"), BAD.values(), ids=BAD.keys())


@pytest.fixture(autouse=True)
def _no_options_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in [name for name in os.environ if name.startswith("OTTLA_")]:
        monkeypatch.delenv(variable)


def check(*arguments: str, **environment: str) -> Result:
    return CliRunner().invoke(main, ["config", "check", *arguments], env=environment)


def as_arguments(flags: dict[str, str]) -> list[str]:
    return [f"{name}={text}" for name, text in flags.items()]


@EVERY_BAD
def test_a_node_is_told_what_is_wrong(flags: dict[str, str], sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(flags=flags)
    assert caught.value.problems == (sentence,)


@EVERY_BAD
def test_a_person_is_told_in_one_line_and_by_exit_code_2(
    flags: dict[str, str], sentence: str
) -> None:
    result = check(*as_arguments(flags))
    assert (result.exit_code, result.stderr) == (2, f"ottla: {sentence}\n")


def test_more_in_sync_than_replicas_is_allowed_and_means_all_of_them() -> None:
    options = load(flags={"min.insync.replicas": "3", "default.replication.factor": "2"})
    assert options.warnings == (
        "min.insync.replicas (3) is more than default.replication.factor (2): "
        "a topic with that many replicas needs 2 in sync.",
    )
    assert topic.effective_min_insync(3, replication_factor=2) == 2


def test_more_in_sync_than_replicas_lets_the_node_start() -> None:
    result = check(
        "min.insync.replicas=3", "default.replication.factor=2", f"listeners={FREE_PORTS}"
    )
    assert result.exit_code == 0
    assert "warning: min.insync.replicas (3) is more than" in result.stderr


def test_one_replica_alone_is_no_reason_to_warn() -> None:
    assert load(flags={"default.replication.factor": "1"}).warnings == ()


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_a_port_in_use_is_told_with_its_listener_and_address(taken_port: int) -> None:
    listeners = f"CLIENT://127.0.0.1:{taken_port},INTERNAL://127.0.0.1:0,HTTP://127.0.0.1:0"
    result = check(f"listeners={listeners}")
    assert result.exit_code == 2
    assert result.stderr == (
        f"ottla: listeners: CLIENT cannot listen on 127.0.0.1:{taken_port}: the port is in use.\n"
    )


def test_an_address_of_another_machine_cannot_be_listened_on() -> None:
    # 192.0.2.0/24 is kept for examples and belongs to nobody.
    listeners = "CLIENT://192.0.2.1:0,INTERNAL://127.0.0.1:0,HTTP://127.0.0.1:0"
    result = check(f"listeners={listeners}")
    assert result.exit_code == 2
    assert "listeners: CLIENT cannot listen on 192.0.2.1:0: " in result.stderr


def test_all_problems_are_told_at_once() -> None:
    result = check("num.partitions=x", "xyzzy=1", "node.id=-1")
    assert result.exit_code == 2
    assert len(result.stderr.splitlines()) == 3


def test_a_wrong_variable_is_told_by_its_name() -> None:
    result = check(OTTLA_NUM_PARTITIONS="x")
    assert result.stderr == (
        "ottla: num.partitions must be a whole number; "
        'it is "x" (environment OTTLA_NUM_PARTITIONS).\n'
    )


def test_a_misspelt_variable_is_refused_with_the_right_one() -> None:
    result = check(OTTLA_REPLICA_LAG_MAX_MS="10000")
    assert result.stderr == (
        'ottla: unknown option "replica.lag.max.ms" (environment OTTLA_REPLICA_LAG_MAX_MS): '
        "did you mean OTTLA_REPLICA_LAG_TIME_MAX_MS?\n"
    )


def test_a_wrong_line_of_a_file_is_told_by_its_number(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_text("# a comment\nnum.partitions=x\n")
    result = check("--config", str(path))
    assert result.exit_code == 2
    assert result.stderr.endswith(f'it is "x" ({path}, line 2).\n')


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    path = tmp_path / "absent"
    result = check("--config", str(path))
    assert result.exit_code == 2
    assert result.stderr == (f'ottla: cannot read the file "{path}": No such file or directory.\n')


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["log.dirs"], 'arguments must be KEY=VALUE, and "log.dirs" is not.'),
        (["=1"], 'arguments must be KEY=VALUE, and "=1" is not.'),
        (
            ["node.id=1", "node.id=2"],
            "node.id is given twice on the command line: keep one of them.",
        ),
    ],
)
def test_wrong_arguments_are_told(arguments: list[str], sentence: str) -> None:
    result = check(*arguments)
    assert (result.exit_code, result.stderr) == (2, f"ottla: {sentence}\n")


def test_problems_come_as_json_too() -> None:
    result = check("num.partitions=0", "--json")
    assert result.exit_code == 2
    told = json.loads(result.stdout)
    assert told["ok"] is False
    assert told["problems"] == ['num.partitions must be at least 1; it is "0" (command line).']


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"retention.ms": "x"}, 'retention.ms must be a whole number; it is "x".'),
        ({"retention.msec": "1"}, 'unknown option "retention.msec": did you mean retention.ms?'),
        ({"log.roll.hours": "1"}, 'unknown option "log.roll.hours": did you mean segment.ms?'),
        ({"min.insync.replicas": "0"}, 'min.insync.replicas must be at least 1; it is "0".'),
        (
            {"min.compaction.lag.ms": "2", "max.compaction.lag.ms": "1"},
            "min.compaction.lag.ms (2) must not be more than max.compaction.lag.ms (1).",
        ),
    ],
)
def test_a_topics_maker_is_told_what_is_wrong(given: dict[str, str], sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_topic(given, load())
    assert caught.value.problems == (sentence,)
