"""Writes records in the three ways there are: without waiting, waiting for each, being called.

python -m examples.producer [localhost:9092]
"""

from __future__ import annotations

import sys

from ottla import Admin, DeliveryError, NewTopic, Producer, Report

TOPIC = "example-orders"


def main(bootstrap: str) -> None:
    with Admin({"bootstrap.servers": bootstrap}) as admin:
        # That it is there already is an outcome like any other, and fine here.
        admin.create_topics([NewTopic(TOPIC, partitions=3)])

    settings = {"bootstrap.servers": bootstrap, "value.serializer": "json", "linger.ms": 5}
    with Producer(settings) as producer:
        # 1. Without waiting: the producer batches, sends and tries again by itself.
        for number in range(100):
            producer.send(TOPIC, {"order": number})

        # 2. Waiting: the report tells where the record is. The same key is always in one partition.
        try:
            report = producer.send(TOPIC, {"order": 100}, key=b"customer-7").result()
            print(f"order 100 is at offset {report.offset} of partition {report.partition}")
        except DeliveryError as error:
            # Its class says whether it was surely not written, or may have been.
            print(f"order 100: {error}")

        # 3. Being called, with headers.
        producer.send(TOPIC, {"order": 101}, headers=[("source", b"example")], on_delivery=tell)
        producer.flush()
    print("102 records written")


def tell(report: Report) -> None:
    print(f"order 101 is {report.state.name.lower()}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "localhost:9092")
