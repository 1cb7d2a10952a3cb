"""From options to the settings that the log obeys."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.node.config import load_node_options, log_settings
from ottla.proto.errors import ConfigError
from ottla.proto.options.load import load
from ottla.proto.options.properties import FILE_BYTES_MAX
from ottla.proto.records.header import TimestampType
from ottla.replication.settings import LogSettings


def test_the_defaults_of_the_settings_are_those_of_the_table() -> None:
    assert log_settings({}, load()) == LogSettings()


def test_a_topics_options_become_its_logs_settings() -> None:
    settings = log_settings(
        {
            "cleanup.policy": "compact,delete",
            "message.timestamp.type": "LogAppendTime",
            "ottla.durability": "pagecache",
            "ottla.validate.records": "true",
            "retention.ms": "-1",
        },
        load(flags={"producer.id.expiration.ms": "7"}),
    )
    assert settings == LogSettings(
        delete=True,
        compact=True,
        timestamp_type=TimestampType.LOG_APPEND_TIME,
        fsync=False,
        validate_records=True,
        retention_ms=-1,
        producer_expiry_ms=7,
    )


def test_an_empty_cleanup_policy_keeps_everything() -> None:
    settings = log_settings({"cleanup.policy": ""}, load())
    assert (settings.delete, settings.compact) == (False, False)


@pytest.mark.parametrize(
    ("given", "level"),
    [
        ({"compression.type": "producer"}, None),
        ({"compression.type": "snappy"}, None),
        ({"compression.type": "gzip"}, None),
        ({"compression.type": "gzip", "compression.gzip.level": "9"}, 9),
        ({"compression.type": "lz4"}, 9),
        ({"compression.type": "zstd", "compression.zstd.level": "-1"}, -1),
        ({"compression.type": "zstd", "compression.gzip.level": "9"}, 3),
    ],
)
def test_the_level_is_that_of_the_codec_in_use(given: dict[str, str], level: int | None) -> None:
    assert log_settings(given, load()).compression_level == level


def test_a_wrong_override_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"segment\.bytes must be at least 1048576"):
        log_settings({"segment.bytes": "10"}, load())


def test_a_node_reads_its_file(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_text("node.id = 7\n")
    options = load_node_options(path=path, environment={}, flags={})
    assert options.settings["node.id"].value == 7


def test_a_file_without_end_is_not_read_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    with path.open("wb") as file:
        file.truncate(100 * FILE_BYTES_MAX)
    with pytest.raises(ConfigError, match="too large"):
        load_node_options(path=path, environment={}, flags={})


def test_a_directory_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="Is a directory"):
        load_node_options(path=tmp_path, environment={}, flags={})
