"""Makes the partitions on this broker what the metadata says they are.

The stage manager reads the new programme and moves only what has changed: logs are made for new
partitions, removed for deleted ones, and obey changed options from the next batch on.

Y1  a partition whose log is lost is not begun anew: an empty log would look like the truth
Y2  what lies in the data directory and in no metadata is set aside, not removed

Not here: who decides the metadata (the controller), and how a log is made (`replication`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from ottla.controller.image import MetadataImage, TopicInfo
from ottla.node.logs import logger
from ottla.node.metrics import Metrics
from ottla.node.options import NodeOptions
from ottla.proto.errors import StorageError
from ottla.proto.ids import BrokerId, TopicPartition
from ottla.replication.replicas import Replicas

_log = logger("node.reconcile")


class Reconcile:
    """Obeys images, one after another."""

    def __init__(
        self,
        node_id: BrokerId,
        replicas: Replicas,
        options: NodeOptions,
        metrics: Metrics,
    ) -> None:
        self._node_id: Final = node_id
        self._replicas: Final = replicas
        self._options: Final = options
        self._metrics: Final = metrics
        self._topics: Mapping[str, TopicInfo] = {}

    async def begin(self, image: MetadataImage, damaged: Mapping[TopicPartition, str]) -> None:
        """Obey the first image. `damaged` are the partitions that the start could not trust."""
        for partition, reason in damaged.items():
            _log.error("partition_damaged", partition=str(partition), reason=reason)
            if partition not in self._replicas.manager.logs:
                self._replicas.lose(partition, reason)
        await self.obey(image)
        for stray in self._replicas.strays():
            name = self._replicas.manager.set_aside(stray)
            _log.error("stray_partition_set_aside", partition=str(stray), directory=name)

    async def obey(self, image: MetadataImage) -> None:
        """Make what is here equal to what the image says. Called in the order of images."""
        before, self._topics = self._topics, image.topics
        if self._options.adopt(image):
            for warning in self._options.warnings:
                _log.warning("option_ignored", reason=warning)
            self._adopt_settings(tuple(image.topics.values()))
        for name, topic in before.items():
            now = image.topics.get(name)
            if now is None or now.topic_id != topic.topic_id:
                await self._remove(topic)
        changed = [topic for name, topic in image.topics.items() if before.get(name) is not topic]
        await self._keep(changed)
        if len(image.topics) < len(before):
            self._metrics.keep_topics(image.topics)

    async def _keep(self, topics: Sequence[TopicInfo]) -> None:
        """Lead what is to be led here, with logs for what is new."""
        epochs = {
            TopicPartition(topic.name, index): info.leader_epoch
            for topic in topics
            for index, info in enumerate(topic.partitions)
            if self._node_id in info.replicas
        }
        try:
            await self._replicas.make(tuple(epochs))
        except StorageError as error:
            _log.error("partitions_not_made", error=str(error))
            for partition in epochs:
                if partition not in self._replicas.manager.logs:
                    self._replicas.lose(partition, str(error))
        for partition, epoch in epochs.items():
            if not self._replicas.is_lost(partition):
                self._replicas.lead(partition, epoch)
        self._adopt_settings(topics)

    async def _remove(self, topic: TopicInfo) -> None:
        for index in range(len(topic.partitions)):
            partition = TopicPartition(topic.name, index)
            try:
                await self._replicas.remove(partition)
            except StorageError as error:
                _log.error("partition_not_removed", partition=str(partition), error=str(error))

    def _adopt_settings(self, topics: Sequence[TopicInfo]) -> None:
        for topic in topics:
            settings = self._options.log_settings(topic.configs)
            for index in range(len(topic.partitions)):
                replica = self._replicas.get(topic.name, index)
                if replica is not None and replica.log.settings != settings:
                    replica.log.adopt_settings(settings)
