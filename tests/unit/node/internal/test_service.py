"""Brokers and a controller over real sockets: the service `/ottla.Cluster` and its door."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any

import grpc
import pytest

from ottla.controller.commands import CreateTopic, FenceBroker, TakeProducerIds
from ottla.controller.door import (
    BeatAnswer,
    Denied,
    DoorClosedError,
    NotActive,
    OtherClusterError,
    QuorumView,
    Unresolved,
)
from ottla.controller.outcome import Outcome
from ottla.controller.port import NewTopic, TopicDefaults
from ottla.controller.quorum.port import Role
from ottla.controller.sightings import Verdict
from ottla.node.internal import service
from ottla.node.internal.service import SERVICE
from ottla.node.internal.tls import NOBODY, Authenticated
from ottla.proto.errors import ErrorCode
from ottla.proto.gen import cluster_pb2 as pb
from tests.unit.controller.cluster import CLUSTER_ID
from tests.unit.controller.controllers import Broker
from tests.unit.controller.metadata import topic_id
from tests.unit.node.internal.certificates import Authority
from tests.unit.node.internal.site import Site, followed, now_ms, on_site, started

DEFAULTS = TopicDefaults(partitions=1, replication_factor=1)


# ── Brokers ───────────────────────────────────────────────────────────────────────────────────


def test_a_broker_registers_beats_and_is_unfenced() -> None:
    async def story(site: Site) -> None:
        broker = Broker(5, site.door())
        assert await broker.register() == 2
        assert await broker.register() == 2
        assert await broker.beat(is_recovered=False) == BeatAnswer(is_fenced=True)
        await broker.start()
        assert not site.is_fenced(5)
        assert await broker.beat() == BeatAnswer(is_fenced=False)
        known = site.feed.image.brokers[broker.number]
        assert (known.host, known.incarnation) == (broker.wanted.host, broker.wanted.incarnation)

    on_site(story)


def test_rule_11a_a_stream_that_breaks_and_a_refused_probe_fence_at_once() -> None:
    async def story(site: Site) -> None:
        brokers = await started(site, 1, 2, 3)
        site.verdicts[2] = Verdict.REFUSED
        start = perf_counter()
        await brokers[2].line.close(is_goodbye=False)
        await site.until(lambda: site.is_fenced(2))
        print(f"fenced {1000 * (perf_counter() - start):.1f} ms after its stream broke")
        assert site.probed == [(2, "127.0.0.1")]
        assert [site.is_fenced(number) for number in (1, 3)] == [False, False]

    on_site(story)


def test_rule_11a_a_stream_that_breaks_and_a_live_process_fence_nobody() -> None:
    async def story(site: Site) -> None:
        brokers = await started(site, 1, 2, 3)
        await brokers[2].line.close(is_goodbye=False)
        await site.until(lambda: bool(site.probed))
        with pytest.raises(DoorClosedError, match="is broken"):
            await brokers[2].beat()
        brokers[2].line = brokers[2].door.open_line()
        assert await brokers[2].beat() == BeatAnswer(is_fenced=False)

    on_site(story)


def test_after_a_goodbye_nobody_probes() -> None:
    async def story(site: Site) -> None:
        brokers = await started(site, 1, 2)
        await brokers[2].line.close(is_goodbye=True)
        # The next line is served behind the end of the first.
        await brokers[1].beat()
        assert not site.probed
        await Broker(3, site.door()).line.close(is_goodbye=True)

    on_site(story)


def test_rule_10_silence_fences_after_the_session_and_not_before() -> None:
    async def story(site: Site) -> None:
        brokers = await started(site, 1, 2)
        sent_ms = now_ms()
        await brokers[2].beat()
        while not site.is_fenced(2):
            await brokers[1].beat()
            await asyncio.sleep(0.02)
        assert now_ms() - sent_ms >= 500
        assert not site.probed
        # It is told of when the command is known to be committed, a moment after it was obeyed.
        await site.until(lambda: bool(site.events("broker_fenced")))
        assert site.events("broker_fenced")[0]["why"] == "it was silent for a whole session"

    on_site(story, session_ms=500)


def test_rule_7_the_id_of_a_live_broker_is_refused_over_the_wire() -> None:
    async def story(site: Site) -> None:
        await started(site, 1)
        answer = await site.door().register(Broker(1, site.door(), incarnation=9).wanted)
        assert answer == Denied(
            ErrorCode.DUPLICATE_BROKER_REGISTRATION, "Another process is this broker."
        )
        wanted = replace(Broker(2, site.door()).wanted, cluster_id="elsewhere")
        answer = await site.door(cluster_id="elsewhere").register(wanted)
        assert isinstance(answer, Denied)
        assert answer.code is ErrorCode.INCONSISTENT_CLUSTER_ID

    on_site(story)


# ── Proposals ─────────────────────────────────────────────────────────────────────────────────


def test_rule_68_a_proposal_that_is_sent_again_is_done_once() -> None:
    async def story(site: Site) -> None:
        broker = (await started(site, 4))[4]
        request = broker.request(TakeProducerIds(10))
        first = await broker.door.propose(request, client="c")
        again = await site.door().propose(request, client="c")
        assert isinstance(first, Outcome)
        assert first == again
        assert first.producer_ids == range(10)
        assert await broker.door.read_version() == site.feed.image.version
        answer = await broker.door.propose(broker.request(FenceBroker(broker.number, 2)), client="")
        assert isinstance(answer, Denied)
        assert answer.code is ErrorCode.INVALID_REQUEST

    on_site(story)


def test_when_the_office_ends_meanwhile_nobody_knows_and_then_nobody_is_active() -> None:
    async def story(site: Site) -> None:
        broker = (await started(site, 4))[4]
        site.quorum.is_holding = True
        request = broker.request(TakeProducerIds(10))
        asked = asyncio.ensure_future(broker.door.propose(request, client="c"))
        await site.quorum.held.wait()
        site.controller.on_status(replace(site.member.status(), role=Role.FOLLOWER, leader=3))
        assert isinstance(await asked, Unresolved)
        assert isinstance(await broker.beat(), NotActive)
        assert isinstance(await broker.door.propose(request, client="c"), NotActive)
        assert isinstance(await broker.door.read_version(), NotActive)
        assert isinstance(await broker.door.describe_quorum(), NotActive)
        assert isinstance(await broker.door.register(broker.wanted), NotActive)
        site.quorum.is_holding = False
        site.controller.on_status(site.member.status())
        await site.until(lambda: site.controller.is_active)
        answer = await broker.door.propose(request, client="c")
        assert isinstance(answer, Outcome)
        assert answer.producer_ids == range(10)

    on_site(story)


def test_the_quorum_is_described() -> None:
    async def story(site: Site) -> None:
        await started(site, 4)
        view = await site.door().describe_quorum()
        assert isinstance(view, QuorumView)
        assert view.status.voters == (1,)
        assert view.status.role is Role.LEADER
        assert list(view.observers) == [4]

    on_site(story)


# ── Following ─────────────────────────────────────────────────────────────────────────────────


def test_the_fencing_of_5000_partitions_reaches_a_follower_as_one_delta() -> None:
    async def story(site: Site) -> None:
        brokers = await started(site, 1, 2, 3)
        for number in range(100):
            wanted = NewTopic(f"topic-{number}", 50, 3)
            command = CreateTopic(wanted, topic_id(number), DEFAULTS, seed=7919 * number)
            answer = await brokers[1].door.propose(brokers[1].request(command), client="c")
            assert isinstance(answer, Outcome)
            assert answer.refusal is None
            if number % 5 == 0:
                await asyncio.gather(*(broker.beat() for broker in brokers.values()))
        stream = site.door().follow(-1, b"")
        image = await followed(stream, None)
        assert sum(len(topic.partitions) for topic in image.topics.values()) == 5000
        site.verdicts[2] = Verdict.REFUSED
        start = perf_counter()
        await brokers[2].line.close(is_goodbye=False)
        image = await followed(stream, image)
        took_ms = 1000 * (perf_counter() - start)
        print(f"5000 partitions: {took_ms:.0f} ms from the broken stream to the follower's image")
        assert image == site.feed.image
        assert image.brokers[brokers[2].number].is_fenced
        partitions = [one for topic in image.topics.values() for one in topic.partitions]
        assert all(one.leader in (1, 3) for one in partitions)

    on_site(story, session_ms=10_000)


def test_a_follower_that_does_not_read_is_given_an_image_when_it_does() -> None:
    async def story(site: Site) -> None:
        brokers = await started(site, 1)
        stream = site.door().follow(-1, b"")
        image = await followed(stream, None)
        long = {"x": "x" * 30_000}
        for number in range(300):
            wanted = NewTopic(f"topic-{number}", 1, 1, configs=long)
            request = brokers[1].request(CreateTopic(wanted, topic_id(number), DEFAULTS, seed=1))
            answer = await site.controller.propose(request, client="c")
            assert isinstance(answer, Outcome)
            assert answer.refusal is None
        before, pieces = site.feed.images_given, 0
        while image.version < site.feed.image.version:
            image, pieces = await followed(stream, image), pieces + 1
        print(f"a follower that did not read got 300 versions in {pieces} pieces")
        assert image == site.feed.image
        assert site.feed.images_given > before

    on_site(story, deltas_max=4, session_ms=10_000)


def test_a_follower_that_comes_back_is_given_what_it_lacks() -> None:
    async def story(site: Site) -> None:
        await started(site, 1)
        image = await followed(site.door().follow(-1, b""), None)
        await started(site, 2)
        stream = site.door().follow(image.version, image.digest)
        while image.version < site.feed.image.version:
            image = await followed(stream, image)
        assert image == site.feed.image
        assert site.feed.images_given == 1
        await site.controller.stop()
        with pytest.raises(DoorClosedError, match="UNAVAILABLE This controller is stopping"):
            await anext(stream)

    on_site(story)


# ── Who should not have asked ─────────────────────────────────────────────────────────────────


def test_whoever_means_another_node_or_cluster_is_told_so() -> None:
    async def story(site: Site) -> None:
        elsewhere = site.door(cluster_id="elsewhere")
        with pytest.raises(OtherClusterError, match="NOT_FOUND This is the cluster 'test'"):
            await elsewhere.read_version()
        with pytest.raises(OtherClusterError, match="and 'elsewhere' was meant"):
            await anext(elsewhere.follow(-1, b""))
        with pytest.raises(DoorClosedError, match="was meant"):
            await Broker(1, elsewhere).beat()
        with pytest.raises(DoorClosedError, match="This is node 1, and node '2' was meant"):
            await site.door(2).describe_quorum()
        assert isinstance(await site.door(cluster_id="").read_version(), int)

    on_site(story)


class Certificates:
    """Says of every caller that its certificate names this node."""

    def __init__(self, node_id: int) -> None:
        self.node_id = node_id

    def verified_node(self, context: Authenticated) -> int:
        found: Mapping[str, Iterable[bytes]] = context.auth_context()
        assert isinstance(found, Mapping)
        return self.node_id


def test_with_certificates_a_node_speaks_for_itself_only() -> None:
    async def story(site: Site) -> None:
        own = (await started(site, 2))[2]
        other = Broker(3, site.door())
        sentence = "PERMISSION_DENIED The certificate is that of node 2, which may not speak for"
        with pytest.raises(DoorClosedError, match=sentence):
            await other.register()
        other.epoch = own.epoch
        with pytest.raises(DoorClosedError, match=sentence):
            await other.beat()
        forged = Broker(3, site.door())
        forged.requests = type(own.requests)(forged.number, own.epoch) if own.requests else None
        answer = await own.door.propose(forged.request(TakeProducerIds(1)), client="c")
        assert answer == Denied(
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Node 2 may not propose in the name of node 3."
        )
        assert isinstance(
            await own.door.propose(own.request(TakeProducerIds(1)), client="c"), Outcome
        )

    on_site(story, verifier=Certificates(2))


def test_with_tls_a_broker_is_served_under_its_own_name_alone(tmp_path: Path) -> None:
    authority = Authority(tmp_path)

    async def story(site: Site) -> None:
        own = (await started(site, 2))[2]
        assert isinstance(await own.beat(), BeatAnswer)
        with pytest.raises(DoorClosedError, match="is that of node 2, which may not speak for"):
            await Broker(3, site.door()).register()
        assert (await followed(site.door().follow(-1, b""), None)).cluster_id == CLUSTER_ID

    on_site(story, tls=(authority.tls(1), authority.tls(2)))


def test_with_tls_a_stranger_and_a_wrong_address_are_closed_doors(tmp_path: Path) -> None:
    authority, foreign = Authority(tmp_path), Authority(tmp_path, "foreign")

    async def stranger(site: Site) -> None:
        with pytest.raises(DoorClosedError, match="UNAVAILABLE"):
            await site.door().read_version()

    on_site(stranger, tls=(authority.tls(1), foreign.tls(2)))
    # Its certificate is good, but it is not node 1 that answers there.
    on_site(stranger, tls=(authority.tls(3), authority.tls(2)))


def test_a_certificate_that_names_no_node_is_good_for_nothing() -> None:
    async def story(site: Site) -> None:
        with pytest.raises(DoorClosedError, match="The certificate names no node"):
            await site.door().read_version()
        with pytest.raises(DoorClosedError, match="The certificate names no node"):
            await anext(site.door().follow(-1, b""))
        with pytest.raises(DoorClosedError, match="The certificate names no node"):
            await Broker(1, site.door()).register()

    on_site(story, verifier=Certificates(NOBODY))


@pytest.mark.parametrize("method", ["Register", "Propose", "ReadVersion", "DescribeQuorum"])
@pytest.mark.parametrize("data", [b"\xff", b"\x08", b"\x80\x04K\x01."], ids=["ff", "cut", "pickle"])
def test_bytes_that_are_no_message_are_refused_and_the_next_call_is_served(
    method: str, data: bytes
) -> None:
    async def story(site: Site) -> None:
        call: Any = site.channels.to(1, site.address).unary_unary(f"/{SERVICE}/{method}")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call(data)
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert "no " in (caught.value.details() or "")
        assert isinstance(await site.door().read_version(), int)

    on_site(story)


async def _drained(call: Any) -> None:
    async for _ in call:
        continue


def _beat(broker_id: int) -> bytes:
    beat = pb.Beat(broker_id=broker_id, broker_epoch=1)
    return pb.Heartbeat(beat=beat).SerializeToString()


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ([b"\xff"], "no Heartbeat"),
        ([b""], "says nothing"),
        ([_beat(1), _beat(2)], "The line of broker 1 says something of 2"),
        ([_beat(-1)], "the broker id is -1"),
    ],
    ids=["garbage", "nothing", "another", "negative"],
)
def test_a_line_on_which_nonsense_is_said_is_closed_with_a_sentence(
    said: list[bytes], why: str
) -> None:
    async def story(site: Site) -> None:
        method: Any = site.channels.to(1, site.address).stream_stream(f"/{SERVICE}/Heartbeats")
        call = method()
        for data in said:
            await call.write(data)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await _drained(call)
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert why in (caught.value.details() or "")

    on_site(story)


def test_a_line_on_which_nothing_is_said_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "LINE_SILENT_S", 0.05)

    async def story(site: Site) -> None:
        method: Any = site.channels.to(1, site.address).stream_stream(f"/{SERVICE}/Heartbeats")
        call = method()
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call.read()
        assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED

    on_site(story)
