"""What an operator asks and changes: topics, their options, groups, how far they are behind.

python -m examples.administration [localhost:9092]
"""

from __future__ import annotations

import sys
import uuid

from ottla import Admin, NewTopic, Producer, TopicPartition


def main(bootstrap: str) -> None:
    topic = f"example-audit-{uuid.uuid4().hex[:8]}"
    first = TopicPartition(topic, 0)
    with Admin({"bootstrap.servers": bootstrap}) as admin:
        found = admin.describe_cluster()
        print(f"cluster {found.cluster_id} has {len(found.brokers)} brokers")

        # What is done to several things has an outcome for each: an error is returned, not raised.
        outcomes = admin.create_topics([NewTopic(topic, 1), NewTopic("not allowed!", 1)])
        for name, outcome in outcomes.items():
            print(f"{name}: {outcome if isinstance(outcome, Exception) else 'created'}")

        admin.alter_configs("topic", topic, {"retention.ms": "3600000"})
        print(f"retention.ms is {admin.describe_configs('topic', topic)['retention.ms'].value}")

        with Producer({"bootstrap.servers": bootstrap}) as producer:
            for number in range(10):
                producer.send(topic, b"%d" % number)

        # A group that has not begun yet is told where to begin: at the fourth record.
        group = f"{topic}-readers"
        admin.alter_group_offsets(group, {first: 3})
        committed = admin.list_group_offsets(group)[first].offset
        end = admin.list_offsets({first: "latest"})[first]
        if isinstance(end, Exception):
            raise end
        print(f"{group} is {end.offset - committed} records behind")

        admin.delete_groups([group])
        admin.delete_topics([topic])


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "localhost:9092")
