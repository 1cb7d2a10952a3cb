"""From a name to a backend, and what is said when that cannot be."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.chaos.backends.choose import open_backend
from ottla.chaos.backends.kafka import KafkaBackend, KafkaSettings, class_path_of
from ottla.chaos.backends.local import LocalBackend
from ottla.chaos.backends.verifying import problems_in
from ottla.chaos.ports import HarnessError, Means
from ottla.proto.errors import ConfigError


def test_an_unknown_backend_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="There is no backend 'cloud'; there are local"):
        open_backend("cloud", tmp_path)


def test_kafka_needs_its_jars() -> None:
    with pytest.raises(ConfigError, match="KAFKA_CLASS_PATH"):
        class_path_of({})


def test_kafka_says_what_cannot_be_done_to_it(tmp_path: Path) -> None:
    path = "lib/kafka_2.13-4.3.1.jar:other.jar"
    backend = KafkaBackend(KafkaSettings(directory=tmp_path, class_path=path))
    try:
        assert backend.system == "Apache Kafka 4.3.1"
        assert backend.means.isdisjoint({Means.POWER, Means.PREPARING})
        with pytest.raises(HarnessError, match="has no means"):
            backend.cut_power([1])
    finally:
        backend.close()


def test_controllers_apart_have_ids_of_their_own(tmp_path: Path) -> None:
    backend = open_backend("local", tmp_path, nodes=3, controllers=2)
    try:
        assert isinstance(backend, LocalBackend)
        assert (backend.nodes, backend.controllers) == ((1, 2, 3), (4, 5))
        assert not any(map(backend.is_running, (1, 2, 3, 4, 5)))
        assert backend.exit_code(1) is None
        addresses = {backend.bootstrap(node) for node in backend.nodes}
        addresses |= {backend.inside(node) for node in backend.nodes}
        assert len(addresses) == 6
    finally:
        backend.close()


def test_a_node_that_runs_not_cannot_be_signalled(tmp_path: Path) -> None:
    backend = open_backend("local", tmp_path)
    try:
        backend.kill([1])
        assert backend.stop([1]) == {}
        assert backend.resources() == {}
        assert backend.log_lines() == {1: [], 2: [], 3: []}
    finally:
        backend.close()


def test_problems_of_a_verifier_are_told_with_their_partitions() -> None:
    told = {
        "problems": ["no meta.properties"],
        "partitions": [{"partition": "a-0", "problems": ["a gap"]}, {"problems": []}],
    }
    assert problems_in(told) == ["no meta.properties", "a-0: a gap"]
