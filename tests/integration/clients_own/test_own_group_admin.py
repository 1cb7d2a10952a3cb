"""Groups from outside: our admin client and `ottla groups`, on our nodes and on Apache Kafka."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner, Result

from ottla import Admin, AsyncAdmin, Consumer, OffsetAndMetadata, Producer, TopicPartition
from ottla.__main__ import main
from ottla.clients.admin.answers import GroupInfo
from ottla.proto.errors import ConfigError, ErrorCode, RequestError
from tests.integration.clients_own.conftest import MakeTopic
from tests.integration.clients_own.consuming import read, settings, write

pytestmark = pytest.mark.integration


class Ottla:
    """The command `ottla groups`."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    def run(self, line: str) -> Result:
        words = ["groups", *line.split(), "--bootstrap-server", self._bootstrap]
        return CliRunner().invoke(main, words)

    def done(self, line: str) -> str:
        ended = self.run(line)
        assert ended.exit_code == 0, ended.stderr
        return ended.stdout

    def told(self, line: str) -> Any:
        return json.loads(self.done(f"{line} --json"))

    def refused(self, line: str) -> str:
        ended = self.run(line)
        assert (ended.exit_code, ended.stdout) == (1, ""), ended.stdout
        return ended.stderr


@pytest.fixture
def ottla(bootstrap: str) -> Ottla:
    return Ottla(bootstrap)


@pytest.fixture
def topic(make_topic: MakeTopic, producer: Producer) -> str:
    """Two partitions with ten records each."""
    made = make_topic(2)
    write(producer, made, 20, partitions=2)
    return made


@pytest.fixture
def member(bootstrap: str, topic: str, name: str) -> Iterator[Consumer]:
    """The only member of the group `name`, which has read everything and committed it."""
    with Consumer(settings(bootstrap, name, client_id="reader")) as consumer:
        consumer.subscribe(topic)
        read(consumer, 20)
        consumer.commit()
        yield consumer


def code_of(outcome: object) -> ErrorCode:
    assert isinstance(outcome, RequestError), outcome
    return outcome.code


def test_a_group_is_listed_described_moved_and_deleted(
    admin: Admin, member: Consumer, topic: str, name: str
) -> None:
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    (listed,) = (one for one in admin.list_groups() if one.group_id == name)
    assert (listed.protocol_type, listed.state) == ("consumer", "Stable")
    found = admin.describe_groups([name])[name]
    assert isinstance(found, GroupInfo)
    assert (found.state, found.protocol, len(found.members)) == ("Stable", "range", 1)
    assert found.members[0].client_id == "reader"

    # As long as it has members, nobody moves or deletes it.
    refused = admin.alter_group_offsets(name, {first: 3})[first]
    assert code_of(refused) is ErrorCode.UNKNOWN_MEMBER_ID
    assert code_of(admin.delete_groups([name])[name]) is ErrorCode.NON_EMPTY_GROUP
    still_read = admin.delete_group_offsets(name, [first])[first]
    assert code_of(still_read) is ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC

    member.close()
    told = admin.alter_group_offsets(name, {first: 3, second: OffsetAndMetadata(4, "why")})
    assert told == {first: None, second: None}
    offsets = admin.list_group_offsets(name)
    assert (offsets[first].offset, offsets[second].offset) == (3, 4)
    assert offsets[second].metadata == "why"
    assert admin.delete_group_offsets(name, [first]) == {first: None}
    assert set(admin.list_group_offsets(name)) == {second}
    assert admin.delete_groups([name, f"not-{name}"])[name] is None
    assert code_of(admin.describe_groups([name])[name]) is ErrorCode.GROUP_ID_NOT_FOUND
    assert name not in [one.group_id for one in admin.list_groups()]


def test_what_is_not_there_is_told_for_each(admin: Admin, topic: str, name: str) -> None:
    nowhere, first = TopicPartition(topic, 99), TopicPartition(topic, 0)
    assert code_of(admin.describe_groups([name])[name]) is ErrorCode.GROUP_ID_NOT_FOUND
    assert code_of(admin.delete_groups([name])[name]) is ErrorCode.GROUP_ID_NOT_FOUND
    assert admin.list_group_offsets(name) == {}
    outcomes = admin.alter_group_offsets(name, {first: 1, nowhere: 1})
    assert outcomes[first] is None
    assert code_of(outcomes[nowhere]) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert admin.alter_group_offsets(name, {}) == {}
    with pytest.raises(ConfigError, match="an offset is 0 or more, not -1"):
        admin.alter_group_offsets(name, {first: -1})
    with pytest.raises(RequestError) as refused:
        admin.delete_group_offsets(f"not-{name}", [first])
    assert refused.value.code is ErrorCode.GROUP_ID_NOT_FOUND
    assert admin.delete_groups([name]) == {name: None}


def test_the_same_on_an_event_loop(bootstrap: str, topic: str, name: str) -> None:
    first = TopicPartition(topic, 0)

    async def work() -> None:
        async with AsyncAdmin({"bootstrap.servers": bootstrap}) as admin:
            assert await admin.alter_group_offsets(name, {first: 7}) == {first: None}
            assert (await admin.list_group_offsets(name))[first].offset == 7
            assert name in [one.group_id for one in await admin.list_groups()]
            found = (await admin.describe_groups([name]))[name]
            assert isinstance(found, GroupInfo)
            assert (found.state, found.members) == ("Empty", ())
            assert await admin.delete_group_offsets(name, [first]) == {first: None}
            assert await admin.list_group_offsets(name) == {}
            # A group without offsets and members may be gone by itself.
            outcome = (await admin.delete_groups([name]))[name]
            assert outcome is None or code_of(outcome) is ErrorCode.GROUP_ID_NOT_FOUND

    asyncio.run(work())


