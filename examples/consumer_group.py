"""Two members of a group share the partitions of a topic, each in a thread of its own.

    python -m examples.consumer_group [localhost:9092]

What was read is committed when it was handled: start it again, and it goes on where it stopped.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence

from ottla import Admin, Consumer, NewTopic, Producer, RebalanceListener, Record, TopicPartition

TOPIC = "example-payments"
GROUP = "example-billing"
COUNT = 300


class Tell(RebalanceListener):
    """Says which partitions a member has got, and which it has to give away."""

    def __init__(self, name: str) -> None:
        self._name = name

    def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        print(f"{self._name} now also reads {', '.join(map(str, partitions)) or 'nothing'}")

    def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        print(f"{self._name} gives away {', '.join(map(str, partitions))}")


class Countdown:
    """How many records are still to come, for all members together."""

    def __init__(self, count: int) -> None:
        self._left = count
        self._lock = threading.Lock()

    def take(self, count: int) -> None:
        with self._lock:
            self._left -= count

    def is_done(self) -> bool:
        return self._left <= 0


def read(name: str, bootstrap: str, left: Countdown) -> None:
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": GROUP,
        "client.id": name,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
    with Consumer(settings) as consumer:
        consumer.subscribe(TOPIC, Tell(name))
        while not left.is_done():
            records = consumer.consume(100, timeout=0.2)
            for record in records:
                handle(record)
            if records:
                # After the work: a crash before this line repeats records and loses none.
                consumer.commit()
                left.take(len(records))


def handle(record: Record) -> None:
    """Here your program would do something with it."""


def main(bootstrap: str) -> None:
    with Admin({"bootstrap.servers": bootstrap}) as admin:
        admin.create_topics([NewTopic(TOPIC, partitions=4)])
    with Producer({"bootstrap.servers": bootstrap}) as producer:
        for number in range(COUNT):
            producer.send(TOPIC, b"payment %d" % number)
    left = Countdown(COUNT)
    members = [
        threading.Thread(target=read, args=(name, bootstrap, left)) for name in ("anna", "ben")
    ]
    for member in members:
        member.start()
    for member in members:
        member.join()
    print(f"{COUNT} records read and committed")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "localhost:9092")
