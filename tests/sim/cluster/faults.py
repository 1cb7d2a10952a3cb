"""What goes wrong, and when: at random, and where it hurts most."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.replication.storage.faults import FaultRule
from tests.sim.cluster.brokers import BrokerProcess
from tests.sim.cluster.controllers import ControllerProcess
from tests.sim.cluster.network import Process

if TYPE_CHECKING:
    from tests.sim.cluster.world import World

SOON_MS = 30
LATER_MS = 1_200


class Faults:
    """The storm. Every method without an underscore that a climate names is one kind of fault."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.dice = world.dice
        self.network = world.network
        self._names = [name for name, _ in world.climate.faults]
        self._weights = [weight for _, weight in world.climate.faults]
        self._is_over = False

    def begin(self) -> None:
        # A cluster that was never well can lose nothing.
        self.world.schedule.after(self.world.climate.quiet_ms, "fault", self._strike)

    def end(self) -> None:
        self._is_over = True
        self.network.heal()
        for process in self.network.processes.values():
            process.paused_until_ms = 0
        for controller in self.world.controllers.values():
            controller.power.cut_at = None
            if not controller.disk_has_failed:
                controller.plan.rules.clear()
        for broker in self.world.brokers.values():
            if broker.is_offline:
                self.world.stop_broker(broker)
        self.start_members()
        self.start_brokers()

    def _strike(self) -> None:
        if self._is_over:
            return
        (name,) = self.dice.choices(self._names, self._weights)
        self.world.schedule.note("fault: %s", name)
        getattr(self, name)()
        delay_ms = 1 + int(self.dice.random() * 2 * self.world.climate.fault_ms)
        self.world.schedule.after(delay_ms, "fault", self._strike)

    # ── Starting again ────────────────────────────────────────────────────────────────────────

    def start_again(self, process: Process) -> None:
        """A process died. A supervisor starts it again, at once or later."""
        limit_ms = SOON_MS if self._is_over or self.dice.random() < 0.4 else LATER_MS
        life, delay_ms = process.life, 1 + int(self.dice.random() * limit_ms)

        def start() -> None:
            if process.life == life and not process.is_up:
                self._start(process)

        self.world.schedule.after(delay_ms, "start", start, process.node_id)

    def _start(self, process: Process) -> None:
        self.world.schedule.note("node %d starts", process.node_id)
        if isinstance(process, BrokerProcess):
            process.start()
        else:
            self.world.start_member(process.node_id)

    def start_members(self) -> None:
        for controller in self.world.controllers.values():
            if not controller.is_up:
                self._start(controller)

    def start_brokers(self) -> None:
        for broker in self.world.brokers.values():
            if not broker.is_up:
                self._start(broker)

    # ── Members ───────────────────────────────────────────────────────────────────────────────

    def _some_member(self) -> ControllerProcess:
        return self.world.controllers[self.dice.choice(self.world.member_ids)]

    def _kill(self, controller: ControllerProcess) -> None:
        if controller.is_up:
            self.world.schedule.note("member %d is killed", controller.node_id)
            self.world.stop_member(controller)

    def kill_member(self) -> None:
        self._kill(self._some_member())

    def kill_leader(self) -> None:
        leaders = [one for one in self.world.controllers.values() if one.leads]
        if leaders:
            self._kill(self.dice.choice(leaders))

    def leave_few(self) -> None:
        """Just as many as can go on are left, for a while: whatever is lost now is lost."""
        leaders = [one.node_id for one in self.world.controllers.values() if one.leads]
        nodes = [node for node in self.world.member_ids if node not in leaders]
        self.dice.shuffle(nodes)
        for node in nodes[: (len(self.world.member_ids) - 1) // 2]:
            self.network.cut_off(node)

    def hurt_leader(self, node: int) -> None:
        """A word was given: now take away whoever gave it, or its way to the others."""
        controller = self.world.controllers[node]
        if self.dice.random() < 0.5:
            self.world.schedule.after(1, "hurt", lambda: self._kill(controller), node)
        else:
            self.network.cut_off(node)

    def restart_soon(self, node: int) -> None:
        controller = self.world.controllers[node]
        life = controller.life

        def start() -> None:
            if not controller.is_up and controller.life == life:
                self._start(controller)

        def kill() -> None:
            if controller.is_up and controller.life == life:
                self._kill(controller)
                self.world.schedule.after(1 + self.dice.randrange(8), "start", start, node)

        self.world.schedule.after(self.dice.randrange(6), "hurt", kill, node)

    def cut_power(self) -> None:
        """The power goes at one of the next commits of a member, before it or after it."""
        power = self._some_member().power
        power.cut_at = power.moments + 1 + self.dice.randrange(6)

    def black_out(self) -> None:
        for controller in self.world.controllers.values():
            if controller.is_up:
                self.world.lose_power(controller)

    def _may_lose_disk(self, hit: ControllerProcess) -> bool:
        """Whether those that still vote are a majority without it."""
        controllers = self.world.controllers.values()
        # Of a disk that was found again it is not known whether it still votes.
        lost = {one for one in controllers if not one.is_voter or one.is_found_again}
        return 2 * len({*lost, hit}) < len(self.world.member_ids)

    def wipe_member(self) -> None:
        """A member loses its disk, perhaps one that is just coming back from that."""
        controllers = self.world.controllers.values()
        joining = [one for one in controllers if not one.is_voter]
        again = joining and self.dice.random() < 0.3
        hit = self.dice.choice(joining) if again else self._some_member()
        if self._may_lose_disk(hit):
            self._kill(hit)
            self.world.schedule.note("member %d loses its disk", hit.node_id)
            hit.wipe()

    def find_disk(self) -> None:
        """A disk that was lost is found again, and put back in place of the present one."""
        found = self._some_member()
        if found.wipes and self._may_lose_disk(found) and not found.is_found_again:
            self._kill(found)
            if found.find_disk(self.dice):
                told = (found.node_id, found.directory_id)
                self.world.schedule.note("member %d has disk %s again", *told)

    def fail_disk(self) -> None:
        """One of the next commits of a member fails, after it happened or before."""
        operation = self.dice.choice(["commit", "committed"])
        rule = FaultRule(operation, "*", nth=1 + self.dice.randrange(4))
        self._some_member().plan.rules.append(rule)

    def pause(self) -> None:
        processes = list(self.network.processes.values())
        until_ms = self.world.schedule.now_ms + self.dice.choice([100, 400, 1_000])
        self.dice.choice(processes).paused_until_ms = until_ms

    # ── Ways ──────────────────────────────────────────────────────────────────────────────────

    def cut_way(self) -> None:
        one, other = self.dice.sample(sorted(self.network.processes), 2)
        self.network.cut(one, other)

    def cut_off(self) -> None:
        leaders = [one.node_id for one in self.world.controllers.values() if one.leads]
        self.network.cut_off(self.dice.choice([*self.world.member_ids, *leaders]))

    def split(self) -> None:
        """Two groups that do not reach each other."""
        nodes = sorted(self.network.processes)
        here = {node for node in nodes if self.dice.random() < 0.5}
        for one in nodes:
            for other in nodes:
                if (one in here) != (other in here):
                    self.network.cut(one, other)

    def heal(self) -> None:
        self.network.heal()

    def break_streams(self) -> None:
        self.network.break_all(self._some_member().node_id)

    # ── Brokers ───────────────────────────────────────────────────────────────────────────────

    def _some_broker(self) -> BrokerProcess:
        return self.world.brokers[self.dice.choice(list(self.world.brokers))]

    def kill_broker(self) -> None:
        broker = self._some_broker()
        if broker.is_up:
            self.world.schedule.note("broker %d is killed", broker.node_id)
            self.world.stop_broker(broker)

    def wipe_broker(self) -> None:
        broker = self._some_broker()
        if broker.is_up:
            self.world.stop_broker(broker)
        self.world.schedule.note("broker %d loses its disk", broker.node_id)
        broker.wipe()

    def fail_broker_disk(self) -> None:
        """A disk is full. The broker stays, and asks to be fenced; later somebody makes room."""
        broker = self._some_broker()
        life = broker.life

        def start_anew() -> None:
            if broker.life == life and broker.is_up:
                self.world.stop_broker(broker)

        self.world.schedule.note("the disk of broker %d fails", broker.node_id)
        broker.fail_disk()
        self.world.schedule.after(400 + self.dice.randrange(800), "room", start_anew)

    def damage_copy(self) -> None:
        """Bad bytes are found in one of several good copies of a partition."""
        broker, image = self._some_broker(), self.world.invariants.newest
        places = [
            (topic.topic_id, index)
            for topic in (() if image is None else image.topics.values())
            for index, partition in enumerate(topic.partitions)
            if len(partition.isr) > 1
        ]
        others = [one.copies for one in self.world.brokers.values()]
        for place in places:
            is_failed = any(place in them and them[place].is_failed for them in others)
            if broker.is_up and place in broker.copies and not is_failed:
                self.world.schedule.note("a copy of broker %d is damaged", broker.node_id)
                broker.copies[place].is_failed = True
                return

    def cut_broker(self) -> None:
        self.network.cut_off(self._some_broker().node_id)

    def stop_broker(self) -> None:
        self._some_broker().shut_down()

    def slow_down(self) -> None:
        """A broker fetches nothing for a while, no metadata either, and falls out of sync."""
        self._some_broker().slow_until_ms = self.world.schedule.now_ms + 400

    def break_heartbeats(self) -> None:
        self.world.stream_of_broker_broke(self._some_broker().node_id)
