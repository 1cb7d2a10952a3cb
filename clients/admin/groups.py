"""Consumer groups: which there are, who is in them, what they committed; and changing that.

A group is asked of its coordinator. All brokers together know all groups.

Not here: being a member.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

from ottla.clients.admin.answers import CommittedOffset, GroupInfo, GroupListing, GroupMember
from ottla.clients.admin.asking import (
    Asker,
    Outcome,
    only,
    refusal_of,
    retry_elsewhere,
    retry_on,
)
from ottla.clients.connection import error_code_of
from ottla.clients.consumer.protocol import partitions_by_topic
from ottla.clients.consumer.record import OffsetAndMetadata
from ottla.clients.consumer.requests import (
    COMMIT_VERSION_MAX,
    OFFSET_FETCH_VERSION_MAX,
    commit_errors,
    commit_fields,
    committed_of,
    offset_fetch_fields,
)
from ottla.clients.errors import NotSentError
from ottla.clients.retrying import is_transient
from ottla.proto.errors import ErrorCode, OttlaError, RequestError
from ottla.proto.ids import TopicPartition
from ottla.proto.kafka.apis import (
    DELETE_GROUPS,
    DESCRIBE_GROUPS,
    LIST_GROUPS,
    OFFSET_COMMIT,
    OFFSET_DELETE,
    OFFSET_FETCH,
    ApiRow,
)
from ottla.proto.kafka.message import Message

_DEAD: Final = "Dead"


class Groups:
    """Questions about groups, and changes from outside of them."""

    def __init__(self, asker: Asker) -> None:
        self._asker: Final = asker

    async def all(self) -> list[GroupListing]:
        fields = dict[str, Any](states_filter=[], types_filter=[])

        async def once() -> dict[str, GroupListing]:
            # All again after a failure: the groups of a node that died are another's now.
            found = dict[str, GroupListing]()
            for node_id in tuple(self._asker.cluster.metadata.brokers):
                answer = await self._asker.cluster.call(node_id, LIST_GROUPS, fields)
                retry_on(answer.error_code)
                refusal = refusal_of(answer)
                if refusal is not None:
                    raise refusal
                found |= {one.group_id: _listing(one) for one in answer.groups}
            return found

        listed: dict[str, GroupListing] = await self._asker.patiently(once, is_transient)
        return [listed[name] for name in sorted(listed)]

    async def describe(self, names: Sequence[str]) -> dict[str, GroupInfo | RequestError]:
        answers = await asyncio.gather(*map(self._describe, names))
        return dict(zip(names, answers, strict=True))

    async def _describe(self, name: str) -> GroupInfo | RequestError:
        fields = {"groups": [name], "include_authorized_operations": False}

        async def once() -> GroupInfo | RequestError:
            answer = await self._ask(name, DESCRIBE_GROUPS, fields)
            told = only(answer.groups)
            retry_on(told.error_code)
            refusal = refusal_of(told)
            if refusal is None and told.group_state == _DEAD:
                # What brokers say of a group that is not there, before version 6.
                return RequestError(ErrorCode.GROUP_ID_NOT_FOUND)
            return refusal or _group(told)

        found: GroupInfo | RequestError = await self._answer_of(once, is_transient)
        return found

    async def delete(self, names: Sequence[str]) -> dict[str, Outcome]:
        answers = await asyncio.gather(*map(self._delete, names))
        return dict(zip(names, answers, strict=True))

    async def _delete(self, name: str) -> Outcome:
        async def once() -> Outcome:
            answer = await self._ask(name, DELETE_GROUPS, {"groups_names": [name]})
            told = only(answer.results)
            retry_elsewhere(told.error_code)
            return refusal_of(told)

        done: Outcome = await self._answer_of(once, _never_left)
        return done

    async def offsets(self, name: str) -> dict[TopicPartition, CommittedOffset]:
        fields = offset_fetch_fields(name, None, stable=False)

        async def once() -> dict[TopicPartition, CommittedOffset]:
            answer = await self._ask(name, OFFSET_FETCH, fields, OFFSET_FETCH_VERSION_MAX)
            told = committed_of(answer)
            retry_on(told.code)
            if told.code is not ErrorCode.NONE:
                raise RequestError(told.code)
            return {
                one: CommittedOffset(at.offset, at.leader_epoch, at.metadata)
                for one, at in told.offsets.items()
            }

        found: dict[TopicPartition, CommittedOffset] = await self._asker.patiently(
            once, is_transient
        )
        return found

    async def alter_offsets(
        self, name: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> dict[TopicPartition, Outcome]:
        identity = {"generation_id": -1, "member_id": "", "group_instance_id": None}
        fields = commit_fields({"group_id": name, **identity}, offsets)

        async def once() -> dict[TopicPartition, Outcome]:
            answer = await self._ask(name, OFFSET_COMMIT, fields, COMMIT_VERSION_MAX)
            codes = commit_errors(answer)
            for code in codes.values():
                retry_elsewhere(code)
            return {one: _outcome(codes.get(one)) for one in offsets}

        done: dict[TopicPartition, Outcome] = {}
        if offsets:
            done = await self._asker.patiently(once, _never_left)
        return done

    async def delete_offsets(
        self, name: str, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, Outcome]:
        topics = [
            {"name": topic, "partitions": [{"partition_index": one} for one in numbers]}
            for topic, numbers in partitions_by_topic(partitions).items()
        ]

        async def once() -> dict[TopicPartition, Outcome]:
            answer = await self._ask(name, OFFSET_DELETE, {"group_id": name, "topics": topics})
            retry_elsewhere(answer.error_code)
            refusal = refusal_of(answer)
            if refusal is not None:
                raise refusal
            codes = commit_errors(answer)
            return {one: _outcome(codes.get(one)) for one in partitions}

        done: dict[TopicPartition, Outcome] = await self._asker.patiently(once, _never_left)
        return done

    async def _ask(
        self, group: str, row: ApiRow, fields: Mapping[str, Any], version_max: int | None = None
    ) -> Message:
        node_id = await self._asker.coordinator(group)
        connection = await self._asker.cluster.connection(node_id)
        version = connection.version_of(row)
        if version_max is not None:
            version = min(version, version_max)
        return await self._asker.cluster.call(node_id, row, fields, version)

    async def _answer_of(
        self, once: Callable[[], Awaitable[Any]], may_repeat: Callable[[OttlaError], bool]
    ) -> Any:
        try:
            return await self._asker.patiently(once, may_repeat)
        except RequestError as error:
            return error


def _never_left(error: OttlaError) -> bool:
    return isinstance(error, NotSentError)


def _outcome(number: int | None) -> Outcome:
    """Return what a code of one partition says; None is for one that was not spoken of."""
    if number == ErrorCode.NONE:
        return None
    return RequestError(ErrorCode.UNKNOWN_SERVER_ERROR if number is None else error_code_of(number))


def _listing(told: Message) -> GroupListing:
    return GroupListing(told.group_id, told.protocol_type, told.get("group_state", ""))


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
