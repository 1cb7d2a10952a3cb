"""Read, work, write: exactly once, though the program fails in the middle.

What was written and how far was read are committed together, or not at all.

python -m examples.transactions [localhost:9092]
"""

from __future__ import annotations

import sys
import uuid

from ottla import Admin, Consumer, NewTopic, Producer, TopicPartition

COUNT = 100


def main(bootstrap: str) -> None:
    run = uuid.uuid4().hex[:8]
    orders, invoices = f"example-orders-{run}", f"example-invoices-{run}"
    with Admin({"bootstrap.servers": bootstrap}) as admin:
        admin.create_topics([NewTopic(orders, 1), NewTopic(invoices, 1)])
        with Producer({"bootstrap.servers": bootstrap, "value.serializer": "json"}) as producer:
            for number in range(COUNT):
                producer.send(orders, {"order": number, "amount": number * 3})

        # It fails in its third batch, and is started again.
        try:
            work(bootstrap, orders, invoices, fails_in_batch=3)
        except InterruptedError:
            print("the program failed in the middle of a batch")
        work(bootstrap, orders, invoices)

        written = read_committed(bootstrap, invoices)
        print(f"{COUNT} orders became {len(written)} invoices over {sum(written)}")
        admin.delete_topics([orders, invoices])


def work(bootstrap: str, orders: str, invoices: str, *, fails_in_batch: int = 0) -> None:
    """Make an invoice of each order that has none yet."""
    reading = {
        "bootstrap.servers": bootstrap,
        "group.id": f"{orders}-billing",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "isolation.level": "read_committed",
        "value.deserializer": "json",
    }
    # The name is the same in every life of this program: the next one ends what this one leaves.
    writing = {
        "bootstrap.servers": bootstrap,
        "transactional.id": f"{orders}-billing-1",
        "value.serializer": "json",
    }
    first = TopicPartition(orders, 0)
    batches = 0
    with Consumer(reading) as consumer, Producer(writing) as producer:
        consumer.subscribe(orders)
        done = False
        while not done:
            records = consumer.consume(20, 10.0)
            batches += 1
            with producer.transaction():
                for record in records:
                    producer.send(invoices, record.value["amount"])
                    if batches == fails_in_batch and record is records[10]:
                        raise InterruptedError
                producer.send_offsets(consumer.positions(), consumer.group_metadata())
            done = consumer.position(first) >= COUNT


def read_committed(bootstrap: str, topic: str) -> list[int]:
    """Return what is in a topic, without what was written in vain."""
    reading = {
        "bootstrap.servers": bootstrap,
        "isolation.level": "read_committed",
        "value.deserializer": "json",
    }
    found = list[int]()
    with Consumer(reading) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        consumer.seek_to_beginning()
        while len(found) < COUNT:
            found += [record.value for record in consumer.consume(COUNT, 10.0)]
        return found


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "localhost:9092")
