"""The commands that speak to a cluster, against a real node."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from ottla.__main__ import main
from tests.integration.nodes import RunningNode, running_node

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[2]
DEADLINE_S = 30.0
GONE = "UNKNOWN_TOPIC_OR_PARTITION"
MAKE_IT = "there is none; `ottla topics create gone` makes it."


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    with running_node(tmp_path_factory.mktemp("node")) as running:
        yield running


@pytest.fixture
def ottla(node: RunningNode) -> Ottla:
    return Ottla(node.bootstrap)


class Ottla:
    """The command `ottla`, towards one node."""

    def __init__(self, bootstrap: str) -> None:
        self._towards = ["--bootstrap-server", bootstrap]

    def run(self, *arguments: str, given: bytes | None = None) -> Result:
        result = CliRunner().invoke(main, [*arguments, *self._towards], input=given)
        assert result.exception is None or isinstance(result.exception, SystemExit), (
            result.exception
        )
        return result

    def done(self, *arguments: str, given: bytes | None = None) -> bytes:
        """Return what was printed by a command that must not fail."""
        result = self.run(*arguments, given=given)
        assert result.exit_code == 0, result.stderr
        return result.stdout_bytes

    def told(self, *arguments: str, given: bytes | None = None) -> Any:
        return json.loads(self.done(*arguments, "--json", given=given))

    def read(self, topic: str, *arguments: str) -> bytes:
        """Return everything that a topic holds."""
        return self.done("consume", topic, "--from-beginning", "--until-end", *arguments)

    def started(self, *arguments: str, **streams: Any) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-m", "ottla", *arguments, *self._towards],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            # A test that runs in the background would hand down that Ctrl-C is ignored.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
            **streams,
        )


def test_a_topic_lives_and_dies(ottla: Ottla) -> None:
    made = ottla.told(
        "topics", "create", "life", "--partitions", "3", "--config", "retention.ms=3600000"
    )
    assert (made["created"], made["partition_count"], made["replication_factor"]) == (True, 3, 1)

    listed = {one["topic"]: one for one in ottla.told("topics", "list")}
    assert listed["life"]["partition_count"] == 3
    assert listed["life"]["id"] == made["id"]

    (described,) = ottla.told("topics", "describe", "life")
    assert described["configs"] == {"retention.ms": "3600000"}
    assert [one["partition"] for one in described["partitions"]] == [0, 1, 2]
    for one in described["partitions"]:
        assert one["replicas"] == one["isr"] == [one["leader"]]

    assert ottla.done("topics", "alter", "life", "--partitions", "4") == (
        b"life: has now 4 partitions\n"
    )
    assert ottla.told("topics", "describe", "life")[0]["partition_count"] == 4
    assert ottla.done("topics", "delete", "life") == b"life: deleted\n"
    assert "life" not in {one["topic"] for one in ottla.told("topics", "list")}


def test_people_get_a_table(ottla: Ottla) -> None:
    ottla.done("topics", "create", "table", "--partitions", "2")
    lines = ottla.done("topics", "describe", "table").decode().splitlines()
    assert lines[0].startswith("topic table, 2 partitions, replication factor 1, id ")
    assert lines[1].split() == ["partition", "leader", "epoch", "replicas", "isr", "elr"]
    assert [line.split()[0] for line in lines[2:]] == ["0", "1"]
    listed = ottla.done("topics", "list").decode().splitlines()
    assert ["table", "2", "1"] in [line.split() for line in listed]


@pytest.mark.parametrize(
    ("command", "code", "told"),
    [
        ("topics create there", "TOPIC_ALREADY_EXISTS", "topic there was not created: "),
        ("topics create a/b", "INVALID_TOPIC_EXCEPTION", "topic a/b was not created: "),
        ("topics create new --replication-factor 9", "INVALID_REPLICATION_FACTOR", "not created"),
        ("topics create new --config a=b", "INVALID_CONFIG", "topic new was not created: "),
        ("topics create new --config segment.bytes=x", "INVALID_CONFIG", "not created"),
        ("topics alter there --partitions 1", "INVALID_PARTITIONS", "there was not altered: "),
        ("topics alter gone --partitions 2", GONE, f"topic gone was not altered: {MAKE_IT}"),
        ("topics describe gone", GONE, f"topic gone: {MAKE_IT}"),
        ("topics delete gone", GONE, "not deleted: there is none; `ottla topics list` tells"),
        ("configs describe topic gone", GONE, f"topic gone: {MAKE_IT}"),
        ("configs alter topic gone --set retention.ms=1", GONE, f"was not altered: {MAKE_IT}"),
        ("configs alter topic there --set a=b", "INVALID_CONFIG", "topic there was not altered: "),
        ("consume gone", GONE, f"topic gone: {MAKE_IT}"),
        ("produce gone", GONE, "`ottla topics create gone` makes it."),
    ],
)
def test_a_refusal_is_one_sentence_and_exit_code_1(
    ottla: Ottla, command: str, code: str, told: str
) -> None:
    ottla.done("topics", "create", "there", "--if-not-exists")
    result = ottla.run(*command.split())
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("ottla: ")
    assert told in result.stderr
    assert result.stderr.endswith(f" ({code})\n")


def test_a_refusal_is_json_for_programs(ottla: Ottla) -> None:
    result = ottla.run("topics", "create", "..", "--json")
    assert result.exit_code == 1
    told = json.loads(result.stdout)
    assert (told["created"], told["error"]["code"]) == (False, 17)


def test_one_refusal_among_several_is_exit_code_1_and_the_others_are_done(ottla: Ottla) -> None:
    ottla.done("topics", "create", "one-of-two")
    result = ottla.run("topics", "delete", "one-of-two", "the-other")
    assert (result.exit_code, result.stdout) == (1, "one-of-two: deleted\n")
    assert "the-other was not deleted" in result.stderr


def test_what_is_there_or_gone_already_may_be_no_failure(ottla: Ottla) -> None:
    ottla.done("topics", "create", "again")
    assert ottla.done("topics", "create", "again", "--if-not-exists") == (
        b"again: is there already\n"
    )
    ottla.done("topics", "delete", "again")
    ottla.done("topics", "delete", "again", "--if-exists")


def test_a_dry_run_changes_nothing(ottla: Ottla) -> None:
    assert b"could be created" in ottla.done("topics", "create", "dry", "--dry-run")
    assert "dry" not in {one["topic"] for one in ottla.told("topics", "list")}
    ottla.done("topics", "create", "dry")
    ottla.done("topics", "alter", "dry", "--partitions", "5", "--dry-run")
    ottla.done("configs", "alter", "topic", "dry", "--set", "retention.ms=5", "--dry-run")
    (described,) = ottla.told("topics", "describe", "dry")
    assert (described["partition_count"], described["configs"]) == (1, {})


def test_options_of_a_topic_are_set_and_unset(ottla: Ottla) -> None:
    ottla.done("topics", "create", "options", "--config", "retention.ms=1000")
    ottla.done(
        "configs", "alter", "topic", "options", "--set", "cleanup.policy=compact,delete",
        "--unset", "retention.ms",
    )  # fmt: skip
    told = ottla.told("configs", "describe", "topic", "options")
    assert [(one["name"], one["value"], one["source"]) for one in told] == [
        ("cleanup.policy", "compact,delete", "topic")
    ]
    everything = {
        one["name"]: one for one in ottla.told("configs", "describe", "topic", "options", "--all")
    }
    assert everything["segment.bytes"]["source"] == "default"


def test_options_of_brokers_are_set_and_unset(ottla: Ottla) -> None:
    ottla.done("configs", "alter", "broker", "default", "--set", "log.retention.ms=777000")
    told = ottla.told("configs", "describe", "broker", "1")
    assert ("log.retention.ms", "777000", "all brokers") in [
        (one["name"], one["value"], one["source"]) for one in told
    ]
    ottla.done("configs", "alter", "broker", "default", "--unset", "log.retention.ms")
    refused = ottla.run("configs", "describe", "broker", "99")
    assert refused.exit_code == 1
    assert refused.stderr == "ottla: the cluster has no broker 99; it has 1.\n"


def test_lines_come_back_as_they_went_in(ottla: Ottla) -> None:
    ottla.done("topics", "create", "lines")
    lines = b"plain\n\n\n  blanks  \n\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80\n\x00\xff\xfe\r\nlast"
    told = ottla.told("produce", "lines", given=lines)
    assert told == {
        "topic": "lines",
        "written": 7,
        "failed": 0,
        "partitions": [{"partition": 0, "written": 7, "first_offset": 0, "last_offset": 6}],
    }
    assert ottla.read("lines") == lines + b"\n"


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_keys_nulls_and_headers_come_back_with_every_codec(ottla: Ottla, compression: str) -> None:
    topic = f"codec-{compression}"
    ottla.done("topics", "create", topic)
    ottla.done(
        "produce", topic, "--key-separator", "=>", "--null-marker", "NULL", "--header", "who=ä",
        "--compression", compression,
        given=b"k=>v\nNULL=>x\ndeleted=>NULL\n=>\nk=>a=>b\n\xff=>\xfe\n",
    )  # fmt: skip
    told = [json.loads(line) for line in ottla.read(topic, "--json").splitlines()]
    assert [one["offset"] for one in told] == list(range(6))
    assert [(one.get("key"), one.get("value")) for one in told[:5]] == [
        ("k", "v"),
        (None, "x"),
        ("deleted", None),
        ("", ""),
        ("k", "a=>b"),
    ]
    assert (told[5]["key_base64"], told[5]["value_base64"]) == ("/w==", "/g==")
    assert all(one["headers"] == [{"name": "who", "value": "ä"}] for one in told)


def test_what_one_topic_prints_as_json_another_one_takes(ottla: Ottla) -> None:
    for topic in ("printed", "taken"):
        ottla.done("topics", "create", topic)
    ottla.done(
        "produce", "printed", "--key-separator", ":", "--null-marker", "NULL", "--header", "a=1",
        given=b"k:v\n\xff:NULL\n",
    )  # fmt: skip
    printed = ottla.read("printed", "--json")
    ottla.done("produce", "taken", "--format", "json", "--header", "copied=yes", given=printed)

    def records(lines: bytes) -> list[dict[str, Any]]:
        return [{**json.loads(line), "topic": ""} for line in lines.splitlines()]

    copied = records(ottla.read("taken", "--json"))
    # The same, times too, and the header that was said for all of them.
    for one in copied:
        assert one["headers"].pop(0) == {"name": "copied", "value": "yes"}
    assert copied == records(printed)


@pytest.mark.parametrize("acks", ["all", "1", "0"])
def test_a_file_is_written_with_any_acks(ottla: Ottla, tmp_path: Path, acks: str) -> None:
    topic = f"acks-{acks}"
    ottla.done("topics", "create", topic)
    path = tmp_path / "lines"
    path.write_bytes(b"".join(b"%d\n" % number for number in range(5000)))
    told = ottla.told("produce", topic, "--file", str(path), "--acks", acks)
    assert told["written"] == 5000
    # Without acks nobody has said when they are there; a reader that stays sees them come.
    read = ottla.done("consume", topic, "--from-beginning", "--max-messages", "5000")
    assert read == path.read_bytes()


def test_one_partition_is_written_and_read(ottla: Ottla) -> None:
    ottla.done("topics", "create", "two", "--partitions", "2")
    ottla.done("produce", "two", "--partition", "1", given=b"a\nb\nc\n")
    shape = ("--format", "{partition}/{offset} {value}")
    assert ottla.read("two", *shape) == b"1/0 a\n1/1 b\n1/2 c\n"
    assert ottla.read("two", "--partition", "0") == b""
    at = ("consume", "two", "--partition", "1", "--until-end")
    assert ottla.done(*at, "--offset", "1") == b"b\nc\n"
    assert ottla.done(*at, "--offset", "3") == b""
    assert ottla.done(*at, "--offset", "earliest") == b"a\nb\nc\n"
    assert ottla.done(*at, "--offset", "latest") == b""
    assert ottla.done("consume", "two", "--offset", "@0", "--until-end") == b"a\nb\nc\n"
    assert ottla.done("consume", "two", "--offset", "@9999-01-01", "--until-end") == b""
    beyond = ottla.run(*at, "--offset", "4")
    assert (beyond.exit_code, beyond.stderr) == (
        1,
        "ottla: offset 4 is not in partition 1 of two: it begins at 0, and the next record will "
        "be 3.\n",
    )
    for command in ("consume", "produce"):
        refused = ottla.run(command, "two", "--partition", "2")
        assert (refused.exit_code, refused.stderr) == (
            2,
            "ottla: --partition 2: two has partitions 0 to 1.\n",
        )


def test_a_key_goes_where_the_java_client_would_send_it(ottla: Ottla) -> None:
    ottla.done("topics", "create", "keys", "--partitions", "4")
    ottla.done("produce", "keys", "--key-separator", ":", given=b"a:\nb:\nc:\nfoobar:\n")
    read = ottla.read("keys", "--format", "{key} {partition}").split(b"\n")
    # (murmur2 of the key & 0x7fffffff) % 4, as Kafka's own hash gives it.
    assert sorted(read)[1:] == [b"a 0", b"b 0", b"c 2", b"foobar 2"]


def test_reading_stops_when_it_was_told_to(ottla: Ottla) -> None:
    ottla.done("topics", "create", "stops")
    ottla.done("produce", "stops", given=b"1\n2\n3\n")
    from_start = ("consume", "stops", "--from-beginning")
    assert ottla.done(*from_start, "--max-messages", "2") == b"1\n2\n"
    assert ottla.done(*from_start, "--timeout", "1") == b"1\n2\n3\n"
    few = ottla.run(*from_start, "--max-messages", "4", "--until-end")
    assert (few.exit_code, few.stdout) == (1, "1\n2\n3\n")
    assert few.stderr == "ottla: there were fewer than 4 records.\n"


def test_a_bad_line_stops_the_writing_and_is_named(ottla: Ottla) -> None:
    ottla.done("topics", "create", "bad-line")
    result = ottla.run(
        "produce", "bad-line", "--key-separator", ":", "--json", given=b"a:1\nb\nc:3\n"
    )
    assert result.exit_code == 1
    assert json.loads(result.stdout)["written"] == 1
    assert result.stderr == 'ottla: line 2 has no ":" between a key and a value.\n'
    assert ottla.read("bad-line") == b"1\n"


def test_a_record_that_is_too_large_is_refused(ottla: Ottla) -> None:
    ottla.done("topics", "create", "large", "--config", "max.message.bytes=1000")
    result = ottla.run("produce", "large", given=b"x" * 2000)
    assert result.exit_code == 1
    assert "1 record not acknowledged: " in result.stderr
    assert result.stderr.endswith("(MESSAGE_TOO_LARGE)\n")


def test_ctrl_c_ends_a_reader_well(ottla: Ottla) -> None:
    ottla.done("topics", "create", "ctrl-c")
    ottla.done("produce", "ctrl-c", given=b"one\n")
    with ottla.started("consume", "ctrl-c", "--from-beginning") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"one\n"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=DEADLINE_S)
    assert (process.returncode, out, err) == (0, b"", b"")


def test_a_reader_of_the_output_that_goes_away_ends_a_reader_of_the_topic(ottla: Ottla) -> None:
    ottla.done("topics", "create", "head")
    ottla.done("produce", "head", given=b"one\n")
    with ottla.started("consume", "head", "--from-beginning") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == b"one\n"
        process.stdout.close()
        # No further record comes: it has to notice by itself.
        assert process.wait(DEADLINE_S) == 141
        assert process.stderr.read() == b""


def test_what_is_typed_is_written_before_the_input_ends(ottla: Ottla) -> None:
    ottla.done("topics", "create", "typed")
    reader, writer = os.pipe()
    with ottla.started("produce", "typed", stdin=reader) as process:
        os.close(reader)
        os.write(writer, b"now\n")
        read = ottla.done("consume", "typed", "--from-beginning", "--max-messages", "1")
        assert read == b"now\n"
        os.close(writer)
        assert process.wait(DEADLINE_S) == 0
