"""What the commands of a controller's story do: metadata, and a controller that watches brokers.

A command returns what it has to tell, or None. `t=…`, in milliseconds, sets the clock first; it
ticks on the way there. Whatever the controller proposes is committed at once, and told.
"""

from __future__ import annotations

from dataclasses import replace

from ottla.controller.commands import FenceBroker, ReportDamage, UnfenceBroker
from ottla.controller.image import PartitionInfo
from ottla.controller.liveness import Liveness
from ottla.controller.outcome import Outcome
from ottla.controller.sightings import (
    AcceptRegistration,
    AnswerHeartbeat,
    BrokersChanged,
    Effect,
    Event,
    HeartbeatCame,
    Probe,
    ProbeAnswered,
    ProposeFence,
    ProposeShutdown,
    ProposeUnfence,
    RefuseRegistration,
    RegistrationAsked,
    StreamBroke,
    TimePassed,
    TookOffice,
    Verdict,
)
from ottla.proto.ids import BrokerId
from tests.unit.controller.cluster import Cluster, some_id


def _listed(brokers: tuple[BrokerId, ...]) -> str:
    return "{" + ",".join(map(str, brokers)) + "}"


def _told(partition: PartitionInfo) -> str:
    marks = [
        "" if partition.is_durable else " not-durable",
        " recovering" if partition.is_recovering else "",
    ]
    leader = "nobody" if partition.leader is None else str(partition.leader)
    return (
        f"leader={leader} epoch={partition.leader_epoch} isr={_listed(partition.isr)} "
        f"elr={_listed(partition.elr)}{''.join(marks)}"
    )


