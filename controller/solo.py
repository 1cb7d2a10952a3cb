"""The controller of a cluster of one node: a quorum's state machine, agreed with nobody.

The life of a change:
  1. commands wait for their turn: one call at a time is at work (O1)
  2. `apply` makes the next image, or a refusal, for each wish of the call
  3. all that changed is committed to the state store at once, on another thread (O2)
  4. the image is published, and every listener is awaited with it (O3)
  5. the call is answered

O1  images follow each other in the order of their versions
O2  what is published is durable; what a caller was told has happened survives a power cut
O3  when a caller hears of success, every listener has followed
O4  an error of the store is final: nobody knows what of the commit is on the disk, so the image
    stays as it was and every later change raises `StorageError` until the node starts again

A caller that goes away does not stop its call half-way. A listener that fails has not undone the
change, which is committed and published: the others are awaited still, the caller hears
`StorageError` (done, but this node could not follow), and the next image gives the listener
another chance, because an image says everything and not only what is new.

At a start the broker epoch grows, and every partition gets a new leader epoch (`StartLeading`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, TypeVar

from ottla.controller.commands import (
    ChangeConfigs,
    CreatePartitions,
    CreateTopic,
    DeleteTopic,
    StartLeading,
    TakeProducerIds,
)
from ottla.controller.image import BrokerInfo, MetadataImage, TopicInfo
from ottla.controller.names import is_usable_topic_id
from ottla.controller.port import (
    CheckConfigs,
    ConfigChange,
    ConfigKind,
    Listener,
    NewPartitions,
    NewTopic,
    TopicDefaults,
)
from ottla.controller.state import (
    PARTITIONS_AT_ONCE_MAX,
    Outcome,
    apply,
    configs_after,
)
from ottla.controller.stored import Draft, StateStore, load_image
from ottla.proto.errors import (
    ConfigError,
    ErrorCode,
    RequestError,
    StorageError,
    ensure,
)
from ottla.proto.kafka.uuids import UUID

T = TypeVar("T")

_PRODUCER_IDS_AT_ONCE: Final = 1000
_SEED_MASK: Final = 2**64 - 1
# One id in 64 begins with a dash. Who draws this many in a row has no dice.
_DRAWS_MAX: Final = 100
# These say that there is no question of options.
_NAME_REFUSALS: Final = frozenset(
    {ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.INVALID_TOPIC_EXCEPTION}
)


class SoloController:
    """A `Controller` whose word alone counts."""

    def __init__(
        self,
        store: StateStore,
        *,
        cluster_id: str,
        broker: BrokerInfo,
        check_configs: CheckConfigs,
        defaults: Callable[[], TopicDefaults],
        new_uuid: Callable[[], UUID],
    ) -> None:
        """Load what the store holds. Raises `StorageError` if that cannot be done."""
        self._store = store
        self._check_configs = check_configs
        self._defaults = defaults
        self._new_uuid = new_uuid
        self._listeners: list[Listener] = []
        self._turn = asyncio.Lock()
        self._at_work: set[asyncio.Task[object]] = set()
        self._refusal: str | None = None
        self._image, last_epoch = load_image(store, cluster_id, broker)
        # Counts the starts of this node on its data.
        self.broker_epoch: Final = last_epoch + 1
        self._start(broker)

    @property
    def image(self) -> MetadataImage:
        return self._image

    @property
    def refusal(self) -> str | None:
        """Why every further change is refused, or None (O4)."""
        return self._refusal

    def watch(self, listener: Listener) -> None:
        self._listeners.append(listener)

    async def create_topics(
        self, wanted: Sequence[NewTopic], *, validate_only: bool
    ) -> list[TopicInfo | RequestError]:
        defaults = self._defaults()
        count = sum(_partitions_wanted(topic, defaults) for topic in wanted)
        if count > PARTITIONS_AT_ONCE_MAX:
            return [_too_many(count) for _ in wanted]

        async def work() -> list[TopicInfo | RequestError]:
            draft = self._draft()
            answers = [self._create(draft, topic, defaults) for topic in wanted]
            await self._finish(draft, validate_only=validate_only)
            return answers

        return await self._run(work)

    async def delete_topics(self, topics: Sequence[str]) -> list[RequestError | None]:
        async def work() -> list[RequestError | None]:
            draft = self._draft()
            answers = [self._delete(draft, name) for name in topics]
            await self._finish(draft)
            return answers

        return await self._run(work)

    async def create_partitions(
        self, wanted: Sequence[NewPartitions], *, validate_only: bool
    ) -> list[RequestError | None]:
        async def work() -> list[RequestError | None]:
            draft = self._draft()
            count = sum(_partitions_to_add(draft.image, one) for one in wanted)
            if count > PARTITIONS_AT_ONCE_MAX:
                return [_too_many(count) for _ in wanted]
            answers = [self._add_partitions(draft, one) for one in wanted]
            await self._finish(draft, validate_only=validate_only)
            return answers

        return await self._run(work)

    async def change_configs(
        self, changes: Sequence[ConfigChange], *, validate_only: bool
    ) -> list[RequestError | None]:
        async def work() -> list[RequestError | None]:
            draft = self._draft()
            answers = [self._change(draft, one) for one in changes]
            await self._finish(draft, validate_only=validate_only)
            return answers

        return await self._run(work)

    async def take_producer_ids(self) -> range:
        async def work() -> range:
            draft = self._draft()
            outcome = draft.apply(TakeProducerIds(_PRODUCER_IDS_AT_ONCE))
            if refused := _error_of(outcome):
                raise refused
            await self._finish(draft)
            return outcome.producer_ids or range(0)

        return await self._run(work)

    # ── One wish ──────────────────────────────────────────────────────────────────────────────

    def _create(
        self, draft: Draft, wanted: NewTopic, defaults: TopicDefaults
    ) -> TopicInfo | RequestError:
        topic_id = self._draw_topic_id()
        command = CreateTopic(wanted, topic_id, defaults, seed=topic_id.int & _SEED_MASK)
        image, outcome = apply(draft.image, command)
        refused = _error_of(outcome)
        if refused is not None and refused.code in _NAME_REFUSALS:
            return refused
        # Kafka looks at the options before it counts replicas. Where there are none, there is
        # nothing to look at: the node obeys its own already.
        if wanted.configs:
            refused = self._config_problem("topic", wanted.name, wanted.configs) or refused
        if refused is not None:
            return refused
        draft.keep(image, outcome)
        return image.topics[wanted.name]

    def _delete(self, draft: Draft, name: str) -> RequestError | None:
        topic = draft.image.topic(name)
        if topic is None:
            return RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return _error_of(draft.apply(DeleteTopic(name, topic.topic_id)))

    def _add_partitions(self, draft: Draft, wanted: NewPartitions) -> RequestError | None:
        topic = draft.image.topic(wanted.topic)
        if topic is None:
            return RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        seed = self._new_uuid().int & _SEED_MASK
        return _error_of(draft.apply(CreatePartitions(wanted, topic.topic_id, seed)))

    def _change(self, draft: Draft, change: ConfigChange) -> RequestError | None:
        command = ChangeConfigs(change)
        image, outcome = apply(draft.image, command)
        refused = _error_of(outcome)
        if refused is None:
            configs = configs_after(draft.image, command)
            refused = self._config_problem(change.kind, change.name, configs)
        if refused is None:
            draft.keep(image, outcome)
        return refused

    def _config_problem(
        self, kind: ConfigKind, name: str, configs: Mapping[str, str]
    ) -> RequestError | None:
        try:
            self._check_configs(kind, name, configs)
        except ConfigError as error:
            return RequestError(ErrorCode.INVALID_CONFIG, " ".join(error.problems))
        return None

    def _draw_topic_id(self) -> UUID:
        for _ in range(_DRAWS_MAX):
            drawn = self._new_uuid()
            if is_usable_topic_id(drawn) and drawn not in self._image.topic_names:
                return drawn
        ensure(False, "new ids are random")
        raise AssertionError

    # ── Turns, commits, listeners ─────────────────────────────────────────────────────────────

    async def _run(self, work: Callable[[], Awaitable[T]]) -> T:
        """Do the work when its turn comes, to its end, also when the caller is gone by then."""

        async def in_turn() -> T:
            async with self._turn:
                self._require_store()
                return await work()

        task = asyncio.ensure_future(in_turn())
        self._at_work.add(task)
        task.add_done_callback(self._settle)
        return await asyncio.shield(task)

    def _settle(self, task: asyncio.Task[object]) -> None:
        self._at_work.discard(task)
        # Looked at, or the loop would complain of an error whose caller is gone.
        if not task.cancelled():
            task.exception()

    async def _finish(self, draft: Draft, *, validate_only: bool = False) -> None:
        if validate_only or draft.image is self._image:
            return
        changes = draft.changes()
        try:
            await asyncio.to_thread(self._store.commit, changes)
        except (OSError, StorageError) as error:
            self._refusal = f"The metadata could not be stored: {error}"
            raise StorageError(self._refusal) from error
        self._image = draft.image
        await self._tell(draft.image)

    async def _tell(self, image: MetadataImage) -> None:
        failed: Exception | None = None
        for listener in tuple(self._listeners):
            try:
                await listener(image)
            except (OSError, StorageError) as error:
                failed = error
        if failed is not None:
            sentence = f"The change is made, but this node could not follow it: {failed}"
            raise StorageError(sentence) from failed

    def _require_store(self) -> None:
        if self._refusal is not None:
            raise StorageError(self._refusal)

    def _draft(self) -> Draft:
        return Draft(self._image, self.broker_epoch)

    def _start(self, broker: BrokerInfo) -> None:
        draft = self._draft()
        draft.apply(StartLeading(broker.broker_id))
        try:
            self._store.commit(draft.changes())
        except OSError as error:
            raise StorageError(f"The metadata could not be stored: {error}") from error
        self._image = draft.image


def _partitions_wanted(topic: NewTopic, defaults: TopicDefaults) -> int:
    if topic.assignments:
        return len(topic.assignments)
    return defaults.partitions if topic.partitions is None else max(topic.partitions, 0)


def _partitions_to_add(image: MetadataImage, wanted: NewPartitions) -> int:
    topic = image.topic(wanted.topic)
    return 0 if topic is None else max(wanted.count - len(topic.partitions), 0)


def _too_many(count: int) -> RequestError:
    return RequestError(
        ErrorCode.POLICY_VIOLATION,
        f"One request makes at most {PARTITIONS_AT_ONCE_MAX} partitions, not {count}.",
    )


def _error_of(outcome: Outcome) -> RequestError | None:
    refusal = outcome.refusal
    return None if refusal is None else RequestError(refusal.code, refusal.sentence)
