"""What the commands of a story about copies do.

A copy is told as its records, each with the epoch that wrote it. Those before the bar are below its
high watermark; those in parentheses are not synced yet. After every command the promises are looked
at, and a broken one is told, once.
"""

from __future__ import annotations

from ottla.proto.errors import ErrorCode
from ottla.proto.ids import BrokerId
from ottla.replication.follower import FollowerState
from tests.scripts.replication import breaks
from tests.scripts.replication.copies import Copies
from tests.scripts.replication.parts import Copy, Letter


def _listed(brokers: tuple[BrokerId, ...]) -> str:
    return "{" + ",".join(map(str, brokers)) + "}"


def _told(copy: Copy) -> str:
    words = list(map(str, copy.log))
    words[copy.held :] = [f"({word})" for word in words[copy.held :]]
    words.insert(copy.high_watermark, "|")
    return f"{copy.number} {_role(copy)}: {' '.join(words)}"


def _role(copy: Copy) -> str:
    if not copy.is_up:
        return "is down"
    if copy.leader is not None:
        return f"leads in epoch {copy.leader.leader_epoch}"
    if copy.follower is not None and copy.follower.state is FollowerState.FAILED:
        return "has failed"
    return "follows"


class Stage:
    """One story's brokers; each `do_…` is a command."""

    def __init__(self) -> None:
        self.world = Copies()
        self._broken: set[str] = set()

    def answer(self, line: str) -> str | None:
        command, *words = line.split()
        named = dict(word.split("=", 1) for word in words if "=" in word)
        plain = [word for word in words if "=" not in word]
        self.world.told = []
        told = getattr(self, f"do_{command}")(plain, named)
        try:
            self.world.require_promises()
        except AssertionError as broken:
            sentence = f"BROKEN: {str(broken).splitlines()[0]}"
            if sentence not in self._broken:
                self._broken.add(sentence)
                self.world.told.append(sentence)
        return "\n".join([*self.world.told, *([told] if told else [])]) or None

    def do_copies(self, words: list[str], named: dict[str, str]) -> None:
        """`copies 3 min=2 durability=fsync leads=ShrinksEarly`: begin, all with an empty log."""
        self._broken = set()
        self.world = Copies(
            int(words[0]),
            min_isr=int(named.get("min", 2)),
            durability=named.get("durability", "fsync"),
            unclean=named.get("unclean") == "true",
            leads=getattr(breaks, named.get("leads", "LeaderCore")),
            follows=getattr(breaks, named.get("follows", "FollowerCore")),
        )

    # ── Data ──────────────────────────────────────────────────────────────────────────────────

    def do_write(self, words: list[str], named: dict[str, str]) -> str | None:
        """`write a b to=1 acks=1`: told only if it is refused; acks=all unless said."""
        for value in words:
            code = self.world.write(int(named["to"]), value, acks=named.get("acks", "all"))
            if code is not None:
                return code.name
        return None

    def do_outcome(self, words: list[str], named: dict[str, str]) -> str:
        """`outcome a`: what the producer of a record has heard so far."""
        told = []
        for value in words:
            code = self.world.outcomes.get(value)
            if code is ErrorCode.NONE:
                told.append(f"{value} is acknowledged")
            else:
                told.append(f"{value} waits" if code is None else f"{value}: {code.name}")
        return "\n".join(told)

    def do_sync(self, words: list[str], named: dict[str, str]) -> None:
        for word in words:
            self.world.sync(int(word))

    def do_fetch(self, words: list[str], named: dict[str, str]) -> None:
        """`fetch 2 3`: each takes one step, a fetch with its answer or a cut."""
        for word in words:
            self.world.fetch(int(word))

    def do_lonely(self, words: list[str], named: dict[str, str]) -> None:
        """`lonely 2`: it fetches, and the answer is lost."""
        self.world.ask(int(words[0]))
        self.world.arrive(int(words[0]))
        self.world.copies[int(words[0])].answers.clear()

    def do_latest(self, words: list[str], named: dict[str, str]) -> str:
        """`latest 2`: what a leader says when a client asks where the log ends."""
        core = self.world.copies[int(words[0])].leader
        assert core is not None
        if core.knows_high_watermark:
            return f"the latest offset is {core.high_watermark}"
        return ErrorCode.OFFSET_NOT_AVAILABLE.name

    def do_flow(self, words: list[str], named: dict[str, str]) -> None:
        """`flow 1 2 3`: these sync and fetch until nothing is new."""
        for _ in range(6):
            for word in words:
                self.world.sync(int(word))
                self.world.fetch(int(word))

    def do_logs(self, words: list[str], named: dict[str, str]) -> str:
        copies = self.world.copies
        return "\n".join(_told(copies[int(n)]) for n in words or map(str, copies))

    # ── The controller ────────────────────────────────────────────────────────────────────────

    def do_learn(self, words: list[str], named: dict[str, str]) -> None:
        for word in words:
            self.world.learn(int(word))

    def do_status(self, words: list[str], named: dict[str, str]) -> str:
        known = self.world.partition
        return (
            f"leader={known.leader or 'nobody'} epoch={known.leader_epoch} "
            f"isr={_listed(known.isr)} elr={_listed(known.elr)}"
        )

    def do_propose(self, words: list[str], named: dict[str, str]) -> str:
        """`propose 1`: a leader sends the in-sync set that it wants, if it wants one."""
        before = len(self.world.letters)
        self.world.propose(int(words[0]))
        if len(self.world.letters) == before:
            return f"{words[0]} has nothing to propose"
        return f"{words[0]} proposes {_listed(self.world.letters[-1].proposal.members)}"

    def _letter(self, words: list[str]) -> Letter:
        return self.world.letters[int(words[0]) - 1 if words else 0]

    def do_decide(self, words: list[str], named: dict[str, str]) -> str:
        """`decide [2]`: the controller decides on the first (second) proposal under way."""
        letter = self._letter(words)
        self.world.decide(letter)
        assert letter.code is not None
        return self.do_status([], {}) if letter.code is ErrorCode.NONE else letter.code.name

    def do_reply(self, words: list[str], named: dict[str, str]) -> None:
        """`reply [2] [lost]`: the leader hears what was decided, or gives up waiting for it."""
        numbers = [word for word in words if word.isdigit()]
        code = ErrorCode.REQUEST_TIMED_OUT if "lost" in words else None
        self.world.reply(self._letter(numbers), code)

    def do_fence(self, words: list[str], named: dict[str, str]) -> str:
        self.world.cluster.fence(*map(int, words))
        return self.do_status([], {})

    def do_unfence(self, words: list[str], named: dict[str, str]) -> str:
        self.world.cluster.unfence(int(words[0]))
        return self.do_status([], {})

    # ── Time, death and return ────────────────────────────────────────────────────────────────

    def do_wait(self, words: list[str], named: dict[str, str]) -> None:
        """`wait 500`: so many milliseconds; the lag that is allowed is 1000."""
        self.world.wait(int(words[0]))

    def do_crash(self, words: list[str], named: dict[str, str]) -> None:
        for word in words:
            self.world.crash(int(word))

    def do_power(self, words: list[str], named: dict[str, str]) -> None:
        """`power 1`: it loses power, and what it has not synced."""
        for word in words:
            self.world.crash(int(word), power=True)

    def do_rot(self, words: list[str], named: dict[str, str]) -> None:
        """`rot 1`: a broker that is down loses the last record of its disk, and nobody notices."""
        copy = self.world.copies[int(words[0])]
        copy.cut(copy.end - 1)

    def do_restart(self, words: list[str], named: dict[str, str]) -> None:
        for word in words:
            self.world.restart(int(word))
