"""Our node and Kafka 4.3.1 are asked the same, and answer the same but for what is meant to differ.

`REWRITE=1 make interop` writes Kafka's answers down anew, to be reviewed as a diff. Without Java,
our node is compared with what was written down.
"""

from __future__ import annotations

import os

import pytest

from ottla.proto.kafka.apis import API_TABLE
from tests.integration.nodes import running_node
from tests.interop.broker import start_broker
from tests.interop.differential.case import versions_of
from tests.interop.differential.cases import CASES
from tests.interop.differential.compare import differences, unexplained
from tests.interop.differential.intended import INTENDED
from tests.interop.differential.recorded import load_answers, render, save_answers
from tests.interop.differential.run import Answers, ask_node

# What is the same in both, so that answers can be: records of 2023 are not too old, and the first
# member of a group does not wait for others.
OPTIONS = {
    "log.retention.ms": "-1",
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
}


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Answers:
    with running_node(tmp_path_factory.mktemp("ours"), options=OPTIONS) as node:
        host, _, port = node.bootstrap.rpartition(":")
        return ask_node(host, int(port), CASES)


@pytest.fixture(scope="module")
def kafkas(kafka: None, tmp_path_factory: pytest.TempPathFactory) -> Answers:
    with start_broker(tmp_path_factory.mktemp("kafka"), OPTIONS) as broker:
        return ask_node("127.0.0.1", broker.port, CASES)


def test_every_case_has_a_name_of_its_own() -> None:
    assert len({case.name for case in CASES}) == len(CASES)


def test_every_version_of_every_api_is_asked() -> None:
    asked = {(case.row, version) for case in CASES for version in case.versions}
    missing = [
        (row.name, version)
        for row in API_TABLE
        for version in versions_of(row)
        if (row, version) not in asked
    ]
    assert missing == []


def test_every_case_is_recorded() -> None:
    recorded = load_answers()
    assert {name: set(answers) for name, answers in recorded.items()} == {
        case.name: set(case.versions) for case in CASES
    }


@pytest.mark.integration
def test_our_node_answers_as_kafka_did_when_it_was_recorded(ours: Answers) -> None:
    assert_alike(ours, load_answers())


@pytest.mark.interop
def test_kafka_answers_as_recorded(kafkas: Answers) -> None:
    if os.environ.get("REWRITE"):
        save_answers(kafkas)
    assert render(kafkas) == render(load_answers())


@pytest.mark.interop
def test_our_node_answers_as_kafka_does(ours: Answers, kafkas: Answers) -> None:
    assert_alike(ours, kafkas)


def assert_alike(ours: Answers, kafkas: Answers) -> None:
    found, not_shown = unexplained(differences(ours, kafkas), INTENDED)
    told = "\n".join(str(one) for one in found[:20])
    assert not found, f"{len(found)} differences that nobody meant:\n{told}"
    assert not not_shown, f"differences are listed as intended and are none: {not_shown}"
