"""What happened to the replicas of this node, line by line in a file: for judges of a chaos run.

    {"t_ns": 5023117000, "wall_ms": 1700000000000, "node": 1, "event": "led", "topic": "t", …}

`docs/trace.md` has every event and field. A line tells what was so at `t_ns`, on the clock that
never jumps and that all processes of one machine share. So the traces of several nodes, and the
history of their clients, can be put in one order.

Not here: the log for people (`logs.py`), and judging.

T1  a line is written at once and whole, by one append: a process that is killed has written it
T2  high watermarks and syncs move often: of each partition at most one line in `LIMIT_MS` and one
    for the end of that time, with the time and the offset of the last move in it. It is written
    even if the loop comes to it late. Before any other line of that partition what is held back is
    written: within a partition lines are in order
T3  a file that cannot be written disturbs nobody: the log says so once, and the lines that are
    missing are counted in the next one that is written

The file is only added to. It is not rotated and has no limit: it is for runs, not for years.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable
from typing import Any, Final

from ottla.controller.image import MetadataImage
from ottla.node.clock import Clock
from ottla.node.isr import IsrListener
from ottla.node.logs import logger
from ottla.node.options import NodeOptions
from ottla.node.trace_metadata import changes
from ottla.proto.errors import ErrorCode
from ottla.proto.ids import BrokerId, Offset
from ottla.proto.options import node as rows
from ottla.replication.leader import IsrProposal, PartitionView
from ottla.replication.replica import Replica
from ottla.replication.surroundings import ReplicaEvents

_log = logger("node.trace")

FORMAT: Final = 1
LIMIT_MS: Final = 10
_FILE_MODE: Final = 0o640
# A pipe that nobody reads is refused, or full, and never waited for.
_FLAGS: Final = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK

Facts = dict[str, Any]
# Runs something after so many seconds, as `loop.call_later` does.
Later = Callable[[float, Callable[[], None]], object]


class TraceFile:
    """A file that lines are added to, for as long as that works (T1, T3)."""

    def __init__(self, path: str) -> None:
        self._path: Final = path
        self._fd: int | None = None
        self._is_closed = self._is_torn = self._is_told = False
        # Since the last line that could be written.
        self.lost_count = 0

    def write(self, line: bytes) -> None:
        if self._is_closed:
            return
        try:
            if self._fd is None:
                self._fd = os.open(self._path, _FLAGS, _FILE_MODE)
            # What a full disk has left of the last line is ended first.
            whole = b"\n" + line if self._is_torn else line
            written = os.write(self._fd, whole)
            self._is_torn = written < len(whole) and (self._is_torn or written > 0)
            if written < len(whole):
                self._lose("the disk is full, or who reads it is slow")
            else:
                self.lost_count = 0
        except OSError as error:
            self._lose(error.strerror or str(error))

    def _lose(self, why: str) -> None:
        self.lost_count += 1
        if not self._is_told:
            self._is_told = True
            _log.warning("trace_not_written", path=self._path, why=why)

    def close(self) -> None:
        fd, self._fd, self._is_closed = self._fd, None, True
        if fd is not None:
            os.close(fd)


class Trace(ReplicaEvents, IsrListener):
    """Tells a `TraceFile` what becomes of replicas, and of the metadata."""

    def __init__(self, node_id: BrokerId, file: TraceFile, clock: Clock, later: Later) -> None:
        self._node_id: Final = node_id
        self._file: Final = file
        self._clock: Final = clock
        self._later: Final = later
        self._image: MetadataImage | None = None
        # What was told last of a partition that is led here.
        self._views: Final = dict[tuple[str, int], PartitionView]()
        # When a frequent event was written last, and what has been held back since (T2).
        self._written_ns: Final = dict[tuple[str, int, str], int]()
        self._held: Final = dict[tuple[str, int, str], Facts]()
        self._is_waiting = False
        self._write(self._at("started") | {"format": FORMAT, "pid": os.getpid()})

    # ── What replicas tell ────────────────────────────────────────────────────────────────────

    def led(self, replica: Replica) -> None:
        core = replica.leader
        if core is None:
            return
        key, view = _key(replica), core.view
        before, self._views[key] = self._views.get(key), view
        if before is None or before.leader_epoch != view.leader_epoch:
            start = {"epoch_start": core.epoch_start, **_offsets(replica)}
            self._tell(replica, "led", _view_facts(view) | start)
        elif _view_facts(before) != _view_facts(view):
            self._tell(replica, "isr", _view_facts(view) | _offsets(replica))

    def followed(self, replica: Replica) -> None:
        self._views.pop(_key(replica), None)
        self._tell(replica, "followed", {"leader": replica.source, **_offsets(replica)})

    def committed(self, replica: Replica) -> None:
        self._tell_seldom(
            replica,
            "committed",
            {"high_watermark": replica.log.high_watermark, "is_leader": replica.is_leader},
        )

    def synced(self, replica: Replica) -> None:
        log = replica.log
        facts = {"synced_offset": log.synced_offset, "end_offset": log.end_offset}
        self._tell_seldom(replica, "synced", facts)

    def cut(self, replica: Replica, old_end: Offset, *, is_reset: bool) -> None:
        facts = {"old_end_offset": old_end, "is_reset": is_reset, **_offsets(replica)}
        self._tell(replica, "cut", facts)

    def isr_proposed(self, replica: Replica, proposal: IsrProposal) -> None:
        self._tell(replica, "isr_proposed", _proposal_facts(proposal))

    def isr_answered(self, replica: Replica, proposal: IsrProposal, code: ErrorCode) -> None:
        self._tell(replica, "isr_answered", _proposal_facts(proposal) | {"code": code.name})

    def failed(self, replica: Replica, why: str) -> None:
        self._tell(replica, "failed", {"why": why, **_offsets(replica)})

    # ── What the metadata tell ────────────────────────────────────────────────────────────────

    async def obey(self, image: MetadataImage) -> None:
        """Newer metadata is obeyed here: tell what is not as it was."""
        self.metadata(image)

    def metadata(self, image: MetadataImage) -> None:
        before, self._image = self._image, image
        for event, facts in changes(before, image):
            if event == "deleted":
                self._forget(facts["topic"])
            self._write(self._at(event) | facts)

    def _forget(self, topic: str) -> None:
        known: tuple[dict[Any, Any], ...] = (self._views, self._written_ns, self._held)
        for one in known:
            for key in [key for key in one if key[0] == topic]:
                del one[key]

    # ── Lines ─────────────────────────────────────────────────────────────────────────────────

    def _tell(self, replica: Replica, event: str, facts: Facts) -> None:
        topic, index = _key(replica)
        for kind in ("synced", "committed"):
            held = self._held.pop((topic, index, kind), None)
            if held is not None:
                self._write(held)
        self._write(self._about(replica, event) | facts)

    def _tell_seldom(self, replica: Replica, event: str, facts: Facts) -> None:
        """Write this, or hold it back until the time of the last one is over (T2)."""
        line = self._about(replica, event) | facts
        key = (*_key(replica), event)
        now_ns = line["t_ns"]
        if now_ns - self._written_ns.get(key, -LIMIT_MS * 1_000_000) >= LIMIT_MS * 1_000_000:
            # A loop that was held up is later than the timer: the last move of that time is told.
            late = self._held.pop(key, None)
            if late is not None:
                self._write(late)
            self._written_ns[key] = now_ns
            self._write(line)
            return
        self._held[key] = line
        if not self._is_waiting:
            self._is_waiting = True
            self._later(LIMIT_MS / 1000, self._on_time)

    def _on_time(self) -> None:
        self._is_waiting = False
        self.flush()

    def flush(self) -> None:
        """Write what was held back."""
        now_ns = self._now_ns()
        for key, line in self._held.items():
            self._written_ns[key] = now_ns
            self._write(line)
        self._held.clear()

    def close(self) -> None:
        self.flush()
        self._write(self._at("stopped"))
        self._file.close()

    def _about(self, replica: Replica, event: str) -> Facts:
        topic, index = _key(replica)
        place = {"topic": topic, "partition": index, "leader_epoch": replica.leader_epoch}
        return self._at(event) | place

    def _at(self, event: str) -> Facts:
        wall_ms = self._clock.now_ms()
        return {
            "t_ns": self._now_ns(), "wall_ms": wall_ms, "node": self._node_id, "event": event
        }  # fmt: skip

    def _now_ns(self) -> int:
        return self._clock.monotonic_us() * 1_000

    def _write(self, facts: Facts) -> None:
        if self._file.lost_count:
            facts["lines_lost"] = self._file.lost_count
        self._file.write(json.dumps(facts).encode() + b"\n")


class TellsBoth(IsrListener):
    """Tells two listeners of in-sync sets: whoever counts them, and the trace."""

    def __init__(self, first: IsrListener, second: IsrListener) -> None:
        self._both: Final = (first, second)

    def isr_proposed(self, replica: Replica, proposal: IsrProposal) -> None:
        for one in self._both:
            one.isr_proposed(replica, proposal)

    def isr_answered(self, replica: Replica, proposal: IsrProposal, code: ErrorCode) -> None:
        for one in self._both:
            one.isr_answered(replica, proposal, code)


def open_trace(options: NodeOptions, clock: Clock) -> Trace | None:
    """Return the trace that `trace.file` asks for, if it does. For the thread of the event loop."""
    path = options.static.value_of(rows.TRACE_FILE)
    if not path:
        return None
    later = asyncio.get_running_loop().call_later
    return Trace(options.node_id, TraceFile(path), clock, later)


def _key(replica: Replica) -> tuple[str, int]:
    return replica.partition.topic, replica.partition.partition


def _offsets(replica: Replica) -> Facts:
    log = replica.log
    return {
        "start_offset": log.start_offset,
        "high_watermark": log.high_watermark,
        "synced_offset": log.synced_offset,
        "end_offset": log.end_offset,
    }


def _view_facts(view: PartitionView) -> Facts:
    return {
        "partition_epoch": view.partition_epoch,
        "isr": list(view.isr),
        "elr": list(view.elr),
        "min_isr": view.min_isr,
    }


def _proposal_facts(proposal: IsrProposal) -> Facts:
    return {
        "partition_epoch": proposal.partition_epoch,
        "isr": list(proposal.members),
        "broker_epochs": [epoch for _, epoch in proposal.isr],
        "is_synced": proposal.is_synced,
    }
