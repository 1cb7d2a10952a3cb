"""What the client commands say to wrong arguments, and when nobody is there."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from ottla.__main__ import CommandRow, LazyGroup, main

ROOT = Path(__file__).parents[4]


@pytest.fixture
def nobody() -> str:
    """An address at which nobody listens."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{held.getsockname()[1]}"


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("topics --create --topic t", "say `ottla topics create NAME`."),
        ("topics --list --zookeeper z:2181", "say `ottla topics list`."),
        ("topics --bootstrap-server a:1 list", "say it after the command"),
        ("topics list --zookeeper z:2181", "there is no ZooKeeper here; say --bootstrap-server"),
        ("topics list --broker-list a:9092", "say --bootstrap-server HOST:PORT."),
        ("topics alter t --config a=b", "say `ottla configs alter topic NAME --set KEY=VALUE`."),
        ("configs --describe", "say `ottla configs describe topic NAME`."),
        ("configs alter --entity-type topics", "say `ottla configs describe topic NAME`"),
        ("produce --broker-list a:9092 --topic t", "say --bootstrap-server HOST:PORT."),
        ("produce --topic t", "say the name alone: `ottla produce NAME`."),
        ("consume --topic t", "say the name alone: `ottla consume NAME`."),
        ("consume t --zookeeper z:2181", "there is no ZooKeeper here"),
        ("groups --list", "say `ottla groups list`."),
        ("groups --describe --group g", "say `ottla groups describe NAME`."),
        ("groups --group g --reset-offsets", "say the name alone"),
        ("groups reset g --topic t --to-latest --execute", "it is done unless you say --dry-run."),
        ("consume t --property print.key=true", "say --format '{key} {value}'."),
        ("consume t --consumer-property a=b", "--consumer-property is not how it is said here"),
        ("consume t --consumer-property=a=b --formatter x", "--group and --isolation-level"),
        ("consume --whitelist a --topic t", "say the name alone: `ottla consume NAME`."),
        ("produce t --property parse.key=true", "say --key-separator TEXT and --null-marker TEXT."),
        ("produce t --producer-property acks=1", "--producer-property is not how it is said here"),
        ("produce t --request-required-acks all", "say --acks all, 1 or 0."),
        ("produce t --compression-codec zstd", "say --compression WHICH."),
        ("groups --broker-list a:9092 --list", "say --bootstrap-server HOST:PORT after the"),
        ("groups --reset-offsets --group g --execute", "say `ottla groups reset NAME --topic"),
        ("groups reset --group g --all-topics --execute", "say the name alone"),
        ("groups describe --group g --members", "say the name alone: `ottla groups describe"),
        ("groups describe --all-groups", "name none: `ottla groups describe`."),
        ("groups delete --group g", "say the name alone: `ottla groups delete NAME`."),
        ("topics create --topic t --partitions 3", "say the name alone: `ottla topics create"),
        ("topics describe --topic t", "say the name alone: `ottla topics describe NAME`."),
        ("topics alter --topic t --partitions 3", "say the name alone: `ottla topics alter"),
        ("topics delete --topic t", "say the name alone: `ottla topics delete NAME`."),
        ("perf produce --topic t --num-records 5 --throughput -1", "say the name alone"),
        ("perf produce t --num-records 5", "say --records N."),
        ("perf produce t --record-size 5", "say --size BYTES."),
        ("perf consume t --messages 5", "say --records N."),
    ],
)
def test_an_old_spelling_is_told_the_new_one(command: str, told: str) -> None:
    result = CliRunner().invoke(main, command.split())
    assert (result.exit_code, result.stdout) == (2, "")
    assert told in result.stderr
    assert "is not how it is said here" in result.stderr


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("topics list --bootstrap-server localhost", '"localhost" has no port'),
        ("topics list --bootstrap-server localhost:99999", "a port from 1 to 65535"),
        ("topics list --bootstrap-server a:1,,b:2", '"" has no port'),
        ("topics create t --config retention.ms", "--config takes KEY=VALUE"),
        ("topics create t --config a=1 --config a=2", "--config names a twice"),
        ("topics alter t", "nothing to alter: --partitions N is missing."),
        ("configs alter topic t", "nothing to alter: say --set KEY=VALUE or --unset KEY."),
        ("configs alter topic t --set a=1 --unset a", "a is named twice"),
        ("configs alter topic t --unset a --unset a", "a is named twice"),
        ("configs describe broker one", "a broker is named by its id, a number, or by default"),
        ("configs describe broker 99999999999", "a broker is named by its id"),
        ("consume t --group g --partition 1", "leave --partition away"),
        ("consume t --group g --offset earliest", "leave --offset away"),
        ("consume t --group=", "a group has a name"),
        ("groups reset g --topic t", "say where to, once: --to-earliest"),
        ("groups reset g --topic t --to-latest --to-offset 3", "say where to, once"),
        ("groups reset g --topic t --to-datetime soon", "a time is milliseconds since 1970"),
        ("groups reset g --topic t:x --to-latest", "--topic takes TOPIC or TOPIC:0,1"),
        ("groups reset g --topic t:9999999999 --to-latest", "no partition has such a number"),
        ("consume t --from-beginning --offset 3", "say one of them"),
        ("consume t --offset 3", "say --partition too"),
        ("consume t --partition 0 --offset soon", "earliest, latest, @TIME or a number"),
        ("consume t --partition 0 --offset -1", "earliest, latest, @TIME or a number"),
        ("consume t --offset @soon", "a time is milliseconds since 1970"),
        ("consume t --format {x}", 'no field "x"'),
        ("produce t --format json --key-separator :", "--format json: a line says itself"),
        ("produce t --header a", "--header takes KEY=VALUE"),
        ("produce t --file no/such/file", "--file no/such/file: No such file or directory."),
    ],
)
def test_wrong_arguments_are_one_sentence_and_exit_code_2(command: str, told: str) -> None:
    result = CliRunner().invoke(main, command.split())
    assert (result.exit_code, result.stdout) == (2, "")
    assert told in result.stderr
    assert result.stderr.startswith("ottla: ")
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "command",
    [
        "topics",
        "topics create",
        "topics create t --partitions 0",
        "topics delete",
        "configs describe group g",
        "produce",
        "produce t --acks 2",
        "produce t --compression rar",
        "consume t --max-messages 0",
        "consume t --partition -1",
        "groups reset g --to-latest",
        "groups reset g --topic t --to-offset -1",
        "groups delete",
        "produce t --format xml",
        "perf consume t --records 0",
    ],
)
def test_what_click_refuses_is_exit_code_2(command: str) -> None:
    assert CliRunner().invoke(main, command.split()).exit_code == 2


