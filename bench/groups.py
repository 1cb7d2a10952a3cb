"""What do many groups cost three nodes, and how long does a large group take to share out anew?

    python -m bench.groups [--groups 1000] [--members 5] [--beat 3] [--seconds 20] [--crowd 200]

Members speak the protocol themselves, each on a connection of its own, as those of every client do;
so twice as many descriptors are needed as there are members (`ulimit -n`, here and in each node).

- `beats`: all members of all groups send a heartbeat every `--beat` seconds. Told: heartbeats that
  were answered, processor time of the nodes for them, memory of the nodes.
- `crowd`: one group of `--crowd` members. One of them joins again, the others hear of it with their
  next heartbeat. Told: from that join until the last member has its share, of the next generation.
  So no group is done sooner than its slowest heartbeat: with heartbeats every 1 s the bound of 3 s
  is judged, and leaves 2 s to the nodes; with Kafka's default of 3 s, of which nearly all passes
  until the last member hears of it, the time is only told. `--groups 0`: nothing but this.

Not here: reading records.
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import signal
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from bench.machine import machine_of
from bench.measure import say, table, workspace
from bench.replication_cluster import Cluster, memory_mb, started
from ottla.clients.connection import Connection
from ottla.clients.errors import NotSentError, OutcomeUnknownError
from ottla.proto.errors import ErrorCode, RequestError
from ottla.proto.kafka.apis import FIND_COORDINATOR, HEARTBEAT, JOIN_GROUP, SYNC_GROUP, ApiRow
from ottla.proto.kafka.message import Message

FREE_BYTES: Final = 10**9
SESSION_MS: Final = 45_000
REBALANCE_MS: Final = 60_000
TIMEOUT_S: Final = 120.0
# Heartbeats of the crowd: what is judged, and what Kafka's clients do unless told otherwise.
JUDGED_BEAT_S: Final = 1.0
DEFAULT_BEAT_S: Final = 3.0
SHARED_OUT_MAX_S: Final = 3.0
CROWD_ROUNDS: Final = 5
# So many groups are begun at a time.
AT_ONCE: Final = 50
_PAUSE_S: Final = 0.1
_SPARE_DESCRIPTORS: Final = 200
# While the topic of the groups is being made and loaded.
_NOT_YET: Final = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
    }
)
# A member joins again: somebody else began a round, or nobody knows it any more.
_JOIN_AGAIN: Final = frozenset(
    {
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
    }
)


class Member:
    """One member of a group, with its own connection and its own heartbeats.

    It does what clients do when a coordinator moves, throws it out or cannot be reached: it looks
    for the coordinator anew, and joins again.
    """

    def __init__(self, group: str, addresses: Sequence[str], beat_s: float) -> None:
        self._group: Final = group
        self._addresses: Final = addresses
        self._connection: Connection | None = None
        self._beat_s: Final = beat_s
        self._id = ""
        self._subscription = 0
        self.generation = -1
        self.beats = 0
        # How often the coordinator was looked for again.
        self.searches = 0
        self._has_share: Final = asyncio.Event()
        self._work: asyncio.Task[None] | None = None

    async def enter(self) -> None:
        """Join, take the share, and send heartbeats from then on."""
        await self.join()
        self._work = asyncio.create_task(self._beat())
        # Whoever waits for a share must hear that none will come.
        self._work.add_done_callback(lambda _: self._has_share.set())

    async def join_again(self) -> None:
        """Join with another subscription: with the same, only a leader would begin a round."""
        self._subscription += 1
        await self._stop_beats()
        await self.enter()

    async def close(self) -> None:
        await self._stop_beats()
        if self._connection is not None:
            self._connection.abort()

    async def _stop_beats(self) -> None:
        work, self._work = self._work, None
        if work is not None:
            work.cancel()
            await asyncio.wait([work])

    async def reached(self, generation: int) -> None:
        """Wait until it has a share of this generation or a later one."""
        async with asyncio.timeout(TIMEOUT_S):
            while self.generation < generation:
                if self._work is not None and self._work.done():
                    await self._work
                self._has_share.clear()
                await self._has_share.wait()

    async def join(self) -> None:
        while True:
            joined = await self._ask(JOIN_GROUP, 9, self._join_fields())
            if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
                self._id = joined.member_id
                continue
            if joined.error_code == ErrorCode.UNKNOWN_MEMBER_ID and self._id:
                # It took too long, or the coordinator is new: from the beginning.
                self._id = ""
                continue
            _require(joined.error_code, "join")
            shares = [{"member_id": one.member_id, "assignment": b"s"} for one in joined.members]
            synced = await self._ask(SYNC_GROUP, 5, self._sync_fields(joined, shares))
            if synced.error_code in _JOIN_AGAIN:
                self._thrown_out(synced.error_code)
                continue
            _require(synced.error_code, "sync")
            self.generation = joined.generation_id
            self._has_share.set()
            return

    def _thrown_out(self, code: int) -> None:
        if code == ErrorCode.UNKNOWN_MEMBER_ID:
            self._id = ""

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(self._beat_s)
            answer = await self._ask(HEARTBEAT, 4, self._beat_fields())
            self.beats += 1
            if answer.error_code in _JOIN_AGAIN:
                self._thrown_out(answer.error_code)
                await self.join()
            else:
                _require(answer.error_code, "heartbeat")

    async def _ask(self, row: ApiRow, version: int, fields: dict[str, Any]) -> Message:
        """Return the answer of whoever coordinates the group, looked for anew if need be."""
        end = time.perf_counter() + TIMEOUT_S
        while True:
            told = "nobody answered"
            try:
                connection = await self._coordinator()
                answer = await connection.call(row, fields, version, timeout_s=TIMEOUT_S)
            except (NotSentError, OutcomeUnknownError) as error:
                told = str(error)
                self._connection = None
            else:
                if answer.error_code not in _NOT_YET:
                    return answer
                told = ErrorCode(answer.error_code).name
                if answer.error_code != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                    connection.abort()
                    self._connection = None
            if time.perf_counter() > end:
                raise SystemExit(f"{row.name} of {self._group}: {told}, for {TIMEOUT_S:.0f} s")
            await asyncio.sleep(_PAUSE_S)

    async def _coordinator(self) -> Connection:
        if self._connection is None:
            self.searches += 1
            # Anybody knows; the next one if this one cannot be asked.
            address = self._addresses[self.searches % len(self._addresses)]
            host, port = await _coordinator(address, self._group)
            self._connection = await Connection.open(host, port, negotiate=False)
        return self._connection

    def _beat_fields(self) -> dict[str, Any]:
        return {
            "group_id": self._group,
            "generation_id": self.generation,
            "member_id": self._id,
            "group_instance_id": None,
        }

    def _join_fields(self) -> dict[str, Any]:
        return {
            "group_id": self._group,
            "session_timeout": SESSION_MS,
            "rebalance_timeout": REBALANCE_MS,
            "member_id": self._id,
            "group_instance_id": None,
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": b"%d" % self._subscription}],
            "reason": None,
        }

    def _sync_fields(self, joined: Message, shares: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "group_id": self._group,
            "generation_id": joined.generation_id,
            "member_id": self._id,
            "group_instance_id": None,
            "protocol_type": "consumer",
            "protocol_name": "range",
            "assignments": shares,
        }


def _require(code: int, what: str) -> None:
    if code:
        raise RequestError(ErrorCode(code), f"a {what} was refused.")


async def _coordinator(address: str, group: str) -> tuple[str, int]:
    """Return host and port of the coordinator, asked for until it is there."""
    host, _, port = address.rpartition(":")
    async with await Connection.open(host, int(port)) as connection:
        end = time.perf_counter() + TIMEOUT_S
        while True:
            fields = {"key_type": 0, "coordinator_keys": [group]}
            (found,) = (await connection.call(FIND_COORDINATOR, fields, 6)).coordinators
            if found.error_code not in _NOT_YET:
                _require(found.error_code, "search for the coordinator")
                return found.host, found.port
            if time.perf_counter() > end:
                raise SystemExit(f"{group} had no coordinator in {TIMEOUT_S:.0f} s")
            await asyncio.sleep(_PAUSE_S)


async def _group(cluster: Cluster, name: str, members: int, beat_s: float) -> list[Member]:
    """Return the members of a new group, all of them in one generation."""
    made = [Member(name, cluster.addresses, beat_s) for _ in range(members)]
    await asyncio.gather(*(one.enter() for one in made))
    newest = max(one.generation for one in made)
    await asyncio.gather(*(one.reached(newest) for one in made))
    return made


async def _beats(cluster: Cluster, options: argparse.Namespace) -> list[list[str]]:
    gate = asyncio.Semaphore(AT_ONCE)
    empty_mb = sum(memory_mb(pid)[1] for pid in cluster.pids)
    members = list[Member]()

    async def begin(number: int) -> None:
        async with gate:
            members.extend(await _group(cluster, f"bench-{number}", options.members, options.beat))

    began = time.perf_counter()
    try:
        await asyncio.gather(*(begin(number) for number in range(options.groups)))
        took_s = time.perf_counter() - began
        say(f"{len(members):,} members are in")
        beats, cpu, began = sum(one.beats for one in members), cluster.cpu(), time.perf_counter()
        await asyncio.sleep(options.seconds)
        lasted_s = time.perf_counter() - began
        beats = sum(one.beats for one in members) - beats
        used = cluster.cpu().since(cpu)
        full_mb = sum(memory_mb(pid)[1] for pid in cluster.pids)
    finally:
        await asyncio.gather(*(one.close() for one in members))
    return [
        ["groups, members", f"{options.groups:,}, {len(members):,}"],
        ["all in after", f"{took_s:.1f} s"],
        ["heartbeats answered", f"{beats / lasted_s:,.0f} per s"],
        ["processor time of the three nodes", f"{100 * used.all_s / lasted_s:.1f} % of a core"],
        ["a heartbeat", f"{used.all_s / max(beats, 1) * 1e6:.0f} µs, idle work included"],
        ["memory of the three nodes", f"{empty_mb:.0f} MB, with the groups {full_mb:.0f} MB"],
        ["coordinators looked for again", f"{sum(one.searches - 1 for one in members):,} times"],
    ]


async def _crowd(cluster: Cluster, count: int, beat_s: float) -> list[list[str]]:
    say(f"{count} members of one group, heartbeats every {beat_s:g} s")
    members = await _group(cluster, f"bench-crowd-{beat_s:g}", count, beat_s)
    took_s = []
    try:
        for number in range(CROWD_ROUNDS):
            say(f"shared out anew, {number + 1} of {CROWD_ROUNDS}")
            before, began = members[0].generation, time.perf_counter()
            await asyncio.gather(
                members[number].join_again(), *(one.reached(before + 1) for one in members)
            )
            took_s.append(time.perf_counter() - began)
            newest = max(one.generation for one in members)
            await asyncio.gather(*(one.reached(newest) for one in members))
    finally:
        await asyncio.gather(*(one.close() for one in members))
    is_judged = beat_s == JUDGED_BEAT_S
    verdict = "good" if max(took_s) < SHARED_OUT_MAX_S else "TOO SLOW"
    return [
        ["one group of", f"{count} members, heartbeats every {beat_s:g} s"],
        ["shared out anew in", f"median {statistics.median(took_s):.2f} s"],
        ["the slowest of them", f"{max(took_s):.2f} s of {CROWD_ROUNDS} times"],
        [f"less than {SHARED_OUT_MAX_S:g} s", verdict if is_judged else "not judged"],
        ["coordinators looked for again", f"{sum(one.searches - 1 for one in members):,} times"],
    ]


async def _run(options: argparse.Namespace, directory: Path) -> None:
    print(machine_of(str(directory)).line())
    async with started(directory / "cluster") as cluster:
        for beat_s in (JUDGED_BEAT_S, DEFAULT_BEAT_S):
            rows = await _crowd(cluster, options.crowd, beat_s)
            print(table(["rebalance", ""], rows), flush=True)
        if options.groups:
            rows = await _beats(cluster, options)
            print(table(["heartbeats", ""], rows), flush=True)


def _raise_descriptors(wanted: int) -> None:
    """Allow so many connections here and in the nodes, which inherit it, or say what is missing."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < wanted:
        raise SystemExit(f"{wanted} descriptors are needed and {hard} allowed: ulimit -n {wanted}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--groups", type=int, default=1000)
    parser.add_argument("--members", type=int, default=5, help="of each group")
    parser.add_argument("--beat", type=float, default=3.0, help="seconds between heartbeats")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--crowd", type=int, default=200, help="members of the one large group")
    parser.add_argument("--dir")
    options = parser.parse_args()
    _raise_descriptors(options.groups * options.members + options.crowd + _SPARE_DESCRIPTORS)
    # As Ctrl-C does: the nodes are stopped, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with workspace(options.dir, free_bytes_min=FREE_BYTES) as directory:
        asyncio.run(_run(options, Path(directory)))


if __name__ == "__main__":
    main()
