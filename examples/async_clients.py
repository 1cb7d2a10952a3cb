"""A producer and a consumer on one event loop, at the same time.

python -m examples.async_clients [localhost:9092]
"""

from __future__ import annotations

import asyncio
import sys
import uuid

from ottla import AsyncAdmin, AsyncConsumer, AsyncProducer, NewTopic, TopicPartition

COUNT = 1000


async def write(bootstrap: str, topic: str) -> None:
    async with AsyncProducer({"bootstrap.servers": bootstrap}) as producer:
        for number in range(COUNT):
            # `send` never waits, so that it can be called anywhere; this is where one waits.
            await producer.room()
            producer.send(topic, b"%d" % number)
        await producer.flush()


async def read(bootstrap: str, topic: str) -> int:
    async with AsyncConsumer({"bootstrap.servers": bootstrap}) as consumer:
        # Without a group: these partitions, from the first record on.
        await consumer.assign([TopicPartition(topic, 0)])
        await consumer.seek_to_beginning()
        total, seen = 0, 0
        async for record in consumer:
            total += int(record.value)
            seen += 1
            if seen == COUNT:
                return total
        return total


async def main(bootstrap: str) -> None:
    topic = f"example-numbers-{uuid.uuid4().hex[:8]}"
    async with AsyncAdmin({"bootstrap.servers": bootstrap}) as admin:
        await admin.create_topics([NewTopic(topic, partitions=1)])
        _, total = await asyncio.gather(write(bootstrap, topic), read(bootstrap, topic))
        await admin.delete_topics([topic])
    print(f"the sum of {COUNT} numbers is {total}")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "localhost:9092"))
