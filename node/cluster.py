"""The cluster's metadata, as the requests of this node use it: the `Controller` port over doors.

A wish becomes one command here: ids are drawn, seeds are thrown and options are checked on this
node. The active controller has it committed (`asking.py`), this node follows the metadata until it
holds the change (`following.py`), and only then is the wish answered.

The local image may be behind what another node was told a moment ago. So nothing is refused from it
as it is: whoever looks something up first (the id of a topic, say) asks the active controller how
far the metadata has come, and waits until this node is there.

Not here: who decides (`controller/state.py`), and how news come here (`lifeline.py`).

X1  a wish is one proposal, and is obeyed once, whatever is lost on the way
X2  "done" is said after every listener on this node has seen it
X3  problems of names come before those of options, and these before those of placement, as in Kafka
X4  `validate_only` proposes nothing
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Final, TypeVar

from ottla.controller.commands import (
    ChangeConfigs,
    Command,
    CreatePartitions,
    CreateTopic,
    DeleteTopic,
    ElectionKind,
    ElectLeaders,
    ForgetBroker,
    SetFeatureLevel,
    TakeProducerIds,
)
from ottla.controller.door import Door, News, QuorumView
from ottla.controller.image import MetadataImage, TopicInfo
from ottla.controller.names import is_usable_topic_id
from ottla.controller.outcome import Outcome
from ottla.controller.port import (
    CheckConfigs,
    ConfigChange,
    ConfigKind,
    Listener,
    NewPartitions,
    NewTopic,
    TopicDefaults,
)
from ottla.controller.state import PARTITIONS_AT_ONCE_MAX, apply, configs_after
from ottla.node.asking import Asking
from ottla.node.clock import Clock
from ottla.node.following import Following
from ottla.node.wishes import (
    error_of,
    id_of,
    in_pieces,
    is_not_needed,
    known_topic,
    partitions_to_add,
    partitions_wanted,
    require_done,
    result_error,
    to_elect,
    too_many,
    tried,
)
from ottla.proto.errors import ConfigError, ErrorCode, RequestError, ensure
from ottla.proto.ids import BrokerId
from ottla.proto.kafka.uuids import UUID

T = TypeVar("T")
W = TypeVar("W")

# Long enough for the controllers to elect another leader.
TIMEOUT_MS: Final = 10_000
# For what is committed already, at least so long.
_FOLLOW_MS_MIN: Final = 1_000
# Of one call; the session has a limit of its own.
_WISHES_AT_ONCE: Final = 64
# Controllers that can elect a leader have done so by then. Whoever looks wants to know that nobody
# leads, and not to wait for somebody who does.
_LOOK_MS: Final = 2_000
_PRODUCER_IDS_AT_ONCE: Final = 1000
_SEED_MASK: Final = 2**64 - 1
# One id in 64 begins with a dash. Who draws this many in a row has no dice.
_DRAWS_MAX: Final = 100
# These say that there is no question of options.
_NAME_REFUSALS: Final = frozenset(
    {ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.INVALID_TOPIC_EXCEPTION}
)


class ClusterController:
    """A `Controller` that follows the metadata and asks whoever is active."""

    def __init__(
        self,
        *,
        node_id: BrokerId,
        image: MetadataImage,
        doors: Mapping[int, Door],
        check_configs: CheckConfigs,
        defaults: Callable[[], TopicDefaults],
        new_uuid: Callable[[], UUID],
        clock: Clock,
        timeout_ms: int = TIMEOUT_MS,
    ) -> None:
        self.following: Final = Following(image)
        self.asking: Final = Asking(node_id, doors, clock, timeout_ms=timeout_ms)
        self._check_configs: Final = check_configs
        self._defaults: Final = defaults
        self._new_uuid: Final = new_uuid
        self._office = image.controller_epoch
        self._at_work: set[asyncio.Task[object]] = set()

    # ── Following ─────────────────────────────────────────────────────────────────────────────

    @property
    def image(self) -> MetadataImage:
        return self.following.image

    @property
    def applied_version(self) -> int:
        return self.following.applied_version

    def watch(self, listener: Listener) -> None:
        self.following.watch(listener)

    async def join(self, begin: Listener, then: Listener) -> None:
        """Have `begin` awaited with the present image, and `then` with every one after it."""
        await self.following.join(begin, then)

    async def take_news(self, news: News) -> bool:
        """Obey the news, if they are new. False: there is a gap; follow again from `position`."""
        is_followed = await self.following.take(news)
        self.note_office()
        return is_followed

    def note_office(self) -> None:
        """Ask whoever has taken office, as far as this node has followed."""
        if self.image.controller_epoch > self._office:
            self._office = self.image.controller_epoch
            self.asking.believed = self.image.controller_id

    def begin_session(self, broker_epoch: int) -> None:
        """Ask from now on in this life of the broker; what is under way in another is unknown."""
        self.asking.begin_session(broker_epoch)

    async def close(self) -> None:
        """Give up what is under way; what becomes of it is unknown."""
        self.following.stop()
        tasks = list(self._at_work)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # ── Topics ────────────────────────────────────────────────────────────────────────────────

    async def create_topics(
        self, wanted: Sequence[NewTopic], *, validate_only: bool, client: str = ""
    ) -> list[TopicInfo | RequestError]:
        defaults = self._defaults()
        count = sum(partitions_wanted(topic, defaults) for topic in wanted)
        if count > PARTITIONS_AT_ONCE_MAX:
            return [too_many(count) for _ in wanted]
        commands = [self._creation(topic, defaults) for topic in wanted]
        if validate_only:
            return await self._to_its_end(self._try_creations(commands))

        deadline_ms = self.asking.deadline()

        async def create(command: CreateTopic) -> TopicInfo | RequestError:
            if self._topic_problem(command) is not None:
                # Nothing is proposed. What the answer is depends on what there is by now (X3).
                (answer,) = await self._try_creations([command])
                return answer
            try:
                _, image = await self._commit(command, client, deadline_ms)
            except RequestError as error:
                return error
            sentence = "The topic was made, and deleted again by somebody else."
            gone = RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, sentence)
            return image.topic_by_id(command.topic_id) or gone

        return await self._to_its_end(_each(commands, create))

    async def delete_topics(
        self, topics: Sequence[str], *, client: str = ""
    ) -> list[RequestError | None]:
        def command_for(image: MetadataImage, name: str) -> Command:
            return DeleteTopic(name, known_topic(image, name).topic_id)

        return await self._change_each(topics, command_for, client=client)

    async def create_partitions(
        self, wanted: Sequence[NewPartitions], *, validate_only: bool, client: str = ""
    ) -> list[RequestError | None]:
        def require_few(image: MetadataImage) -> None:
            count = sum(partitions_to_add(image, one) for one in wanted)
            if count > PARTITIONS_AT_ONCE_MAX:
                raise too_many(count)

        def command_for(image: MetadataImage, one: NewPartitions) -> Command:
            topic = known_topic(image, one.topic)
            return CreatePartitions(one, topic.topic_id, self._new_uuid().int & _SEED_MASK)

        return await self._change_each(
            wanted, command_for, client=client, validate_only=validate_only, check=require_few
        )

    async def change_configs(
        self, changes: Sequence[ConfigChange], *, validate_only: bool, client: str = ""
    ) -> list[RequestError | None]:
        def command_for(image: MetadataImage, change: ConfigChange) -> Command:
            command = ChangeConfigs(change)
            require_done(apply(image, command)[1])
            configs = configs_after(image, command)
            if problem := self._config_problem(change.kind, change.name, configs):
                raise problem
            return command

        return await self._change_each(
            changes, command_for, client=client, validate_only=validate_only
        )

    # ── Everything else ───────────────────────────────────────────────────────────────────────

    async def take_producer_ids(self) -> range:
        command = TakeProducerIds(_PRODUCER_IDS_AT_ONCE)
        deadline_ms = self.asking.deadline()
        try:
            outcome = await self.asking.commit(command, client="", deadline_ms=deadline_ms)
        except RequestError as error:
            # Ids that nobody heard of are lost, and no harm. A producer knows how to wait for a
            # coordinator, and nothing of controllers.
            raise RequestError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, error.sentence) from error
        require_done(outcome)
        return outcome.producer_ids or range(0)

    async def elect_leaders(
        self,
        kind: ElectionKind,
        partitions: Sequence[tuple[str, int]] | None,
        *,
        client: str = "",
    ) -> list[tuple[str, int, RequestError | None]]:
        async def elect() -> list[tuple[str, int, RequestError | None]]:
            deadline_ms = self.asking.deadline()
            image = await self._fresh(deadline_ms)
            named = to_elect(image, kind) if partitions is None else partitions
            ids = {one: topic_id for one in named if (topic_id := id_of(image, *one))}
            answers: dict[tuple[UUID, int], RequestError | None] = {}
            for piece in in_pieces([(ids[one], one[1]) for one in ids]):
                answers |= await self._elect(kind, piece, client, deadline_ms)
            unknown = RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            return [(*one, answers[ids[one], one[1]] if one in ids else unknown) for one in named]

        try:
            answers = await self._to_its_end(elect())
        except RequestError as error:
            if partitions is None:
                raise
            return [(name, index, error) for name, index in partitions]
        if partitions is None:
            # Somebody else was quicker.
            return [one for one in answers if not is_not_needed(one[2])]
        return answers

    async def set_feature_level(
        self, level: int, *, validate_only: bool, client: str = ""
    ) -> RequestError | None:
        (answer,) = await self._change_each(
            [level],
            lambda _, wanted: SetFeatureLevel(wanted),
            client=client,
            validate_only=validate_only,
        )
        return answer

    async def forget_broker(self, broker_id: BrokerId, *, client: str = "") -> RequestError | None:
        def command_for(image: MetadataImage, broker_id: BrokerId) -> Command:
            broker = image.brokers.get(broker_id)
            if broker is None:
                raise RequestError(ErrorCode.BROKER_ID_NOT_REGISTERED)
            return ForgetBroker(broker_id, broker.broker_epoch)

        (answer,) = await self._change_each([broker_id], command_for, client=client)
        return answer

    async def describe_quorum(self) -> QuorumView:
        return await self.asking.describe_quorum(self.asking.deadline(_LOOK_MS))

    # ── One wish ──────────────────────────────────────────────────────────────────────────────

    def _creation(self, wanted: NewTopic, defaults: TopicDefaults) -> CreateTopic:
        topic_id = self._draw_topic_id()
        return CreateTopic(wanted, topic_id, defaults, seed=topic_id.int & _SEED_MASK)

    def _draw_topic_id(self) -> UUID:
        for _ in range(_DRAWS_MAX):
            drawn = self._new_uuid()
            if is_usable_topic_id(drawn) and drawn not in self.image.topic_names:
                return drawn
        ensure(False, "new ids are random")
        raise AssertionError

    def _topic_problem(self, command: CreateTopic) -> RequestError | None:
        # Where there are no options there is nothing to look at: the node obeys its own already.
        wanted = command.wanted
        return (
            self._config_problem("topic", wanted.name, wanted.configs) if wanted.configs else None
        )

    def _config_problem(
        self, kind: ConfigKind, name: str, configs: Mapping[str, str]
    ) -> RequestError | None:
        try:
            self._check_configs(kind, name, configs)
        except ConfigError as error:
            return RequestError(ErrorCode.INVALID_CONFIG, " ".join(error.problems))
        return None

    async def _try_creations(
        self, commands: Sequence[CreateTopic]
    ) -> list[TopicInfo | RequestError]:
        """Say what would become of commands, one after the other; propose nothing (X4)."""
        try:
            image = await self._fresh(self.asking.deadline())
        except RequestError as error:
            return [error for _ in commands]
        answers: list[TopicInfo | RequestError] = []
        for command in commands:
            after, outcome = apply(image, command)
            refused = error_of(outcome)
            if refused is None or refused.code not in _NAME_REFUSALS:
                refused = self._topic_problem(command) or refused
            if refused is None:
                image = after
            answers.append(refused or image.topics[command.wanted.name])
        return answers

    async def _elect(
        self,
        kind: ElectionKind,
        piece: Sequence[tuple[UUID, int]],
        client: str,
        deadline_ms: int,
    ) -> dict[tuple[UUID, int], RequestError | None]:
        indexes: dict[UUID, list[int]] = {}
        for topic_id, index in piece:
            indexes.setdefault(topic_id, []).append(index)
        named = {key: tuple(sorted(numbers)) for key, numbers in sorted(indexes.items())}
        try:
            outcome, _ = await self._commit(ElectLeaders(kind, named), client, deadline_ms)
        except RequestError as error:
            return dict.fromkeys(piece, error)
        return {(one.topic_id, one.partition): result_error(one) for one in outcome.results}

    async def _change_each(
        self,
        wishes: Sequence[W],
        command_for: Callable[[MetadataImage, W], Command],
        *,
        client: str,
        validate_only: bool = False,
        check: Callable[[MetadataImage], None] = lambda image: None,
    ) -> list[RequestError | None]:
        """Look at what there is, make a command of each wish, and have all of them committed."""
        deadline_ms = self.asking.deadline()

        async def change_each() -> list[RequestError | None]:
            image = await self._fresh(deadline_ms)
            check(image)
            if validate_only:
                return tried(image, wishes, command_for)

            async def change(wish: W) -> RequestError | None:
                try:
                    await self._commit(command_for(image, wish), client, deadline_ms)
                except RequestError as error:
                    return error
                return None

            return await _each(wishes, change)

        try:
            return await self._to_its_end(change_each())
        except RequestError as error:
            return [error for _ in wishes]

    # ── Committing, and seeing it ─────────────────────────────────────────────────────────────

    async def _fresh(self, deadline_ms: int) -> MetadataImage:
        """Return an image that holds all that was committed before the call."""
        version = await self.asking.read_version(deadline_ms)
        try:
            return await self._seen(version, deadline_ms)
        except TimeoutError:
            sentence = "This node is too far behind the metadata. Nothing was done; try again."
            raise RequestError(ErrorCode.NOT_CONTROLLER, sentence) from None

    async def _commit(
        self, command: Command, client: str, deadline_ms: int
    ) -> tuple[Outcome, MetadataImage]:
        """Return what came of a command, once this node has seen it (X2). Raises `RequestError`."""
        outcome = await self.asking.commit(command, client=client, deadline_ms=deadline_ms)
        ensure(outcome.version is not None, "a committed command has a version")
        try:
            image = await self._seen(outcome.version or 0, deadline_ms)
        except TimeoutError:
            require_done(outcome)
            sentence = "It is done, but this node has not followed the metadata so far yet."
            raise RequestError(ErrorCode.REQUEST_TIMED_OUT, sentence) from None
        require_done(outcome)
        if self.following.trouble is not None:
            sentence = f"It is done, but this node could not follow: {self.following.trouble}"
            raise RequestError(ErrorCode.KAFKA_STORAGE_ERROR, sentence)
        return outcome, image

    async def _seen(self, version: int, deadline_ms: int) -> MetadataImage:
        left_s = max(self.asking.left_s(deadline_ms), _FOLLOW_MS_MIN / 1000)
        async with asyncio.timeout(left_s):
            return await self.following.reached(version)

    async def _to_its_end(self, work: Coroutine[object, object, T]) -> T:
        """Do the work to its end, also when the caller is gone by then."""
        task = asyncio.ensure_future(work)
        self._at_work.add(task)
        task.add_done_callback(self._settle)
        return await asyncio.shield(task)

    def _settle(self, task: asyncio.Task[object]) -> None:
        self._at_work.discard(task)
        # Looked at, or the loop would complain of an error whose caller is gone.
        if not task.cancelled():
            task.exception()


async def _each(wishes: Iterable[W], work: Callable[[W], Awaitable[T]]) -> list[T]:
    """Return what came of each wish, in order; not all of them are worked on at once."""
    gate = asyncio.Semaphore(_WISHES_AT_ONCE)

    async def one(wish: W) -> T:
        async with gate:
            return await work(wish)

    return await asyncio.gather(*map(one, wishes))