def test_people_see_members_offsets_and_lag(
    ottla: Ottla, member: Consumer, producer: Producer, topic: str, name: str
) -> None:
    write(producer, topic, 4, partitions=2)
    (told,) = ottla.told(f"describe {name}")
    assert (told["state"], told["assignor"], told["lag"]) == ("Stable", "range", 4)
    (reader,) = told["members"]
    assert (reader["client_id"], len(reader["partitions"])) == ("reader", 2)
    for at, one in enumerate(told["partitions"]):
        assert (one["partition"], one["committed_offset"], one["end_offset"]) == (at, 10, 12)
        assert (one["lag"], one["member_id"]) == (2, reader["member_id"])
    lines = ottla.done(f"describe {name}").splitlines()
    assert lines[0] == f"group {name}, Stable, assignor range, 1 member, lag 4"
    assert lines[1].split() == ["topic", "partition", "committed", "end", "lag", "member"]
    assert lines[2].split()[:5] == [topic, "0", "10", "12", "2"]
    assert [name, "Stable", "consumer"] in [
        line.split() for line in ottla.done("list").splitlines()
    ]


def test_a_group_with_members_is_neither_reset_nor_deleted(
    ottla: Ottla, member: Consumer, topic: str, name: str
) -> None:
    assert ottla.refused(f"reset {name} --topic {topic} --to-earliest") == (
        f"ottla: group {name} was not reset: it has 1 member and is Stable; stop them first "
        "(NON_EMPTY_GROUP)\n"
    )
    assert ottla.refused(f"delete {name}") == (
        f"ottla: group {name} was not deleted: it has members; stop them first. (NON_EMPTY_GROUP)\n"
    )


def test_a_group_without_members_goes_on_where_it_is_put(
    ottla: Ottla, bootstrap: str, topic: str, name: str
) -> None:
    move = f"reset {name} --topic {topic}"

    def offsets() -> list[int]:
        (told,) = ottla.told(f"describe {name}")
        return [one["committed_offset"] for one in told["partitions"]]

    # A group that is not there yet is made.
    told = ottla.told(f"{move} --to-earliest --dry-run")
    assert [(one["before"], one["after"]) for one in told["partitions"]] == [(None, 0), (None, 0)]
    assert "there is none" in ottla.refused(f"describe {name}")
    ottla.done(f"{move} --to-latest")
    assert offsets() == [10, 10]
    ottla.done(f"{move}:1 --to-offset 4")
    assert offsets() == [10, 4]
    with Consumer(settings(bootstrap, name)) as consumer:
        consumer.subscribe(topic)
        assert {(one.partition, one.offset) for one in read(consumer, 6)} == {
            (1, offset) for offset in range(4, 10)
        }
    beyond = ottla.run(f"{move} --to-offset 99")
    assert beyond.exit_code == 0
    assert f"ottla: {topic}-0 has no offset 99; 10 is the nearest.\n" in beyond.stderr
    assert offsets() == [10, 10]
    ottla.done(f"{move} --to-datetime 2020-01-01T00:00:00Z")
    assert offsets() == [0, 0]
    ottla.done(f"{move} --to-datetime 9999-01-01")
    assert offsets() == [10, 10]
    assert ottla.done(f"delete {name}") == f"{name}: deleted\n"


def test_what_cannot_be_done_to_a_group_is_one_sentence(
    ottla: Ottla, topic: str, name: str
) -> None:
    none = "there is none; `ottla groups list` tells which there are. (GROUP_ID_NOT_FOUND)\n"
    assert ottla.refused(f"describe {name}") == f"ottla: group {name}: {none}"
    assert ottla.refused(f"delete {name}") == f"ottla: group {name} was not deleted: {none}"
    assert ottla.refused(f"reset {name} --topic not-{topic} --to-latest").startswith(
        f"ottla: topic not-{topic}: there is none; "
    )
    wrong = ottla.run(f"reset {name} --topic {topic}:2 --to-latest")
    assert (wrong.exit_code, wrong.stderr) == (
        2,
        f"ottla: --topic {topic}:2: it has partitions 0 to 1.\n",
    )
    (told,) = json.loads(ottla.run(f"delete {name} --json").stdout)
    assert (told["deleted"], told["error"]["name"]) == (False, "GROUP_ID_NOT_FOUND")


def test_offsets_of_a_topic_that_is_gone_are_shown_without_an_end(
    ottla: Ottla, admin: Admin, make_topic: MakeTopic, topic: str, name: str
) -> None:
    gone = make_topic()
    admin.alter_group_offsets(name, {TopicPartition(gone, 0): 0, TopicPartition(topic, 0): 1})
    admin.delete_topics([gone])
    (told,) = ottla.told(f"describe {name}")
    # Apache Kafka forgets them with the topic, a moment later.
    ends = {one["topic"]: one["end_offset"] for one in told["partitions"]}
    assert ends[topic] == 10
    assert ends.get(gone) is None
    assert told["lag"] == 9