class Stage:
    """One story's metadata, sessions and clock; each `do_…` is a command."""

    def __init__(self) -> None:
        self.cluster = Cluster()
        self.core = Liveness(session_ms=2000)
        self.now_ms = 0
        self.told: list[str] = []

    def answer(self, line: str) -> str | None:
        command, *words = line.split()
        named = dict(word.split("=", 1) for word in words if "=" in word)
        plain = [word for word in words if "=" not in word]
        self.told = []
        if "t" in named:
            self._wait_until(int(named["t"]))
        told = getattr(self, f"do_{command}")(plain, named)
        return "\n".join([*self.told, *([told] if told else [])]) or None

    # ── Metadata ──────────────────────────────────────────────────────────────────────────────

    def do_brokers(self, words: list[str], named: dict[str, str]) -> None:
        for number in range(1, int(words[0]) + 1):
            self.cluster.start(number)

    def do_topic(self, words: list[str], named: dict[str, str]) -> str:
        """`topic 1,2,3 min=2 durability=fsync unclean=false`: one partition on these brokers."""
        configs = {
            "min.insync.replicas": named.get("min", "2"),
            "ottla.durability": named.get("durability", "fsync"),
            "unclean.leader.election.enable": named.get("unclean", "false"),
        }
        self.cluster.create([int(one) for one in words[0].split(",")], configs=configs)
        return _told(self.cluster.partition())

    def do_register(self, words: list[str], named: dict[str, str]) -> str:
        """`register 1 boot=2 disk=9 clean`: a new life of a broker, that has to read its log."""
        number = int(words[0])
        previous = self.cluster.broker(number).broker_epoch if "clean" in words else -1
        outcome = self.cluster.register(
            number,
            boot=int(named.get("boot", 1)),
            directory=int(named.get("disk", number)),
            previous=previous,
        )
        return self._after(outcome)

    def do_unfence(self, words: list[str], named: dict[str, str]) -> str:
        return self._after(self.cluster.unfence(int(words[0])))

    def do_fence(self, words: list[str], named: dict[str, str]) -> str:
        self.cluster.fence(int(words[0]))
        return self.do_status(words, named)

    def do_damage(self, words: list[str], named: dict[str, str]) -> str:
        """`damage 1`: the broker, fenced or not, reports that its copy is damaged."""
        number = int(words[0])
        damaged = {self.cluster.image.topics["t"].topic_id: (0,)}
        epoch = self.cluster.broker(number).broker_epoch
        return self._after(self.cluster.propose(ReportDamage(BrokerId(number), epoch, damaged)))

    def do_stop(self, words: list[str], named: dict[str, str]) -> str:
        return self._after(self.cluster.shut_down(int(words[0])))

    def do_isr(self, words: list[str], named: dict[str, str]) -> str:
        """`isr 1 1,2,3 [epoch=4] [broker_epoch_of_2=7]`: the leader 1 asks for this in-sync set."""
        members = [int(one) for one in words[1].split(",")]
        epochs = {n: named.get(f"broker_epoch_of_{n}") for n in members}
        change = self.cluster.change(
            [n if epoch is None else (n, int(epoch)) for n, epoch in epochs.items()],
            is_synced="synced" in words,
        )
        if "epoch" in named:
            change = replace(change, leader_epoch=int(named["epoch"]))  # type: ignore[arg-type]
        code = self.cluster.alter_one(int(words[0]), change)
        return code.name if code is not None else self.do_status(words, named)

    def do_set(self, words: list[str], named: dict[str, str]) -> str:
        names = {"min": "min.insync.replicas", "durability": "ottla.durability"}
        self.cluster.configure(**{names[key].replace(".", "__"): named[key] for key in named})
        return self.do_status(words, named)

    def do_elect(self, words: list[str], named: dict[str, str]) -> str:
        (code,) = self.cluster.elect(words[0], 0)  # type: ignore[arg-type]
        return code.name if code is not None else self.do_status(words, named)

    def do_again(self, words: list[str], named: dict[str, str]) -> str:
        """`again [back=1]`: the last command, or the one before, is committed once more."""
        return self._after(self.cluster.feed(self.cluster.log[-1 - int(named.get("back", 0))]))

    def do_controller(self, words: list[str], named: dict[str, str]) -> None:
        self.cluster.take_office(int(words[0]), self.cluster.image.defaults)

    def do_status(self, words: list[str], named: dict[str, str]) -> str:
        return _told(self.cluster.partition())

    def _after(self, outcome: Outcome) -> str:
        if outcome.is_unknown:
            return "unknown"
        if outcome.refusal is not None:
            return outcome.refusal.code.name
        return _told(self.cluster.partition()) if self.cluster.image.topics else ""

    # ── A controller that watches ─────────────────────────────────────────────────────────────

    def do_watch(self, words: list[str], named: dict[str, str]) -> None:
        self._step(TookOffice(brokers=self.cluster.image.brokers, now_ms=self.now_ms))

    def do_wait(self, words: list[str], named: dict[str, str]) -> None:
        pass

    def do_heartbeat(self, words: list[str], named: dict[str, str]) -> None:
        """`heartbeat 1 2 3 [stopping]`: each of these brokers says that it is well."""
        for word in words:
            if word.isdigit():
                broker = self.cluster.broker(int(word))
                event = HeartbeatCame(
                    broker_id=broker.broker_id,
                    broker_epoch=broker.broker_epoch,
                    applied_version=self.cluster.image.version,
                    is_recovered=True,
                    wants_shutdown="stopping" in words,
                    now_ms=self.now_ms,
                )
                self._step(event)

    def do_broken(self, words: list[str], named: dict[str, str]) -> None:
        broker = self.cluster.broker(int(words[0]))
        self._step(
            StreamBroke(
                broker_id=broker.broker_id, broker_epoch=broker.broker_epoch, now_ms=self.now_ms
            )
        )

    def do_probe(self, words: list[str], named: dict[str, str]) -> None:
        """`probe 2 refused`: what the probe of broker 2 has found."""
        broker = self.cluster.broker(int(words[0]))
        self._step(
            ProbeAnswered(
                broker_id=broker.broker_id,
                broker_epoch=broker.broker_epoch,
                verdict=Verdict(" ".join(words[1:])),
                now_ms=self.now_ms,
            )
        )

    def do_process(self, words: list[str], named: dict[str, str]) -> None:
        """`process 2`: a new process wants to be broker 2."""
        incarnation = some_id(5000 + len(self.cluster.log))
        self._step(
            RegistrationAsked(
                broker_id=BrokerId(int(words[0])), incarnation=incarnation, now_ms=self.now_ms
            )
        )

    def _wait_until(self, end_ms: int) -> None:
        while self.now_ms < end_ms:
            self.now_ms = min(end_ms, self.now_ms + self.core.tick_ms)
            self._step(TimePassed(now_ms=self.now_ms))

    def _step(self, event: Event) -> None:
        for effect in self.core.step(event):
            self._carry_out(effect)

    def _carry_out(self, effect: Effect) -> None:
        """Do what the controller wishes, and tell it."""
        at = f"t={self.now_ms}:"
        key = effect.broker_id
        match effect:
            case Probe():
                self.told.append(f"{at} probe {key}")
                return
            case AnswerHeartbeat():
                if effect.may_exit:
                    self.told.append(f"{at} {key} may exit")
                return
            case RefuseRegistration():
                self.told.append(f"{at} {key} is refused: {effect.why}")
                return
            case ProposeFence():
                self.told.append(f"{at} fence {key}, {effect.why}")
                self.cluster.ok(FenceBroker(key, effect.broker_epoch))
            case ProposeUnfence():
                self.told.append(f"{at} unfence {key}")
                version = effect.applied_version
                self.cluster.ok(UnfenceBroker(key, effect.broker_epoch, version, effect.damaged))
            case ProposeShutdown():
                self.told.append(f"{at} {key} begins to shut down")
                self.cluster.shut_down(key)
            case AcceptRegistration():
                self.told.append(f"{at} {key} registers")
                self.cluster.register(key, expected=effect.expected_epoch)
        brokers = self.cluster.image.brokers
        self.core.step(BrokersChanged(brokers=brokers, now_ms=self.now_ms))
