"""What the interop tests share: Kafka itself, started once, and its view of its own files."""

from __future__ import annotations

import pytest

from tests.interop.dump import Dump
from tests.interop.judge import judge
from tests.interop.kafka import class_path, missing_tools
from tests.interop.our_log import OurLog, write_our_logs
from tests.interop.written_by_kafka import KafkaLog, write_with_kafka


@pytest.fixture(scope="session")
def kafka() -> None:
    """Skip with a sentence where Kafka cannot run; fail where it should run and does not."""
    missing = missing_tools()
    if missing is not None:
        pytest.skip(missing)
    class_path()


@pytest.fixture(scope="session")
def kafka_log(kafka: None, tmp_path_factory: pytest.TempPathFactory) -> KafkaLog:
    """Everything Kafka can write, after a clean stop. Tests read it and change nothing."""
    return write_with_kafka(tmp_path_factory.mktemp("written-by-kafka"))


@pytest.fixture(scope="session")
def kafka_dump(kafka_log: KafkaLog) -> Dump:
    """What DumpLogSegments prints about those files, the topic without text excepted."""
    return judge([kafka_log.directory(topic) for topic in kafka_log.produced if topic != "binary"])


@pytest.fixture(scope="session")
def our_logs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, OurLog]:
    """Everything our own log writes. Tests that damage files take a copy."""
    return write_our_logs(tmp_path_factory.mktemp("written-by-us"))
