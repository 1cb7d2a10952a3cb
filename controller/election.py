"""Who leads a partition, who is in sync with it, and who may lead it when nobody is.

The in-sync set and the leader follow from who is active; `settle` makes them right again after
anything has changed:

  1. who is not active leaves the in-sync set
  2. the leader stays if it is still in it; else the first replica in it leads (rule 16)
  3. with nobody in it, the first active replica that is *eligible* leads, alone in sync (rule 17)
  4. with no such replica there is no leader, unless the topic allows one that may lack records
  5. who left while fewer than the minimum stayed is eligible: as long as fewer are in sync the high
     watermark stands still (rule 29), so whoever was in sync when it stopped holds all below it

Step 5 is safe only together with rule 29, and neither may go without the other (rule 18).

Not here: which partitions are touched by what (`partitions.py`, `brokers.py`).

E1  leader ∈ isr ⊆ replicas ∩ active; elr ⊆ replicas − isr; no leader means nobody in sync
E2  the leader epoch grows by one with every change of the leader, also to none (rule 1)
E3  the partition epoch grows with every change; without one, the very same value is returned
E4  elr = ∅ while as many as the minimum are in sync
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TypeVar

from ottla.controller.image import ALL_BROKERS, MetadataImage, PartitionInfo, TopicInfo
from ottla.controller.names import is_internal
from ottla.proto.errors import ConfigError
from ottla.proto.ids import BrokerId, LeaderEpoch
from ottla.proto.options.option import Option
from ottla.proto.options.topic import (
    DURABILITY,
    MIN_INSYNC_REPLICAS,
    UNCLEAN_LEADER_ELECTION,
    effective_min_insync,
)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Terms:
    """What the elections of one topic go by."""

    # Before it is bounded by the number of replicas.
    min_insync: int
    is_unclean_allowed: bool
    active: frozenset[BrokerId]


def active_brokers(image: MetadataImage) -> frozenset[BrokerId]:
    return frozenset(key for key, broker in image.brokers.items() if broker.is_active)


def terms_of(image: MetadataImage, topic: TopicInfo, active: frozenset[BrokerId]) -> Terms:
    """Return what holds for a topic; `active` is given because it is the same for all of them."""
    defaults = image.defaults
    least = _option(image, topic, MIN_INSYNC_REPLICAS, defaults.min_insync_replicas)
    return Terms(
        min_insync=max(least, 1),
        # The topics of coordinators promise more than a topic can be told to give up (rule 64a).
        is_unclean_allowed=not is_internal(topic.name)
        and _option(image, topic, UNCLEAN_LEADER_ELECTION, defaults.is_unclean_allowed),
        active=active,
    )


def is_fsync(image: MetadataImage, topic: TopicInfo) -> bool:
    """Whether a replica of the topic counts only what it has synced."""
    if is_internal(topic.name):
        return True
    default = "fsync" if image.defaults.is_fsync else "pagecache"
    return _option(image, topic, DURABILITY, default) == "fsync"


def min_insync_of(image: MetadataImage, topic: TopicInfo) -> int:
    """Return how many must be in sync for acks=all and for a high watermark to move (rule 25).

    Leaders must go by this number and not by their own configuration, or rule 17 is not safe.
    """
    wanted = terms_of(image, topic, frozenset()).min_insync
    return effective_min_insync(wanted, replication_factor=topic.replication_factor)


def settle(
    partition: PartitionInfo,
    terms: Terms,
    *,
    isr: Collection[BrokerId] | None = None,
    lost: Collection[BrokerId] = (),
) -> PartitionInfo:
    """Return the partition as it is to be now that somebody came, left or changed the terms.

    `isr` is a new in-sync set that its leader asked for. `lost` may lack committed records: they
    are neither in sync nor eligible (any more), and are not elected uncleanly either.
    """
    wanted = partition.isr if isr is None else tuple(isr)
    chosen = _choose(
        partition.replicas,
        partition.isr,
        partition.elr,
        partition.leader,
        wanted,
        tuple(lost),
        terms,
    )
    return _moved(partition, *chosen)


# Thousands of partitions that a broker leaves have few different sets of brokers.
@lru_cache(1024)
def _choose(
    replicas: tuple[BrokerId, ...],
    isr: tuple[BrokerId, ...],
    elr: tuple[BrokerId, ...],
    leader: BrokerId | None,
    wanted: tuple[BrokerId, ...],
    lost: tuple[BrokerId, ...],
    terms: Terms,
) -> tuple[BrokerId | None, tuple[BrokerId, ...], tuple[BrokerId, ...], bool]:
    """Return who leads, who is in sync, who is eligible, and whether that is unclean."""
    able = [one for one in replicas if one in terms.active and one not in lost]
    synced = tuple(one for one in able if one in wanted)
    eligible = [
        one
        for one in replicas
        if one not in synced and one not in lost and (one in isr or one in elr)
    ]
    chosen = leader if leader in synced else next(iter(synced), None)
    is_unclean = False
    if chosen is None:
        chosen = next((one for one in eligible if one in terms.active), None)
        if chosen is None and terms.is_unclean_allowed:
            chosen = next(iter(able), None)
            is_unclean = chosen is not None
        synced = () if chosen is None else (chosen,)
    enough = effective_min_insync(terms.min_insync, replication_factor=len(replicas))
    has_enough = is_unclean or len(synced) >= enough
    left = () if has_enough else tuple(one for one in eligible if one != chosen)
    return chosen, synced, left, is_unclean


def prefer(partition: PartitionInfo, terms: Terms) -> PartitionInfo:
    """Return the partition led by its preferred leader, or the same if that is not in sync."""
    first = partition.replicas[0]
    if first not in partition.isr or first not in terms.active:
        return partition
    return _moved(partition, first, partition.isr, partition.elr)


def settle_uncleanly(partition: PartitionInfo, terms: Terms) -> PartitionInfo:
    """Return the partition led by anybody who is active: an operator's last resort."""
    return settle(partition, replace(terms, is_unclean_allowed=True))


def _moved(
    partition: PartitionInfo,
    leader: BrokerId | None,
    isr: tuple[BrokerId, ...],
    elr: tuple[BrokerId, ...],
    is_unclean: bool = False,
) -> PartitionInfo:
    is_new_leader = leader != partition.leader
    if not is_new_leader and isr == partition.isr and elr == partition.elr:
        return partition
    leader_epoch = LeaderEpoch(partition.leader_epoch + is_new_leader)
    return PartitionInfo(
        replicas=partition.replicas,
        isr=isr,
        leader=leader,
        leader_epoch=leader_epoch,
        partition_epoch=partition.partition_epoch + 1,
        elr=elr,
        is_durable=partition.is_durable,
        is_recovering=is_unclean or partition.is_recovering,
        last_unclean_epoch=leader_epoch if is_unclean else partition.last_unclean_epoch,
    )


def _option(image: MetadataImage, topic: TopicInfo, option: Option[T], default: T) -> T:
    """Return the topic's own value, else the one for all brokers, else the default."""
    for_all = image.broker_configs.get(ALL_BROKERS, {})
    told = [topic.configs.get(option.name)]
    told += [for_all.get(synonym.name) for synonym in option.synonyms]
    for text in told:
        if text is not None:
            try:
                return option.parse(text)
            except ConfigError:
                # It was checked before it was proposed; here nothing may be raised. What a value
                # means must stay the same for as long as there are logs with it (README.md).
                continue
    return default
