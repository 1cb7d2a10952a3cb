"""A coordinator that takes one member, and answers its commits as a test tells it to.

Not here: sockets (`fake_cluster.py`), and anything that a real coordinator would check.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from ottla.chaos.history import Place
from ottla.proto.kafka.apis import (
    FIND_COORDINATOR,
    HEARTBEAT,
    JOIN_GROUP,
    LEAVE_GROUP,
    OFFSET_COMMIT,
    OFFSET_FETCH,
    SYNC_GROUP,
    ApiRow,
)
from ottla.proto.kafka.message import Message

ROWS: Final = (
    FIND_COORDINATOR,
    HEARTBEAT,
    JOIN_GROUP,
    LEAVE_GROUP,
    OFFSET_COMMIT,
    OFFSET_FETCH,
    SYNC_GROUP,
)
MEMBER: Final = "m-1"


@dataclass
class FakeGroup:
    """A group of one member; its generation counts how often that has joined."""

    coordinator: int = 1
    generation: int = 0
    # What the next commits are answered: a code, or a word of `fake_cluster`. NONE after that.
    commit_answers: list[int | str] = field(default_factory=list)
    committed: dict[Place, int] = field(default_factory=dict)
    left: int = 0

    def answer(self, row: ApiRow, asked: Message) -> dict[str, Any] | str:
        match row.name:
            case "FindCoordinator":
                return self._find(asked)
            case "JoinGroup":
                return self._join(asked)
            case "SyncGroup":
                hands = {one.member_id: bytes(one.assignment) for one in asked.assignments}
                return _done(
                    protocol_type="consumer", protocol_name="range", assignment=hands[MEMBER]
                )
            case "OffsetCommit":
                return self._commit(asked)
            case "OffsetFetch":
                return self._fetch(asked)
            case "LeaveGroup":
                self.left += 1
                return _done(members=[])
            case _:
                return _done()

    def _find(self, asked: Message) -> dict[str, Any]:
        (key,) = asked.coordinator_keys
        found = {"key": key, "node_id": self.coordinator, "host": "h", "port": 1, "error_code": 0}
        return _done(coordinators=[{**found, "error_message": None}])

    def _join(self, asked: Message) -> dict[str, Any]:
        self.generation += 1
        metadata = bytes(asked.protocols[0].metadata)
        member = {"member_id": MEMBER, "group_instance_id": None, "metadata": metadata}
        return _done(
            generation_id=self.generation,
            protocol_type="consumer",
            protocol_name="range",
            leader=MEMBER,
            skip_assignment=False,
            member_id=MEMBER,
            members=[member],
        )

    def _commit(self, asked: Message) -> dict[str, Any] | str:
        code = self.commit_answers.pop(0) if self.commit_answers else 0
        if isinstance(code, str):
            return code
        topics = []
        for topic in asked.topics:
            parts = [
                {"partition_index": p.partition_index, "error_code": code} for p in topic.partitions
            ]
            topics.append({"name": topic.name, "partitions": parts})
            for one in topic.partitions if code == 0 else ():
                self.committed[Place(topic.name, one.partition_index)] = one.committed_offset
        return _done(topics=topics)

    def _fetch(self, asked: Message) -> dict[str, Any]:
        (group,) = asked.groups
        topics = [
            {
                "name": topic.name,
                "partitions": [
                    {
                        "partition_index": index,
                        "committed_offset": self.committed.get(Place(topic.name, index), -1),
                        "committed_leader_epoch": -1,
                        "metadata": "",
                        "error_code": 0,
                    }
                    for index in topic.partition_indexes
                ],
            }
            for topic in group.topics
        ]
        return _done(groups=[{"group_id": group.group_id, "topics": topics, "error_code": 0}])


def _done(**more: Any) -> dict[str, Any]:
    return {"throttle_time": 0, "error_code": 0, **more}
