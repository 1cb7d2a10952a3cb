"""kafka-python's admin command line, `python -m kafka.admin`, run as a person runs it."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from tests.integration.clients.cases import numbered
from tests.integration.clients.confluent import ConfluentAdmin, ConfluentKafka
from tests.integration.clients.port import (
    DEADLINE_S,
    ConfigView,
    NewTopic,
    Sending,
    produce,
)
from tests.integration.nodes import wait_until

pytestmark = pytest.mark.integration


class CommandLine:
    """The program, told which broker to ask."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    def run(self, *arguments: str, form: str = "json") -> tuple[int, str]:
        """Return the exit code and what was printed."""
        command = [sys.executable, "-m", "kafka.admin", "-b", self.bootstrap, "--format", form]
        done = subprocess.run(
            [*command, *arguments], capture_output=True, text=True, timeout=DEADLINE_S, check=False
        )
        return done.returncode, done.stdout + done.stderr

    def ask(self, *arguments: str) -> Any:
        """Return the JSON that was printed; it must end well."""
        code, told = self.run(*arguments)
        assert code == 0, told
        return json.loads(told)


@pytest.fixture
def cli(bootstrap: str) -> CommandLine:
    return CommandLine(bootstrap)


@pytest.fixture
def broker(setup_admin: ConfluentAdmin) -> str:
    return str(setup_admin.describe_cluster().controller)


def test_the_cluster_is_described(cli: CommandLine, broker: str) -> None:
    told = cli.ask("cluster", "describe")

    (described,) = told["brokers"]
    assert f"{described['host']}:{described['port']}" == cli.bootstrap
    assert told["controller_id"] == described["broker_id"] == int(broker)
    assert told["cluster_id"]


def test_the_versions_of_the_cluster_are_told(cli: CommandLine, broker: str) -> None:
    versions = cli.ask("cluster", "api-versions")

    assert versions["Produce"] == [0, 13]
    assert versions["Fetch"] == [4, 18]
    assert versions["ApiVersions"] == [0, 4]
    assert cli.ask("cluster", "broker-version", "--broker", broker) == {broker: "4.3"}


def test_the_features_of_the_cluster_are_told(cli: CommandLine) -> None:
    assert "metadata.version" in cli.ask("cluster", "describe-features")


def test_the_directories_of_logs_are_told(cli: CommandLine, new_topic: NewTopic) -> None:
    topic = new_topic()
    produce(ConfluentKafka(cli.bootstrap), topic, numbered(3))

    (told,) = cli.ask("cluster", "describe-log-dirs", "--topic", topic)

    (directory,) = told["log_dirs"]
    (described,) = directory["topics"]
    assert described["name"] == topic
    assert described["partitions"][0]["partition_size"] > 0


def test_a_topic_lives_and_dies(cli: CommandLine, name: str, setup_admin: ConfluentAdmin) -> None:
    (created,) = cli.ask("topics", "create", "-t", name, "--num-partitions", "2")["topics"]
    assert (created["num_partitions"], created["replication_factor"]) == (2, 1)
    wait_until(lambda: name in setup_admin.topics(), DEADLINE_S, f"{name} is there")
    code, refusal = cli.run("topics", "create", "-t", name)
    assert code == 1
    assert "TopicAlreadyExistsError" in refusal

    assert name in cli.ask("topics", "list")
    (described,) = cli.ask("topics", "describe", "-t", name)
    assert described["topic_id"] == created["topic_id"]
    assert [each["error_code"] for each in described["partitions"]] == [0, 0]

    cli.ask("partitions", "create", "-p", f"{name}:3")
    wait_until(
        lambda: len(setup_admin.describe_topic(name)) == 3,
        DEADLINE_S,
        "the third partition is there",
    )

    (deleted,) = cli.ask("topics", "delete", "-t", name)["topics"]
    assert (deleted["name"], deleted["error_code"]) == (name, 0)
    wait_until(lambda: name not in setup_admin.topics(), DEADLINE_S, f"{name} is gone")


def test_a_topic_is_deleted_by_its_id(
    cli: CommandLine, new_topic: NewTopic, setup_admin: ConfluentAdmin
) -> None:
    topic = new_topic()
    (described,) = cli.ask("topics", "describe", "-t", topic)

    cli.ask("topics", "delete", "--id", described["topic_id"])

    wait_until(lambda: topic not in setup_admin.topics(), DEADLINE_S, f"{topic} is gone")


