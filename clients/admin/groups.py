"""Consumer groups: which there are, who is in them, what they committed.

A group is asked of its coordinator. All brokers together know all groups.

Not here: being a member.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from ottla.clients.admin.answers import CommittedOffset, GroupInfo, GroupListing, GroupMember
from ottla.clients.admin.asking import Asker, Outcome, refusal_of, retry_on
from ottla.clients.errors import NotSentError
from ottla.clients.retrying import is_transient
from ottla.proto.errors import OttlaError, RequestError
from ottla.proto.ids import TopicPartition
from ottla.proto.kafka.apis import DELETE_GROUPS, DESCRIBE_GROUPS, LIST_GROUPS, OFFSET_FETCH
from ottla.proto.kafka.message import Message

# From 8 on several groups are asked for at once; from 10 on topics have ids and no names.
_OFFSET_FETCH_VERSION_MAX: Final = 9


class Groups:
    """Questions about groups."""

    def __init__(self, asker: Asker) -> None:
        self._asker: Final = asker

    async def all(self) -> list[GroupListing]:
        await self._asker.cluster.start(self._asker.request_timeout_ms / 1000)
        found = dict[str, GroupListing]()
        for node_id in tuple(self._asker.cluster.metadata.brokers):
            fields = dict[str, Any](states_filter=[], types_filter=[])
            answer = await self._asker.look(LIST_GROUPS, fields, node_id=node_id)
            refusal = refusal_of(answer)
            if refusal is not None:
                raise refusal
            for one in answer.groups:
                state = one.get("group_state", "")
                found[one.group_id] = GroupListing(one.group_id, one.protocol_type, state)
        return [found[name] for name in sorted(found)]

    async def describe(self, names: Sequence[str]) -> dict[str, GroupInfo | RequestError]:
        answers = await asyncio.gather(*map(self._describe, names))
        return dict(zip(names, answers, strict=True))

    async def _describe(self, name: str) -> GroupInfo | RequestError:
        fields = {"groups": [name], "include_authorized_operations": False}

        async def once() -> GroupInfo | RequestError:
            answer = await self._ask(name, DESCRIBE_GROUPS, fields)
            (told,) = answer.groups
            retry_on(told.error_code)
            return refusal_of(told) or _group(told)

        found: GroupInfo | RequestError = await self._answer_of(once, is_transient)
        return found

    async def delete(self, names: Sequence[str]) -> dict[str, Outcome]:
        answers = await asyncio.gather(*map(self._delete, names))
        return dict(zip(names, answers, strict=True))

    async def _delete(self, name: str) -> Outcome:
        async def once() -> Outcome:
            answer = await self._ask(name, DELETE_GROUPS, {"groups_names": [name]})
            (told,) = answer.results
            retry_on(told.error_code)
            return refusal_of(told)

        done: Outcome = await self._answer_of(once, lambda error: isinstance(error, NotSentError))
        return done

    async def offsets(self, name: str) -> dict[TopicPartition, CommittedOffset]:
        wanted = {"group_id": name, "member_id": None, "member_epoch": -1, "topics": None}
        fields = {**wanted, "groups": [wanted], "require_stable": False}

        async def once() -> dict[TopicPartition, CommittedOffset]:
            node_id = await self._asker.coordinator(name)
            connection = await self._asker.cluster.connection(node_id)
            version = min(connection.version_of(OFFSET_FETCH), _OFFSET_FETCH_VERSION_MAX)
            answer = await connection.call(OFFSET_FETCH, fields, version)
            told = answer.groups[0] if answer.get("groups") else answer
            retry_on(told.get("error_code", 0))
            refusal = refusal_of(told) if told.get("error_code") else None
            if refusal is not None:
                raise refusal
            return _committed(told)

        found: dict[TopicPartition, CommittedOffset] = await self._asker.patiently(
            once, is_transient
        )
        return found

    async def _ask(self, group: str, row: Any, fields: dict[str, Any]) -> Message:
        node_id = await self._asker.coordinator(group)
        return await self._asker.cluster.call(node_id, row, fields)

    async def _answer_of(
        self, once: Callable[[], Awaitable[Any]], may_repeat: Callable[[OttlaError], bool]
    ) -> Any:
        try:
            return await self._asker.patiently(once, may_repeat)
        except RequestError as error:
            return error


def _group(told: Message) -> GroupInfo:
    members = tuple(
        GroupMember(
            one.member_id,
            one.client_id,
            one.client_host,
            one.get("group_instance_id"),
            one.member_metadata,
            one.member_assignment,
        )
        for one in told.members
    )
    return GroupInfo(
        told.group_id, told.group_state, told.protocol_type, told.protocol_data, members
    )


def _committed(told: Message) -> dict[TopicPartition, CommittedOffset]:
    return {
        TopicPartition(topic.name, part.partition_index): CommittedOffset(
            part.committed_offset, part.get("committed_leader_epoch", -1), part.metadata or ""
        )
        for topic in told.topics
        for part in topic.partitions
        if part.committed_offset >= 0
    }