@pytest.mark.parametrize(
    "command",
    [
        "topics create t",
        "topics list --json",
        "topics describe",
        "topics alter t --partitions 2",
        "topics delete t",
        "configs describe topic t",
        "configs alter broker 1 --set a=b --json",
        "produce t",
        "consume t",
        "consume t --group g",
        "groups list",
        "groups describe g --json",
        "groups reset g --topic t --to-latest",
        "groups delete g",
        "perf produce t",
        "perf consume t",
        "perf latency t",
    ],
)
def test_nobody_there_is_one_sentence_that_says_what_to_check(command: str, nobody: str) -> None:
    result = CliRunner().invoke(main, [*command.split(), "--bootstrap-server", nobody])
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == (
        f"ottla: {nobody} cannot be reached: connection refused. Is a node running there? "
        "`ottla node` starts one, and --bootstrap-server HOST:PORT names another.\n"
    )


def test_every_address_that_was_tried_is_named(nobody: str) -> None:
    both = f"{nobody},no-such-host.invalid:9092"
    result = CliRunner().invoke(main, ["topics", "list", "--bootstrap-server", both])
    assert result.exit_code == 1
    assert f"{nobody} cannot be reached: connection refused." in result.stderr
    assert "no-such-host.invalid:9092 cannot be reached: the name is not known." in result.stderr


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("topcs list", "Error: No such command 'topcs'. Did you mean 'topics'?"),
        ("conifg", "Error: No such command 'conifg'. Did you mean 'config'?"),
        ("xyzzy", "Error: No such command 'xyzzy'."),
        ("transaction list", "Error: No such command 'transaction'. Did you mean 'transactions'?"),
        ("--verison", "Error: No such option"),
    ],
)
def test_an_unknown_command_is_told_the_nearest(command: str, told: str) -> None:
    result = CliRunner().invoke(main, command.split())
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.splitlines()[-1].startswith(told)


@click.command()
def interrupted() -> None:
    raise KeyboardInterrupt


def test_ctrl_c_is_exit_code_130_and_no_traceback() -> None:
    row = CommandRow(__name__, "interrupted", "Is interrupted.")
    result = CliRunner().invoke(LazyGroup(name="ottla", rows={"it": row}), ["it"])
    assert (result.exit_code, result.output) == (130, "\n")


@pytest.mark.parametrize(
    "command",
    [
        ["topics", "list"],
        ["configs", "describe", "topic", "t"],
        ["replicas", "verify", "t"],
        ["consume", "t"],
        ["groups", "list"],
    ],
)
def test_client_commands_load_neither_the_server_nor_a_foreign_client(
    command: list[str], nobody: str
) -> None:
    arguments = json.dumps([*command, "--bootstrap-server", nobody])
    program = (
        "import sys, contextlib\n"
        "from ottla.__main__ import CommandRow, LazyGroup, main\n"
        f"with contextlib.suppress(SystemExit): main({arguments})\n"
        "unwanted = {'confluent_kafka', 'rich', 'lmdb', 'ottla.node', 'ottla.replication'}\n"
        "sys.exit(', '.join(unwanted & set(sys.modules)) or 0)\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
