"""A quorum's commands, sensible and absurd: what must hold after every one of them."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.controller.commands import Command, RegisterBroker, TakeOffice
from ottla.controller.delta import (
    NotFollowed,
    decode_delta,
    delta_between,
    encode_delta,
    follow,
    follow_whole,
)
from ottla.controller.election import min_insync_of
from ottla.controller.image import ClusterDefaults, MetadataImage
from ottla.controller.machine import MetadataMachine
from ottla.controller.proposal import NO_REQUEST, Proposal, RequestId, encode_proposal
from ottla.controller.replay import apply_bytes, first_state
from ottla.controller.snapshot import decode_image, decode_state, encode_image, encode_state
from ottla.proto.errors import RequestError
from ottla.proto.ids import BrokerId
from tests.unit.controller.cluster import Cluster
from tests.unit.controller.metadata import commands, quorum_commands

# ── Histories ─────────────────────────────────────────────────────────────────────────────────
# A step of a history is a wish of somebody who knows the cluster, or anything at all.

_numbers = st.integers(1, 4)
_anything = commands | quorum_commands
_steps = st.one_of(
    st.tuples(st.just("start"), _numbers),
    st.tuples(st.just("crash"), _numbers),
    st.tuples(st.just("fence"), _numbers),
    st.tuples(st.just("unfence"), _numbers),
    st.tuples(st.just("stop"), _numbers),
    st.tuples(st.just("create"), st.lists(_numbers, min_size=1, max_size=3, unique=True)),
    st.tuples(st.just("isr"), st.lists(_numbers, unique=True)),
    st.tuples(st.just("elect"), st.sampled_from(["preferred", "unclean"])),
    st.tuples(st.just("minimum"), _numbers),
    st.tuples(st.just("office"), _numbers),
    st.tuples(st.just("bytes"), st.binary(max_size=40)),
    st.tuples(st.just("anything"), _anything),
)
_histories = st.lists(_steps, max_size=25)


def _cluster() -> Cluster:
    cluster = Cluster(2)
    cluster.is_strict = False
    return cluster


def _play(cluster: Cluster, step: tuple[str, object]) -> None:
    kind, what = step
    match what:
        case int():
            _play_number(cluster, kind, what)
        case str():
            cluster.elect(what)  # type: ignore[arg-type]
        case bytes():
            cluster.feed(what)
        case list() if kind == "create":
            there = [one for one in what if BrokerId(one) in cluster.image.brokers]
            if any(cluster.image.is_active(BrokerId(one)) for one in there):
                cluster.create(there, there[::-1], name=f"t{cluster.made}")
        case list():
            _play_isr(cluster, what)
        case _:
            _play_anything(cluster, what)  # type: ignore[arg-type]


def _play_number(cluster: Cluster, kind: str, number: int) -> None:
    is_known = BrokerId(number) in cluster.image.brokers
    if kind == "office":
        cluster.take_office(number, ClusterDefaults(min_insync_replicas=number))
    elif kind == "crash" or (kind == "start" and not is_known):
        cluster.register(number, directory=number, boot=1 + cluster.starts % 2)
    elif kind == "minimum":
        for name in list(cluster.image.topics):
            cluster.configure(name, min__insync__replicas=number)
    elif is_known and kind == "fence":
        cluster.fence(number)
    elif is_known and kind in ("start", "unfence"):
        cluster.unfence(number)
    elif is_known and kind == "stop":
        cluster.shut_down(number)


def _play_isr(cluster: Cluster, wanted: list[int]) -> None:
    for name, topic in cluster.image.topics.items():
        leader = topic.partitions[0].leader
        if leader is not None:
            cluster.alter(leader, cluster.change(sorted({leader, *wanted}), topic=name))


def _play_anything(cluster: Cluster, command: Command) -> None:
    is_first = isinstance(command, TakeOffice | RegisterBroker)
    request = RequestId(cluster.image.controller_id, cluster.office, cluster.sequence)
    cluster.sequence += 1
    try:
        data = encode_proposal(Proposal(NO_REQUEST if is_first else request, command))
    except RequestError:
        return
    if cluster.feed(data).epoch == cluster.image.controller_epoch:
        # Somebody took office. Who proposes from now on does so for them.
        cluster.office, cluster.sequence = cluster.image.controller_epoch, 0


def _without_count(image: MetadataImage) -> MetadataImage:
    return replace(image, version=0, digest=b"")


# ── Properties ────────────────────────────────────────────────────────────────────────────────


def _require_sound(before: MetadataImage, after: MetadataImage) -> None:
    assert after.version > before.version
    assert after.topic_names == {one.topic_id: name for name, one in after.topics.items()}
    for topic in after.topics.values():
        old = before.topic_by_id(topic.topic_id)
        for index, now in enumerate(topic.partitions):
            assert set(now.isr) <= set(now.replicas)
            assert all(after.is_active(one) for one in now.isr)
            assert now.leader in now.isr if now.leader is not None else not now.isr
            assert set(now.elr) <= set(now.replicas) - set(now.isr)
            assert not now.elr or len(now.isr) < min_insync_of(after, topic)
            if old is not None and index < len(old.partitions):
                was = old.partitions[index]
                assert now.leader_epoch >= was.leader_epoch
                assert now.partition_epoch >= was.partition_epoch
                assert now.leader == was.leader or now.leader_epoch > was.leader_epoch
                assert now == was or now.partition_epoch > was.partition_epoch
    for key, broker in after.brokers.items():
        was_there = before.brokers.get(key)
        assert was_there is None or broker.broker_epoch >= was_there.broker_epoch


@settings(deadline=None, max_examples=60)
@given(_histories)
def test_any_history_leaves_a_sound_image(history: list[tuple[str, object]]) -> None:
    cluster = _cluster()
    for step in history:
        before = cluster.image
        fed = len(cluster.log)
        _play(cluster, step)
        if len(cluster.log) > fed:
            _require_sound(before, cluster.image)
    assert cluster.image.version == len(cluster.log)


@settings(deadline=None, max_examples=60)
@given(_histories, st.integers(0, 100))
def test_rule_68_members_that_were_fed_the_same_agree_also_after_a_snapshot(
    history: list[tuple[str, object]], cut: int
) -> None:
    cluster = _cluster()
    for step in history:
        _play(cluster, step)
    fresh, restored = MetadataMachine(first_state("test")), MetadataMachine(first_state("test"))
    for index, data in enumerate(cluster.log):
        outcome = fresh.apply(data)
        if index == cut:
            restored.restore(fresh.snapshot())
        elif index > cut:
            assert restored.apply(data) == outcome
    assert fresh.state == cluster.machine.state
    assert fresh.image.digest == cluster.image.digest
    if cut < len(cluster.log):
        assert restored.state == fresh.state


@settings(deadline=None, max_examples=60)
@given(_histories)
def test_rule_68_a_command_that_is_committed_again_changes_nothing(
    history: list[tuple[str, object]],
) -> None:
    cluster = _cluster()
    for step in history:
        _play(cluster, step)
    machine = MetadataMachine(first_state("test"))
    for data in cluster.log:
        machine.apply(data)
        once = machine.state
        again = apply_bytes(once, data).state
        assert _without_count(again.image) == _without_count(once.image)
        assert again.sessions == once.sessions


@settings(deadline=None, max_examples=60)
@given(_histories, st.data())
def test_a_delta_leads_from_any_image_to_any_later_one(
    history: list[tuple[str, object]], data: st.DataObject
) -> None:
    cluster = _cluster()
    images = [cluster.image]
    for step in history:
        before, fed = cluster.image, len(cluster.log)
        _play(cluster, step)
        if len(cluster.log) == fed + 1:
            told = cluster.machine.last_delta
            assert told is not None
            assert cluster.machine.last_delta_bytes == encode_delta(told)
            assert follow(before, decode_delta(encode_delta(told))) == cluster.image
        images.append(cluster.image)
    first = data.draw(st.integers(0, len(images) - 1))
    last = data.draw(st.integers(first, len(images) - 1))
    one, other = images[first], images[last]
    delta = decode_delta(encode_delta(delta_between(one, other)))
    if one.version == other.version:
        assert follow(one, delta) is NotFollowed.OLD
        return
    assert follow(one, delta) == other
    assert follow(other, delta) is NotFollowed.OLD
    assert follow_whole(one, decode_image(encode_image(other))) == other
    assert follow_whole(other, one) is NotFollowed.OLD


@settings(deadline=None, max_examples=60)
@given(_histories)
def test_a_snapshot_is_read_as_it_was_written(history: list[tuple[str, object]]) -> None:
    cluster = _cluster()
    for step in history:
        _play(cluster, step)
    state = cluster.machine.state
    assert decode_state(encode_state(state)) == state
