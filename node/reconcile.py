"""Makes the partitions on this broker what the metadata says they are.

The stage manager reads the new programme and moves only what has changed: logs are made for new
partitions, removed for deleted ones, and obey changed options from the next batch on. Replicas lead
and follow as the image says, and followers are fetched for from whoever leads.

Y1  a partition whose log is lost is not begun anew: an empty log would look like the truth
Y2  what lies in the data directory and in no metadata is set aside, not removed
Y3  who could not follow an image says so, and tries again with the next
Y4  where somebody writes or waits is led and followed first; the others take their turn a few at a
    time, and leave half of the time to those who wait, but for no longer than a moment; whom
    somebody asks for in that moment has its turn at once

Not here: who decides the metadata (the controller), and how a log is made (`replication`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Final, Protocol

from ottla.controller.election import is_fsync
from ottla.controller.image import ClusterDefaults, MetadataImage, PartitionInfo, TopicInfo
from ottla.node.logs import logger
from ottla.node.metrics import Metrics
from ottla.node.options import NodeOptions
from ottla.node.views import Views, brokers_differ
from ottla.proto.errors import StorageError
from ottla.proto.ids import BrokerId, TopicPartition
from ottla.replication.replica import Replica
from ottla.replication.replicas import Removal, Replicas
from ottla.replication.settings import LogSettings

_log = logger("node.reconcile")

# So many partitions lead or follow before others have their turn on the loop: what they are told
# has to reach other brokers, and answers must leave.
_AT_ONCE: Final = 64
# For so long altogether those where nobody writes give way to those where somebody does: what is
# learnt meanwhile waits for all of them.
_GIVE_WAY_S: Final = 0.15


class Fetching(Protocol):
    """Fetches for the replicas that follow: `Fetchers`."""

    def follow(self, replica: Replica, leader: BrokerId) -> None: ...
    def leave(self, replica: Replica) -> None: ...
    def obey(self, image: MetadataImage) -> None: ...


class Reconcile:
    """Obeys images, one after another."""

    def __init__(
        self,
        node_id: BrokerId,
        replicas: Replicas,
        options: NodeOptions,
        metrics: Metrics,
        fetchers: Fetching,
    ) -> None:
        self._node_id: Final = node_id
        self._replicas: Final = replicas
        self._fetchers: Final = fetchers
        self._options: Final = options
        self._metrics: Final = metrics
        self._before: MetadataImage | None = None
        self._topics: Mapping[str, TopicInfo] = {}
        self._defaults = ClusterDefaults()
        self._has_begun = False
        # What the logs of each topic were last told to go by.
        self._settings: dict[str, LogSettings] = {}
        # Topics of which not every log could be made.
        self._behind: set[str] = set()
        # Whose turn has not come yet, and how they are to be placed.
        self._pending: dict[TopicPartition, PartitionInfo] = {}
        self._views: Views | None = None

    async def begin(self, image: MetadataImage, damaged: Mapping[TopicPartition, str]) -> None:
        """Obey the first image. `damaged` are the partitions that the start could not trust."""
        manager = self._replicas.manager
        for partition, reason in damaged.items():
            _log.error("partition_damaged", partition=str(partition), reason=reason)
            if partition in manager.logs:
                continue
            if _is_in(image, partition):
                self._replicas.lose(partition, reason)
            else:
                # Deleted since, and its files are gone anyway: nobody shall inherit its record.
                manager.forget(partition)
        try:
            await self.obey(image)
        except StorageError as error:
            # What can be served is; the rest says why it is not.
            _log.error("start_incomplete", error=str(error))
        self._has_begun = True
        for stray in self._replicas.strays():
            name = manager.set_aside(stray)
            _log.error("stray_partition_set_aside", partition=str(stray), directory=name)

    async def obey(self, image: MetadataImage) -> None:
        """Make what is here equal to what the image says. Called in the order of images.

        Raises `StorageError` if that did not work out, after everything was tried (Y3).
        """
        before, self._topics = self._topics, image.topics
        # Leaders go by who is alive, and by what the topics are told.
        is_all_new = brokers_differ(self._before, image)
        self._before = image
        has_new_defaults, self._defaults = image.defaults != self._defaults, image.defaults
        if self._options.adopt(image):
            for warning in self._options.warnings:
                _log.warning("option_ignored", reason=warning)
            has_new_defaults = True
        if has_new_defaults:
            is_all_new = True
        gone = [
            topic
            for name, topic in before.items()
            if (now := image.topics.get(name)) is None or now.topic_id != topic.topic_id
        ]
        changed = [
            topic
            for name, topic in image.topics.items()
            if is_all_new or before.get(name) is not topic or name in self._behind
        ]
        for topic in gone:
            self._settings.pop(topic.name, None)
        self._fetchers.obey(image)
        self._tell(before, gone, changed)
        removal = self._take_out(gone)
        wanted = self._wanted(changed, {} if is_all_new else before)
        # First what needs nothing but a word: others wait for a leader, and making and removing
        # logs takes long.
        self._adopt_settings(image, changed, known=self._settings)
        new = await self._place_at_hand(image, wanted)
        failures = [await self._remove(removal), await self._keep(image, changed, new)]
        if len(image.topics) < len(before):
            self._metrics.keep_topics(image.topics)
        for failure in failures:
            if failure is not None:
                raise failure

    def _tell(
        self,
        before: Mapping[str, TopicInfo],
        gone: Sequence[TopicInfo],
        changed: Sequence[TopicInfo],
    ) -> None:
        if not self._has_begun:
            # At a start everything is new to us, and nothing to anybody else.
            return
        for topic in gone:
            _log.info("topic_deleted", topic=topic.name, partitions=len(topic.partitions))
        for topic in changed:
            was = before.get(topic.name)
            facts = {"topic": topic.name, "partitions": len(topic.partitions)}
            if was is None or was.topic_id != topic.topic_id:
                _log.info("topic_created", **facts, **topic.configs)
            elif was.configs != topic.configs:
                _log.info("topic_options_changed", **facts, **topic.configs)
            elif len(was.partitions) != len(topic.partitions):
                _log.info("topic_grown", **facts)

    def _wanted(
        self, topics: Sequence[TopicInfo], known: Mapping[str, TopicInfo]
    ) -> dict[TopicPartition, PartitionInfo]:
        """Return what is to be here, but for what is just as it was in `known`."""
        wanted = dict[TopicPartition, PartitionInfo]()
        for topic in topics:
            same = self._same_in(known.get(topic.name), topic)
            for index, info in enumerate(topic.partitions):
                if self._node_id in info.replicas and same.get(index) != info:
                    wanted[TopicPartition(topic.name, index)] = info
        return wanted

    async def _place_at_hand(
        self, image: MetadataImage, wanted: Mapping[TopicPartition, PartitionInfo]
    ) -> dict[TopicPartition, PartitionInfo]:
        """Lead and follow what has its log; return the rest."""
        rest = dict[TopicPartition, PartitionInfo]()
        busy, idle = list[TopicPartition](), list[TopicPartition]()
        for partition, info in wanted.items():
            topic_id = image.topics[partition.topic].topic_id.bytes
            if self._replicas.is_at_hand(partition, topic_id):
                replica = self._replicas.get(partition.topic, partition.partition)
                (busy if replica is not None and replica.is_busy else idle).append(partition)
            else:
                rest[partition] = info
        self._views = Views.of(image)
        self._pending = {one: wanted[one] for one in (*busy, *idle)}
        await self._place_some(len(busy), give_way_s=0.0)
        # Nobody can have waited before the first image.
        has_waiting = self._has_begun and bool(busy)
        await self._place_some(len(idle), give_way_s=_GIVE_WAY_S * has_waiting)
        return rest

    async def _place_some(self, count: int, *, give_way_s: float) -> None:
        """Place a few at a time; rest as long as that took, up to so many seconds altogether."""
        loop = asyncio.get_running_loop()
        end = max(0, len(self._pending) - count)
        while len(self._pending) > end:
            began_s = loop.time()
            for partition in tuple(islice(self._pending, min(_AT_ONCE, len(self._pending) - end))):
                self.hurry(partition)
            rest_s = min(loop.time() - began_s, give_way_s)
            give_way_s -= rest_s
            await asyncio.sleep(rest_s)

    def hurry(self, partition: TopicPartition) -> None:
        """Place this one now, if its turn has not come yet: somebody has asked for it (Y4)."""
        info = self._pending.pop(partition, None)
        if info is not None and self._views is not None:
            topic = self._views.image.topics[partition.topic]
            self._place(self._views, topic, partition, info)

    async def _keep(
        self,
        image: MetadataImage,
        topics: Sequence[TopicInfo],
        new: Mapping[TopicPartition, PartitionInfo],
    ) -> StorageError | None:
        """Lead and follow what is new here, with logs for it."""
        ids = {one: image.topics[one.topic].topic_id.bytes for one in new}
        self._behind -= {topic.name for topic in topics}
        failure: StorageError | None = None
        try:
            await self._replicas.make(ids)
        except StorageError as error:
            _log.error("partitions_not_made", error=str(error))
            failure = error
        if new:
            self._adopt_settings(image, topics, known={})
        views = Views.of(image)
        for partition, info in new.items():
            if self._replicas.has_log(partition, ids[partition]):
                self._place(views, image.topics[partition.topic], partition, info)
            else:
                self._behind.add(partition.topic)
        return failure

    def _same_in(self, known: TopicInfo | None, topic: TopicInfo) -> Mapping[int, PartitionInfo]:
        """Return the partitions that need no look if they are as they were."""
        if known is None or topic.name in self._behind:
            return {}
        if (known.topic_id, known.configs) != (topic.topic_id, topic.configs):
            return {}
        return dict(enumerate(known.partitions))

    def _place(
        self, views: Views, topic: TopicInfo, partition: TopicPartition, info: PartitionInfo
    ) -> None:
        """Let a replica lead or follow, and be fetched for."""
        if info.leader == self._node_id:
            replica = self._replicas.lead(partition, views.partition(topic, info))
        else:
            replica = self._replicas.follow(
                partition,
                info.leader_epoch,
                info.leader,
                last_unclean_epoch=info.last_unclean_epoch,
            )
        if replica is None:
            return
        if replica.source is None:
            self._fetchers.leave(replica)
        else:
            self._fetchers.follow(replica, replica.source)

    def _take_out(self, topics: Sequence[TopicInfo]) -> Removal:
        """Serve and fetch these no more."""
        partitions = [
            TopicPartition(topic.name, index)
            for topic in topics
            for index in range(len(topic.partitions))
        ]
        for partition in partitions:
            replica = self._replicas.get(partition.topic, partition.partition)
            if replica is not None:
                self._fetchers.leave(replica)
        return self._replicas.take_out(partitions)

    async def _remove(self, removal: Removal) -> StorageError | None:
        try:
            await self._replicas.remove(removal)
        except StorageError as error:
            # Its directory is nobody's now, and is set aside at the next start.
            _log.error("partitions_not_removed", error=str(error))
            return error
        return None

    def _adopt_settings(
        self, image: MetadataImage, topics: Sequence[TopicInfo], *, known: Mapping[str, LogSettings]
    ) -> None:
        """Let the logs go by the options of their topics, but where `known` says that they do.

        The views of the same image come later: until then a leader goes by the stricter of both.
        """
        for topic in topics:
            settings = self._options.log_settings(topic.configs)
            # What "held" means must be the same on every replica, so it is the cluster's word.
            settings = replace(settings, fsync=is_fsync(image, topic))
            if known.get(topic.name) == settings:
                continue
            self._settings[topic.name] = settings
            for index, info in enumerate(topic.partitions):
                if self._node_id not in info.replicas:
                    continue
                log = self._replicas.manager.logs.get(TopicPartition(topic.name, index))
                if log is None or log.settings == settings:
                    continue
                log.adopt_settings(settings)
                replica = self._replicas.get(topic.name, index)
                if replica is not None:
                    replica.settings_changed()


def _is_in(image: MetadataImage, partition: TopicPartition) -> bool:
    topic = image.topic(partition.topic)
    return topic is not None and partition.partition < len(topic.partitions)