@pytest.mark.parametrize("way", ["--force-incremental", "--force-alter"])
def test_the_options_of_a_topic_are_altered_and_reset(
    cli: CommandLine, way: str, new_topic: NewTopic, setup_admin: ConfluentAdmin
) -> None:
    topic = new_topic(segment_bytes="2000000")
    resource = ("-r", "topic", "-n", topic)

    altered = cli.ask("configs", "alter", *resource, "-c", "retention.ms=12345", way)
    assert altered == {"topic": {topic: "OK"}}
    told = cli.ask("configs", "describe", *resource, "--modified")["topic"][topic]
    assert {option: entry["value"] for option, entry in told.items()} == {
        "retention.ms": "12345",
        "segment.bytes": "2000000",
    }

    cli.ask("configs", "reset", *resource, "-c", "retention.ms")
    after = setup_admin.topic_configs(topic)
    assert {option for option, view in after.items() if view.is_override} == {"segment.bytes"}


def test_a_list_of_policies_is_added_to_and_taken_from(
    cli: CommandLine, new_topic: NewTopic, setup_admin: ConfluentAdmin
) -> None:
    topic = new_topic()
    change = ("configs", "alter", "-r", "topic", "-n", topic, "-c")

    cli.ask(*change, "cleanup.policy=add(compact)")
    both = setup_admin.topic_configs(topic)["cleanup.policy"].value
    cli.ask(*change, "cleanup.policy=sub(delete)")
    one = setup_admin.topic_configs(topic)["cleanup.policy"].value

    assert (both, one) == ("delete,compact", "compact")


def test_an_option_that_does_not_exist_is_refused(cli: CommandLine, new_topic: NewTopic) -> None:
    topic = new_topic()
    wanted = ("configs", "alter", "-r", "topic", "-n", topic, "-c", "no.such.option=1")

    code, refusal = cli.run(*wanted)
    assert code == 1
    assert "Unrecognized configs" in refusal
    assert "InvalidConfigurationError" in cli.ask(*wanted, "--allow-unknown")["topic"][topic]


def test_the_options_of_a_broker_are_told_and_altered(
    cli: CommandLine, broker: str, setup_admin: ConfluentAdmin
) -> None:
    resource = ("-r", "broker", "-n", broker)
    option = "log.cleaner.delete.retention.ms"
    default = ConfigView("86400000", is_override=False)

    told = cli.ask("configs", "describe", *resource)["broker"][broker]
    assert told["node.id"]["read_only"]
    assert told[option]["value"] == default.value
    assert not told[option]["read_only"]

    changed = ConfigView("4321", is_override=True)
    altered = cli.ask("configs", "alter", *resource, "-c", f"{option}={changed.value}")
    assert altered == {"broker": {broker: "OK"}}
    wait_until(
        lambda: setup_admin.broker_configs(int(broker))[option] == changed,
        DEADLINE_S,
        "the new value is told",
    )
    cli.ask("configs", "reset", *resource, "-c", option)
    wait_until(
        lambda: setup_admin.broker_configs(int(broker))[option] == default,
        DEADLINE_S,
        "the default is back",
    )


def test_what_has_options_is_listed(cli: CommandLine, broker: str, new_topic: NewTopic) -> None:
    topic = new_topic()

    told = cli.ask("configs", "list")

    assert topic in told["topic"]
    assert broker in told["broker"]
    assert set(cli.ask("configs", "list", "-r", "broker")) == {"broker"}


def test_offsets_are_listed(cli: CommandLine, new_topic: NewTopic) -> None:
    topic = new_topic(partitions=3)
    wanted = {"earliest": 0, "latest": 5, "max-timestamp": 4}
    for partition in range(3):
        produce(ConfluentKafka(cli.bootstrap), topic, numbered(5), partition=partition)

    asked = [part for i, spec in enumerate(wanted) for part in ("-p", f"{topic}:{i}:{spec}")]
    told = cli.ask("partitions", "list-offsets", *asked)[topic]

    assert [told[str(i)]["offset"] for i in range(3)] == list(wanted.values())


def test_partitions_are_described_and_their_records_deleted(
    cli: CommandLine, new_topic: NewTopic
) -> None:
    topic = new_topic(partitions=2)
    produce(ConfluentKafka(cli.bootstrap), topic, numbered(5))

    # These answers have no form in JSON: the program prints what Python prints.
    code, deleted = cli.run("partitions", "delete-records", "-r", f"{topic}:0:3", form="raw")
    assert (code, "'low_watermark': 3" in deleted) == (0, True), deleted
    code, described = cli.run("partitions", "describe", "-t", topic, form="raw")
    assert (code, described.count("'leader_id'")) == (0, 2), described


def test_idempotent_producers_are_described(cli: CommandLine, new_topic: NewTopic) -> None:
    topic = new_topic()
    produce(ConfluentKafka(cli.bootstrap), topic, numbered(5), Sending(idempotent=True))

    code, told = cli.run("transactions", "describe-producers", "-t", topic, "-p", "0")

    assert code == 0, told
    assert '"last_sequence": 4' in told
