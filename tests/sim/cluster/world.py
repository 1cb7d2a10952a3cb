"""A cluster in a storm, from a seed: controllers, brokers, clients, network and disks."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from ottla.controller.commands import (
    ChangeConfigs,
    Command,
    CreatePartitions,
    CreateTopic,
    DeleteTopic,
    ElectLeaders,
    TakeProducerIds,
)
from ottla.controller.delta import Delta
from ottla.controller.image import ALL_BROKERS, MetadataImage, PartitionInfo
from ottla.controller.outcome import Outcome
from ottla.controller.port import ConfigChange, NewPartitions, NewTopic, TopicDefaults
from ottla.controller.proposal import RequestId
from ottla.controller.quorum.journal import Journal, create_journal
from ottla.controller.quorum.layout import is_blank
from ottla.controller.quorum.member import QuorumMember
from ottla.controller.quorum.membership import Membership, Standing
from ottla.controller.quorum.messages import Envelope, RequestVote, Vote
from ottla.controller.replay import Applied
from ottla.controller.sightings import Probe, Verdict
from ottla.proto.errors import StorageError
from ottla.proto.ids import BrokerId
from ottla.proto.kafka.uuids import UUID
from ottla.replication.storage.faults import PowerCutError
from tests.sim.cluster.brokers import BrokerProcess
from tests.sim.cluster.climate import Climate, draw_climate
from tests.sim.cluster.controllers import ControllerProcess
from tests.sim.cluster.faults import Faults
from tests.sim.cluster.invariants import BrokenInvariantError, Invariants
from tests.sim.cluster.members import CLUSTER_ID, MemberProcess
from tests.sim.cluster.network import Network, Process
from tests.sim.cluster.replicas import Committed, Place, Record
from tests.sim.cluster.schedule import Schedule

FIRST_BROKER = 11
CALM_MS = 20_000
LOOK_MS = 50
EVENTS_MAX = 60_000
PROBE_MS = 200
# For so long after its death a process still listens, and resets whoever connects.
DYING_MS = 20


class World:
    """Everything of one seed."""

    def __init__(self, seed: int, family: str) -> None:
        self.dice = Random(seed)
        self.climate: Climate = draw_climate(self.dice, family)
        self.schedule = Schedule()
        self.invariants = Invariants(self.schedule, self.climate.members)
        self.network = Network(self.schedule, self.dice, self.climate)
        self.network.member_of = self._member_of
        self.network.take_in = lambda node, envelope: self.controllers[node].receive(envelope)
        self.committed = Committed(self.invariants)
        self.member_ids = list(range(1, self.climate.members + 1))
        self.controllers = {node: ControllerProcess(self, node) for node in self.member_ids}
        ids = range(FIRST_BROKER, FIRST_BROKER + self.climate.brokers)
        self.brokers = {node: BrokerProcess(self, node) for node in ids}
        self.network.processes |= {**self.controllers, **self.brokers}
        # What became of a command, by the digest before it.
        self.applies: dict[tuple[bytes, bytes], Applied] = {}
        self.faults = Faults(self)
        self.is_calm = False
        # The member that is being started.
        self.starting = 0
        self._number = 0
        self._topics = 0
        self._last_asked_in = -1
        self._last_version: int | None = None

    def _member_of(self, node: int) -> QuorumMember | None:
        return self.controllers[node].member

    # ── Running ───────────────────────────────────────────────────────────────────────────────

    def run(self) -> None:
        for node in self.member_ids:
            self.start_member(node)
        for broker in self.brokers.values():
            broker.start()
        self._wish_later()
        self.faults.begin()
        end_ms = self.schedule.now_ms + self.climate.storm_ms
        while self.schedule.now_ms < end_ms:
            self._step()
        self._calm_down()

    def _step(self) -> None:
        try:
            self.schedule.step()
        except PowerCutError:
            for controller in self.controllers.values():
                if controller.is_up and not controller.power._is_on:
                    self.lose_power(controller)
        except StorageError as error:
            self._stop_with_reason(error)
        except BrokenInvariantError:
            raise
        except Exception as error:
            # A promise that was broken first is the cause of it.
            self.invariants.require()
            raise BrokenInvariantError("I0", f"{type(error).__name__}: {error}") from error
        self.invariants.require()
        if self.schedule.events > EVENTS_MAX:
            raise BrokenInvariantError("I9", "too much happens")

    def _stop_with_reason(self, error: StorageError) -> None:
        """A member has halted. It may, if its disk failed, or if another has taken its place."""
        self.invariants.require()
        for controller in self.controllers.values():
            is_halted = controller.member is not None and controller.member.halted is not None
            if is_halted and controller.disk_has_failed:
                self.schedule.note("the disk of member %d fails", controller.node_id)
                self.stop_member(controller)
                return
            if is_halted and controller.is_found_again:
                self.move_disk_away(controller)
                return
        raise BrokenInvariantError("I0", f"{type(error).__name__}: {error}") from error

    def move_disk_away(self, member: MemberProcess) -> None:
        """Do what the status of the member asks for: another directory has taken its place."""
        self.schedule.note("member %d is replaced, its disk moved away", member.node_id)
        self.stop_member(self.controllers[member.node_id])
        member.wipe()

    def _calm_down(self) -> None:
        """Mend everything; then everything must go on (I9)."""
        self.schedule.note("the storm is over")
        self.is_calm = self.network.is_calm = True
        self.faults.end()
        deadline_ms = self.schedule.now_ms + CALM_MS
        look_ms = 0
        while True:
            self._step()
            now_ms = self.schedule.now_ms
            if now_ms >= look_ms:
                look_ms = now_ms + LOOK_MS
                if self._is_well():
                    return
                if now_ms >= deadline_ms:
                    raise BrokenInvariantError("I9", self._ails())

    def _is_well(self) -> bool:
        """Everybody is there, one is active, a last command was committed and all know of it."""
        active = [one for one in self.controllers.values() if one.is_active]
        is_quiet = len(active) == 1 and all(map(self._is_in_step, self.brokers.values()))
        if not is_quiet or not all(one.is_voter for one in self.controllers.values()):
            return False
        if self._last_version is None:
            self._ask_last(active[0])
            return False
        versions = [one.image.version for one in self.controllers.values()]
        versions += [one.image.version for one in self.brokers.values()]
        return min(versions) >= self._last_version

    def _ask_last(self, active: ControllerProcess) -> None:
        def done(outcome: Outcome) -> None:
            self._last_version = outcome.version

        if not self.brokers:
            active.propose(TakeProducerIds(1), done)
            return
        broker = next(iter(self.brokers.values()))
        # One that dies forgets what it has asked for.
        if self._last_asked_in != broker.life:
            self._last_asked_in = broker.life
            broker.ask(TakeProducerIds(1), done)

    def _is_in_step(self, broker: BrokerProcess) -> bool:
        known = broker.image.brokers.get(BrokerId(broker.node_id))
        return known is not None and known.incarnation == broker.incarnation and known.is_active

    def _ails(self) -> str:
        told = [
            f"{one.node_id}: up={one.is_up} leads={one.leads} active={one.is_active} "
            f"version={one.image.version} halted={one.member and one.member.halted}"
            for one in self.controllers.values()
        ]
        told += [
            f"{one.node_id}: up={one.is_up} epoch={one.broker_epoch} version={one.image.version}"
            for one in self.brokers.values()
        ]
        return "not well after the storm: " + "; ".join(told)

    # ── Members ───────────────────────────────────────────────────────────────────────────────

    def start_member(self, node: int) -> None:
        controller, self.starting = self.controllers[node], node
        store = controller.open_store()
        if is_blank(store) and self.climate.is_formed and not controller.wipes:
            voters: dict[int, str | None] = {n: f"d{n}" for n in self.member_ids}
            first = Membership(Standing.VOTER, CLUSTER_ID, node, f"d{node}", voters)
            controller.start(create_journal(store, first))
        elif is_blank(store):
            controller.start_talking(None)
        else:
            journal = Journal(store)
            is_forming = journal.membership.standing is Standing.FORMING
            (controller.start_talking if is_forming else controller.start)(journal)

    def lose_power(self, controller: ControllerProcess) -> None:
        self.schedule.note("member %d loses its power", controller.node_id)
        self.stop_member(controller, loses_power=True)

    def stop_member(self, controller: ControllerProcess, *, loses_power: bool = False) -> None:
        node, life = controller.node_id, controller.life
        controller.stop(loses_power=loses_power)
        for peer in self.member_ids:
            if peer != node and (peer, node) not in self.network.cuts and self.dice.random() < 0.7:
                delay_ms = 1 + int(self.dice.random() * 40)
                self.schedule.after(delay_ms, "gone", self._gone(peer, node, life), peer, node)
        self.faults.start_again(controller)

    def _gone(self, peer: int, node: int, life: int) -> Callable[[], None]:
        def tell() -> None:
            dead, member = self.controllers[node], self.controllers[peer].member
            is_gone = not dead.is_up or dead.life != life
            if member is not None and is_gone and (peer, node) not in self.network.cuts:
                member.process_is_gone(node)

        return tell

    def heard(self, envelope: Envelope) -> None:
        """Strike where it hurts: whoever has just voted dies, and comes back at once."""
        is_vote = isinstance(envelope.message, Vote | RequestVote)
        if is_vote and not self.is_calm and self.dice.random() < self.climate.hurt_votes:
            self.faults.restart_soon(envelope.sender)

    def applied(
        self, node: int, before: MetadataImage, after: MetadataImage, command: bytes, told: Outcome
    ) -> None:
        is_new = after.version == len(self.invariants.digests)
        self.invariants.applied(node, before, after, command, told)
        if is_new and before.topics is not after.topics:
            self._check_elected(before, after)

    # ── Partitions ────────────────────────────────────────────────────────────────────────────

    def _check_elected(self, before: MetadataImage, after: MetadataImage) -> None:
        for name, topic in after.topics.items():
            if before.topics.get(name) is topic:
                continue
            for index, partition in enumerate(topic.partitions):
                self._check_claims((topic.topic_id, index), partition, after)

    def _check_claims(self, place: Place, partition: PartitionInfo, image: MetadataImage) -> None:
        for node in (*partition.isr, *partition.elr):
            broker = self.brokers[node]
            # Of a disk that was lost the controller hears when the broker registers again.
            if image.brokers[node].directory_id == broker.directory_id:
                copy = broker.copies.get(place)
                if copy is not None and copy.is_failed:
                    # It reports that until it is obeyed, and leads nobody meanwhile.
                    continue
                self.committed.check(place, node, [] if copy is None else copy.log, partition)

    def commit(self, place: Place, records: list[Record], broker: int) -> None:
        if len(records) <= len(self.committed.of(place)):
            return
        self.committed.grow(place, records, broker)
        image = self.invariants.newest
        topic = None if image is None else image.topic_by_id(place[0])
        if image is not None and topic is not None:
            self._check_claims(place, topic.partitions[place[1]], image)

    # ── Between brokers and controllers ───────────────────────────────────────────────────────

    def post(self, sender: Process, receiver: Process, work: Callable[[], None]) -> None:
        self.network.post(sender.node_id, receiver.node_id, "message", work)

    def reply(
        self, sender: Process, receiver: Process, answered: Callable[..., None]
    ) -> Callable[..., None]:
        """Return how to answer: over the network, back to whoever asked."""

        def answer(*told: Any) -> None:
            self.post(sender, receiver, lambda: answered(*told))

        return answer

    def news(
        self, controller: ControllerProcess, version: int
    ) -> MetadataImage | list[Delta] | None:
        """Return what a controller has for a broker that is at `version`."""
        if controller.image.version <= version:
            return None
        deltas = list(controller.machine.deltas)
        if deltas and deltas[0].from_version <= version:
            return [delta for delta in deltas if delta.version > version]
        return controller.image

    def probe(self, node: int, probe: Probe, answered: Callable[[Verdict], None]) -> None:
        def arrive() -> None:
            broker = self.brokers[probe.broker_id]
            is_cut = {(node, broker.node_id), (broker.node_id, node)} & self.network.cuts
            if is_cut or broker.paused_until_ms > self.schedule.now_ms:
                verdict, delay_ms = Verdict.SILENCE, PROBE_MS
            elif not broker.is_up:
                is_dying = self.schedule.now_ms < broker.died_ms + DYING_MS
                verdict, delay_ms = Verdict.SILENCE if is_dying else Verdict.REFUSED, 1
            elif broker.incarnation == probe.incarnation:
                verdict, delay_ms = Verdict.SAME_INCARNATION, self.network.delay_ms()
            else:
                verdict, delay_ms = Verdict.OTHER_INCARNATION, self.network.delay_ms()
            self.schedule.after(delay_ms, "probed", lambda: answered(verdict), node)

        self.schedule.after(self.network.delay_ms(), "probe", arrive, node, probe.broker_id)

    def stream_of_broker_broke(self, broker_id: int) -> None:
        for node, controller in self.controllers.items():
            delay_ms = 1 + int(self.dice.random() * 60)

            def broke(one: ControllerProcess = controller) -> None:
                one.break_stream(broker_id)

            self.schedule.after(delay_ms, "stream broke", broke, node, broker_id)

    def stop_broker(self, broker: BrokerProcess) -> None:
        broker.stop()
        self.faults.start_again(broker)

    def acknowledge(self, node: int, request: RequestId, outcome: Outcome) -> None:
        self.invariants.acknowledge(request, outcome)
        if not self.is_calm and self.dice.random() < self.climate.hurt_acks:
            self.faults.hurt_leader(node)

    # ── Clients ───────────────────────────────────────────────────────────────────────────────

    def new_id(self) -> UUID:
        return UUID(int=self.dice.getrandbits(128) | 1 << 100)

    def next_number(self) -> int:
        self._number += 1
        return self._number

    def _wish_later(self) -> None:
        delay_ms = 1 + int(self.dice.random() * 2 * self.climate.wish_ms)
        self.schedule.after(delay_ms, "wish", self._wish)

    def _wish(self) -> None:
        if self.is_calm:
            return
        self._wish_later()
        if self.brokers:
            broker = self.brokers[self.dice.choice(list(self.brokers))]
            if broker.is_up:
                broker.ask(self._wished(broker.image), lambda outcome: None)
            return
        for controller in self.controllers.values():
            if controller.is_active:
                controller.propose(self._wished(controller.image))

    def _wished(self, image: MetadataImage) -> Command:
        dice, topics = self.dice, list(image.topics.values())
        if self.brokers and not topics:
            return self._new_topic()
        match dice.randrange(10 if self.brokers else 2):
            case 0:
                return TakeProducerIds(1 + dice.randrange(5))
            case 1:
                value = "v" * dice.choice([5, 60, 200])
                return ChangeConfigs(ConfigChange("broker", ALL_BROKERS, {"note": value}))
            case 2 | 3 if topics:
                least = str(dice.choice([1, 2, 2, 3]))
                options = {"min.insync.replicas": least}
                return ChangeConfigs(ConfigChange("topic", dice.choice(topics).name, options))
            case 4 if len(topics) > 1 and dice.random() < 0.4:
                gone = dice.choice(topics)
                return DeleteTopic(gone.name, gone.topic_id)
            case 5 if topics:
                more = dice.choice(topics)
                count = min(len(more.partitions) + 1, 2)
                wanted = NewPartitions(more.name, count)
                return CreatePartitions(wanted, more.topic_id, dice.getrandbits(20))
            case 6 | 7:
                return ElectLeaders("preferred", None)
            case _:
                return TakeProducerIds(1) if len(topics) >= 2 else self._new_topic()

    def _new_topic(self) -> Command:
        self._topics += 1
        wanted = NewTopic(f"t{self._topics % 4}", 1, self.dice.choice([2, 3, 3]))
        seed = self.dice.getrandbits(20)
        return CreateTopic(wanted, self.new_id(), TopicDefaults(1, 3), seed)
