"""What a course makes people watch: leaders that die, partitions that are added, groups at work."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

import pytest

from ottla import Admin, Consumer, Producer, Record, TopicPartition
from tests.integration.first_hour.typing_in import DEADLINE_S, ENVIRONMENT, ROOT, Shell
from tests.integration.nodes import wait_until

pytestmark = pytest.mark.integration


def partition_0(shell: Shell, topic: str) -> dict[str, Any]:
    found: dict[str, Any] = shell.told(f"ottla topics describe {topic}")[0]["partitions"][0]
    return found


def test_a_leader_dies_another_leads_and_the_first_comes_back(shell: Shell, topic: str) -> None:
    before = partition_0(shell, topic)
    first = before["leader"]
    assert sorted(before["replicas"]) == sorted(before["isr"]) == [1, 2, 3]
    shell.done(f"ottla cluster kill {first}")
    try:
        wait_until(
            lambda: partition_0(shell, topic)["leader"] not in (first, None, -1),
            DEADLINE_S,
            "another one leads",
        )
        wait_until(
            lambda: len(partition_0(shell, topic)["isr"]) == 2, DEADLINE_S, "two are in sync"
        )
        meanwhile = partition_0(shell, topic)
        assert sorted(meanwhile["replicas"]) == [1, 2, 3]
        shell.done(f"ottla produce {topic} --partition 0", given="still here\n")
    finally:
        shell.run(f"ottla cluster restart {first}")
    wait_until(
        lambda: len(partition_0(shell, topic)["isr"]) == 3, DEADLINE_S, "three are in sync again"
    )
    # Who leads goes on to lead until the preferred leader is restored.
    assert partition_0(shell, topic)["leader"] == meanwhile["leader"]
    read = f"ottla consume {topic} --partition 0 --from-beginning --max-messages 1"
    assert shell.done(read) == "still here\n"


def settings(bootstrap: str, group: str = "") -> dict[str, object]:
    chosen: dict[str, object] = {
        "bootstrap.servers": bootstrap,
        "auto.offset.reset": "earliest",
        "metadata.max.age.ms": 500,
        "session.timeout.ms": 6000,
        "heartbeat.interval.ms": 500,
    }
    return chosen | ({"group.id": group} if group else {})


def poll_until(consumers: Sequence[Consumer], is_so: Callable[[], bool], what: str) -> list[Record]:
    """Poll all in turn, as programs do, until something holds."""
    end = time.monotonic() + DEADLINE_S
    found: list[Record] = []
    while not is_so():
        assert time.monotonic() < end, f"waited for this to hold: {what}"
        for one in consumers:
            found += one.consume(100, 0.05)
    return found


def shares(consumers: Sequence[Consumer]) -> list[int]:
    return sorted(len(one.assignment()) for one in consumers)


def test_who_subscribed_reads_a_partition_that_is_added_and_who_assigned_does_not(
    shell: Shell, bootstrap: str, topic: str
) -> None:
    with (
        Consumer(settings(bootstrap, f"{topic}-g")) as subscribed,
        Consumer(settings(bootstrap)) as assigned,
    ):
        subscribed.subscribe(topic)
        assigned.assign([TopicPartition(topic, at) for at in range(3)])
        poll_until([subscribed], lambda: shares([subscribed]) == [3], "three partitions are read")
        shell.done(f"ottla topics alter {topic} --partitions 4")
        poll_until([subscribed], lambda: shares([subscribed]) == [4], "the new one is read, too")
        with Producer({"bootstrap.servers": bootstrap}) as producer:
            producer.send(topic, b"new", partition=3)
            producer.send(topic, b"old", partition=0)
        seen: list[bytes] = []

        def is_read() -> bool:
            seen.extend(one.value for one in subscribed.consume(10, 0.1))
            return set(seen) == {b"new", b"old"}

        wait_until(is_read, DEADLINE_S, "the subscriber has read both")
        by_hand: list[bytes] = []

        def has_old() -> bool:
            by_hand.extend(one.value for one in assigned.consume(10, 0.1))
            return b"old" in by_hand

        wait_until(has_old, DEADLINE_S, "the other has read what is its own")
        assert by_hand == [b"old"]
        assert assigned.consume(10, 0.5) == []


# A member that can be killed.
MEMBER = """
import json, sys
from ottla import Consumer
with Consumer(json.loads(sys.argv[1])) as consumer:
    consumer.subscribe(sys.argv[2])
    while True:
        consumer.poll(0.5)
"""


def start_member(bootstrap: str, group: str, topic: str) -> subprocess.Popen[bytes]:
    words = [json.dumps(settings(bootstrap, group)), topic]
    return subprocess.Popen([sys.executable, "-c", MEMBER, *words], cwd=ROOT, env=ENVIRONMENT)


def test_a_group_shares_out_and_takes_over(shell: Shell, bootstrap: str, topic: str) -> None:
    group = f"{topic}-crew"

    def shared() -> list[int]:
        """How many partitions each member reads, as `ottla groups describe` tells it."""
        told = shell.run(f"ottla groups describe {group} --json")
        members = json.loads(told.out)[0].get("members", ()) if told.code == 0 else ()
        return sorted(len(one["partitions"]) for one in members)

    with ExitStack() as life:
        crew = [life.enter_context(Consumer(settings(bootstrap, group)))]
        crew[0].subscribe(topic)
        mortal = [start_member(bootstrap, group, topic) for _ in range(2)]
        try:
            poll_until(crew, lambda: shared() == [1, 1, 1], "each of three reads one")
            crew.append(life.enter_context(Consumer(settings(bootstrap, group))))
            crew[1].subscribe(topic)
            poll_until(crew, lambda: shared() == [0, 1, 1, 1], "a fourth is idle")
            shell.done(f"ottla topics alter {topic} --partitions 4")
            poll_until(crew, lambda: shared() == [1, 1, 1, 1], "all four are busy")
        finally:
            for one in mortal:
                one.kill()
                one.wait(DEADLINE_S)
        poll_until(crew, lambda: shared() == [2, 2], "the others take over")


def test_a_directory_has_a_folder_for_each_partition_and_files_in_it(
    shell: Shell, admin: Admin, topic: str
) -> None:
    shell.done(f"ottla topics alter {topic} --partitions 6")
    shell.done(f"ottla produce {topic} --partition 5", given="on disk\n")
    node = next((shell.directory / "data-cluster").glob("*/data"))
    wait_until(
        lambda: len(list(node.glob(f"{topic}-*"))) == 6, DEADLINE_S, "there are six directories"
    )
    assert {one.name for one in node.glob(f"{topic}-*")} == {f"{topic}-{at}" for at in range(6)}
    for at in range(6):
        kinds = {one.suffix for one in (node / f"{topic}-{at}").iterdir()}
        assert {".log", ".index", ".timeindex"} <= kinds
    wait_until(
        lambda: (
            "on disk"
            in shell.done("ottla log dump", *map(str, sorted((node / f"{topic}-5").glob("*.log"))))
        ),
        DEADLINE_S,
        "the record can be read in the file",
    )
