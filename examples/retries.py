"""A handler that fails now and then: what fails is tried again later, and given up at last.

python -m examples.retries [localhost:9092]

example-mails ─▶ handle ─fails─▶ …retry.1 ─0.2 s─▶ handle ─fails─▶ …retry.2 ─0.5 s─▶ …dead
"""

from __future__ import annotations

import sys
import threading
import uuid

from ottla import Admin, Consumer, NewTopic, Plan, Producer, Record, Runner, TopicPartition

GOOD = 20
BAD = b"to nobody"
SLOW = b"to somebody who is out"


class Handler:
    """Sends mails, as it were. One is hopeless, and one works at the second try."""

    def __init__(self) -> None:
        self.sent = 0
        self.tries = 0
        self.all_sent = threading.Event()

    def __call__(self, record: Record) -> None:
        if record.value == BAD:
            raise ValueError("nobody lives there")
        if record.value == SLOW:
            self.tries += 1
            if self.tries == 1:
                raise TimeoutError("nobody is at home")
        self.sent += 1
        if self.sent == GOOD + 1:
            self.all_sent.set()


def main(bootstrap: str) -> None:
    name = f"example-mails-{uuid.uuid4().hex[:8]}"
    plan = Plan.of(name, delays_ms=(200, 500))
    topics = [name, *plan.topics, plan.dead_letters]
    with Admin({"bootstrap.servers": bootstrap}) as admin:
        admin.create_topics([NewTopic(one, partitions=1) for one in topics])
        with Producer({"bootstrap.servers": bootstrap}) as producer:
            for value in (BAD, SLOW, *(b"to number %d" % at for at in range(GOOD))):
                producer.send(name, value)
        work(bootstrap, name, plan)
        admin.delete_topics(topics)


def work(bootstrap: str, name: str, plan: Plan) -> None:
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": name,
        "auto.offset.reset": "earliest",
    }
    handler = Handler()
    with Runner(settings, name, handler, plan=plan) as runner:
        at_work = threading.Thread(target=runner.run)
        at_work.start()
        handler.all_sent.wait(60)
        dead = dead_letter(bootstrap, plan)
        runner.stop()
        at_work.join()
    print(f"{handler.sent} mails sent, one of them at try {handler.tries}")
    print(f"given up after {int(dead.header('ottla-attempts') or 0)} tries: {dead.value.decode()}")


def dead_letter(bootstrap: str, plan: Plan) -> Record:
    with Consumer({"bootstrap.servers": bootstrap}) as consumer:
        consumer.assign([TopicPartition(plan.dead_letters, 0)])
        consumer.seek_to_beginning()
        found = consumer.poll(60)
    if found is None:
        raise SystemExit("no dead letter came within a minute")
    return found


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "localhost:9092")
