"""Images and commands for tests of the controller."""

from __future__ import annotations

from collections.abc import Iterable

from hypothesis import strategies as st

from ottla.controller.commands import (
    AlterPartitions,
    BeginShutdown,
    ChangeConfigs,
    Command,
    CreatePartitions,
    CreateTopic,
    DeleteTopic,
    ElectLeaders,
    FenceBroker,
    ForgetBroker,
    PartitionChange,
    RegisterBroker,
    ReportDamage,
    SetFeatureLevel,
    TakeOffice,
    TakeProducerIds,
    UnfenceBroker,
)
from ottla.controller.image import (
    ALL_BROKERS,
    BrokerInfo,
    ClientEndpoint,
    ClusterDefaults,
    MetadataImage,
)
from ottla.controller.port import ConfigChange, NewPartitions, NewTopic, TopicDefaults
from ottla.proto.ids import INT64_MAX, BrokerId, LeaderEpoch
from ottla.proto.kafka.uuids import UUID

ONE_OF_EACH = TopicDefaults(partitions=1, replication_factor=1)


def brokers(count: int, racks: Iterable[str | None] = (None,)) -> list[BrokerInfo]:
    """Return brokers 1, 2, …, dealt out to the racks in turn."""
    turns = list(racks)
    return [
        BrokerInfo(BrokerId(number), f"host-{number}", 9092, turns[number % len(turns)])
        for number in range(1, count + 1)
    ]


def image_of(count: int = 3) -> MetadataImage:
    """Return an image without topics."""
    known = {broker.broker_id: broker for broker in brokers(count)}
    return MetadataImage(version=0, cluster_id="test", controller_id=BrokerId(1), brokers=known)


def topic_id(number: int) -> UUID:
    return UUID(int=(number + 1) << 8)


def create(
    name: str,
    partitions: int | None = 1,
    replication_factor: int | None = 1,
    *,
    number: int = 1,
    assignments: dict[int, tuple[BrokerId, ...]] | None = None,
    defaults: TopicDefaults = ONE_OF_EACH,
) -> CreateTopic:
    wanted = NewTopic(name, partitions, replication_factor, assignments or {})
    return CreateTopic(wanted, topic_id(number), defaults, seed=number)


# ── Anything that could be asked for, sensible or not ─────────────────────────────────────────

_ids = st.integers(0, 4).map(topic_id) | st.integers(0, 2**128 - 1).map(lambda n: UUID(int=n))
_names = st.sampled_from(["a", "b", "a.b", "a_b", "", ".", "..", "a/b", "é", "x" * 250]) | st.text()
_brokers = st.integers(-2, 5).map(BrokerId)
_replicas = st.lists(_brokers, max_size=4).map(tuple)
_counts = st.integers(-3, 12) | st.sampled_from([10_001, 10**9, 2**31 - 1, -(2**31)])
_seeds = st.integers(-(2**70), 2**70)
_options = st.dictionaries(st.sampled_from(["x", "y", "z"]), st.text(max_size=3), max_size=3)
_defaults = st.builds(TopicDefaults, _counts, _counts)
_new_topics = st.builds(
    NewTopic,
    _names,
    st.none() | _counts,
    st.none() | _counts,
    st.just({}) | st.dictionaries(st.integers(-1, 3), _replicas, max_size=3),
    _options,
)
_new_partitions = st.builds(
    NewPartitions, _names, _counts, st.none() | st.lists(_replicas, max_size=3).map(tuple)
)
_targets = _names | st.sampled_from([ALL_BROKERS, "1", "2", "9"])
_config_changes = st.builds(
    ConfigChange,
    st.sampled_from(["topic", "broker"]),
    _targets,
    _options,
    st.frozensets(st.sampled_from(["x", "y", "q"])),
    st.booleans(),
)
_epochs = st.integers(-2, 40)
_sets_of_partitions = st.dictionaries(
    _ids, st.lists(st.integers(0, 6), unique=True).map(sorted).map(tuple), max_size=2
)
_changes = st.builds(
    PartitionChange,
    _ids,
    st.integers(-1, 3),
    st.integers(-1, 3).map(LeaderEpoch),
    st.integers(-1, 6),
    st.lists(st.tuples(_brokers, st.just(-1) | _epochs), max_size=4).map(tuple),
    st.booleans(),
    st.booleans(),
)
_endpoints = st.builds(
    ClientEndpoint, st.sampled_from(["INSIDE", "OUTSIDE"]), st.just("host"), st.integers(0, 70_000)
)
_registrations = st.builds(
    RegisterBroker,
    st.sampled_from(["test", "other"]),
    _brokers,
    _ids,
    _epochs,
    _ids,
    _ids,
    _epochs,
    st.just("host"),
    st.integers(0, 70_000),
    st.just("host"),
    st.integers(0, 70_000),
    st.none() | st.sampled_from(["a", "b"]),
    st.integers(0, 1),
    st.lists(_endpoints, max_size=2).map(tuple),
)
_defaults_of_clusters = st.builds(ClusterDefaults, st.integers(-1, 4), st.booleans(), st.booleans())
# What only a quorum is asked for.
quorum_commands: st.SearchStrategy[Command] = st.one_of(
    st.builds(TakeOffice, _brokers, _epochs, _defaults_of_clusters),
    _registrations,
    st.builds(FenceBroker, _brokers, _epochs),
    st.builds(UnfenceBroker, _brokers, _epochs, _epochs, _sets_of_partitions),
    st.builds(ReportDamage, _brokers, _epochs, _sets_of_partitions),
    st.builds(BeginShutdown, _brokers, _epochs),
    st.builds(ForgetBroker, _brokers, _epochs),
    st.builds(AlterPartitions, _brokers, _epochs, st.lists(_changes, max_size=3).map(tuple)),
    st.builds(
        ElectLeaders, st.sampled_from(["preferred", "unclean"]), st.none() | _sets_of_partitions
    ),
    st.builds(SetFeatureLevel, st.integers(-1, 3)),
)
commands: st.SearchStrategy[Command] = st.one_of(
    st.builds(CreateTopic, _new_topics, _ids, _defaults, _seeds),
    st.builds(DeleteTopic, _names, _ids),
    st.builds(CreatePartitions, _new_partitions, _ids, _seeds),
    st.builds(ChangeConfigs, _config_changes),
    st.builds(TakeProducerIds, st.integers(-1, 2000) | st.just(INT64_MAX)),
)
