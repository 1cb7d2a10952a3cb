"""One machine with one log, a seed, and everything that can go wrong with its disk.

The real log on a simulated disk, beside the naive one of `model.py`. Each step does one thing to
both. Between, and in the middle of, steps the process dies, the power goes, or the disk refuses;
then the log is opened again and compared with what was promised.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import replace
from random import Random

from ottla.proto.errors import StorageError
from ottla.proto.ids import NO_TIMESTAMP, LeaderEpoch, Offset, TopicPartition
from ottla.replication.compaction.cleaner import CleaningJob, begin_cleaning, finish_cleaning
from ottla.replication.log.log import Log
from ottla.replication.log.manager import LogManager
from ottla.replication.log.surgery import delete_records, purge, reset, truncate
from ottla.replication.log.sync import SyncJob
from ottla.replication.settings import LogSettings
from ottla.replication.storage import failpoints
from ottla.replication.storage.faults import (
    FaultPlan,
    FaultRule,
    FaultyFiles,
    FaultyStore,
    Power,
    PowerCutError,
)
from ottla.replication.storage.memory import MemoryFiles, MemoryStateStore
from ottla.replication.storage.unsynced import Style
from tests.builders import NOW_MS, batches_of
from tests.sim.jobs import run_both
from tests.sim.material import Sent, random_batch, random_conversion, random_settings
from tests.sim.model import Model, ModelBatch, same_records, time_given
from tests.sim.promises import (
    BrokenPromiseError,
    check_assigned,
    check_producers,
    check_reads,
    check_running,
    check_sound,
    check_times,
    epochs_agree,
    everything_of,
    none_of,
    records_between,
    require,
    require_retained,
    rewritten_to,
)
from tests.sim.scenarios import Scenario

PARTITION = TopicPartition("t", 0)
STYLES = (Style.DROP, Style.KEEP, Style.TORN, Style.REORDER, Style.MIXED)
# Places where a process may die between two moments of the disk.
CRASH_POINTS = tuple(
    point.name for point in failpoints.FAILPOINTS if point.name.startswith(("log.", "state."))
)


class World:
    """One seed's story."""

    def __init__(
        self,
        seed: int,
        scenario: Scenario,
        *,
        cut_at: int | None = None,
        style: Style | None = None,
    ) -> None:
        self.dice = Random(f"{scenario.name}/{seed}")
        self.scenario = scenario
        self.story: list[str] = []
        self.power = Power()
        self.style = style  # How unkind every cut is; None: as the dice say.
        self.is_ahead = False  # The high watermark was above what was synced.
        self.disk = MemoryFiles()
        self.disk.make_dir("/data")
        self.plan = FaultPlan()
        self.records: dict[bytes, bytes] = {}
        self.files = FaultyFiles(self.disk, self.power, self.plan)
        self.now_ms = NOW_MS
        self.epoch = 0
        self.sequences: dict[int, int] = {}
        self.settings = random_settings(self.dice, scenario)
        self.model = Model(is_compacted=scenario.compact)
        self.manager = self._boot()
        self.log: Log = self.manager.create(PARTITION)
        # The story begins here; how a log is made has its own test.
        self.first_moment = self.power.moments + 1
        self.power.cut_at = cut_at
        self.op_epoch()

    def run(self, steps: int) -> None:
        names = list(self.scenario.weights)
        weights = list(self.scenario.weights.values())
        for _ in range(steps):
            self.now_ms += self.dice.randrange(10)
            name = self.dice.choices(names, weights)[0]
            getattr(self, f"op_{name}")()
            self._check_running()

    # -- what users do -----------------------------------------------------------------------------

    def op_append(self) -> None:
        sent = self._batch(self.settings)
        if sent.producer_id >= 0:
            self.sequences[sent.producer_id] = sent.sequence + len(sent.records)
        self._tell(f"append {len(sent.records)} at {self.log.end_offset}")
        after = self.model.copy()
        kept = self._kept(sent, self.log.end_offset, self.settings)
        after.append(kept)

        def append() -> None:
            placed = self.log.append_as_leader(
                sent.raw(), epoch=LeaderEpoch(self.epoch), now_ms=self.now_ms
            )
            require(placed.first_offset == self.model.end_offset, f"placed at {placed}")
            given = time_given(kept.header)
            require(placed.append_time_ms == (given or NO_TIMESTAMP), f"{placed}, at {given}")

        self._do(append, [after])

    def op_follow(self) -> None:
        """Two batches at once, as a fetch brings them, the second one perhaps after a gap.

        The leader may convert otherwise than this replica would: one of them heard first.
        """
        end, leader = self.log.end_offset, random_conversion(self.dice, self.settings)
        first = self._kept(self._batch(leader, idempotent=False), end, leader)
        gap = self.dice.choice((0, 0, 3))
        offset = first.header.next_offset + gap
        second = self._kept(self._batch(leader, idempotent=False), offset, leader)
        after = self.model.copy()
        after.append(first)
        middle = after.copy()
        after.append(second)
        self._tell(f"follow at {end}, gap {gap}")
        self._do(
            lambda: self.log.append_as_follower(
                first.raw + second.raw, now_ms=self.now_ms + 1, gaps_allowed=True
            ),
            [middle, after],
        )

    def op_overlap(self) -> None:
        """Jobs that run while the owner goes on."""
        self._tell("overlap")
        log, begun = self.log, list[SyncJob | None]()
        self._do(lambda: begun.append(log.begin_sync()), [self.model])
        for _ in range(self.dice.randint(0, 3)):
            if self.log is log:
                self.op_append()
        if self.log is not log:
            return  # It died meanwhile, and the job with it.
        self._do(
            lambda: run_both(self.dice, log, self.manager, begun[0]),
            [self.model],
            self._note_synced,
        )

    def _note_synced(self) -> None:
        self.model.promised_end = max(self.model.promised_end, self.log.synced_offset)

    def op_roll(self) -> None:
        if self.log.active.size:
            self._do(self.log.roll, [self.model])

    def op_ahead(self) -> None:
        """Everything is committed, synced or not: what a page-cache topic does."""
        self.log.advance_high_watermark(self.log.end_offset)
        self.model.high_watermark = self.log.high_watermark
        self.is_ahead = True

    def op_policy(self) -> None:
        """The topic's policy changes; what is in the log stays."""
        self.settings = replace(self.settings, compact=not self.settings.compact)
        self._tell(f"compact: {self.settings.compact}")
        self.log.adopt_settings(self.settings)

    def op_convert(self) -> None:
        """The topic asks for another codec and another clock; what is in the log stays."""
        self.settings = random_conversion(self.dice, self.settings)
        self._tell(f"{self.settings.compression_type}, {self.settings.timestamp_type.name}")
        self.log.adopt_settings(self.settings)

    def op_sync(self) -> None:
        self._tell("sync")
        self._do(self.log.sync, [self.model], self._promise)

    def op_checkpoint(self) -> None:
        self._tell("checkpoint")
        self._do(self.manager.checkpoint, [self.model], self._promise)

    def _promise(self) -> None:
        self.model.promised_end = self.log.synced_offset
        require(self.log.synced_offset == self.log.end_offset, "a sync covers everything")
        self.log.advance_high_watermark(self.log.synced_offset)
        self.model.high_watermark = self.log.high_watermark

    def op_epoch(self) -> None:
        self.epoch += 1
        self._tell(f"epoch {self.epoch} at {self.log.end_offset}")
        after = self.model.copy()
        after.begin_epoch(self.epoch, self.log.end_offset)
        self._do(lambda: self.log.assign_epoch(LeaderEpoch(self.epoch)), [after])

    def op_truncate(self) -> None:
        low = max(self.model.high_watermark, self.model.start_offset)
        offset = self.dice.randint(low, self.model.end_offset)
        self._tell(f"truncate to {offset} of {self.model.end_offset}")
        after = self.model.copy()
        after.truncate(offset)
        self._do(lambda: truncate(self.log, Offset(offset)), [after], self._after_truncate)

    def _after_truncate(self) -> None:
        # In a gap that compaction left, the log may end at its segment's base: between the last
        # batch and the cut.
        require(self.model.end_offset <= self.log.end_offset, "the cut took too much")
        self.model.end_offset = self.log.end_offset
        self._check_times()
        self._lead_again()

    def _lead_again(self) -> None:
        """Who was a follower for a while leads in a new epoch, and hears from new producers."""
        self.sequences.clear()
        self.op_epoch()

    def op_reset(self) -> None:
        offset = self.model.end_offset + self.dice.randrange(3)
        self._tell(f"reset to {offset}")
        after = self.model.copy()
        after.reset(offset)
        self._do(lambda: reset(self.log, Offset(offset)), [after], self._lead_again)

    def op_delete(self) -> None:
        offset = self.dice.randint(self.model.start_offset, self.model.high_watermark)
        self._tell(f"delete below {offset}")
        after = self.model.copy()
        after.start_offset = offset
        self._do(lambda: delete_records(self.log, Offset(offset), now_ms=self.now_ms), [after])

    def op_retain(self) -> None:
        self._tell("retain")
        before, candidates = self.model.copy(), []
        # The end too: the newest segment goes as well, if all of it is too old.
        for base in [*(segment.base_offset for segment in self.log.segments), before.end_offset]:
            after = before.copy()
            after.start_offset = max(before.start_offset, min(base, before.high_watermark))
            candidates.append(after)
        shelves = [(segment.base_offset, segment.size) for segment in self.log.segments]

        def judge() -> None:
            require_retained(self.log, before, shelves, now_ms=self.now_ms)
            self.model.start_offset = self.log.start_offset
            purge(self.log, now_ms=self.now_ms)

        self._do(lambda: self.manager.retain(now_ms=self.now_ms), candidates, judge)

    def op_clean(self) -> None:
        keys_max = self.dice.choice((3, 1000))
        begun: list[CleaningJob | None] = []
        self._do(
            lambda: begun.append(begin_cleaning(self.log, now_ms=self.now_ms, keys_max=keys_max)),
            [self.model],
        )
        job = begun[0] if begun else None
        if job is None:
            return
        end = job.plan.end_offset
        require(end <= min(self.log.high_watermark, self.log.active.base_offset), "K1")
        self._tell(f"clean {job.plan.dirty_from} to {end}")
        after = self.model.copy()

        def work() -> None:
            try:
                job.run()
            except (OSError, StorageError) as error:
                raise self.log.fail("cleaning", error) from error
            after.batches = self.model.compacted(
                dirty_from=job.plan.dirty_from,
                mapped_to=job.cleaned_to,
                end=rewritten_to(job),
                plan_end=job.plan.end_offset,
                now_ms=self.now_ms,
            )
            finish_cleaning(self.log, job)

        self._do(work, [after], self._after_clean, is_cleaning=True)

    def _after_clean(self) -> None:
        actual = self._actual()
        require(same_records(actual, self.model.readable()), "the last value of every key stays")
        start = self.model.start_offset
        below = [batch for batch in self.model.batches if batch.header.last_offset < start]
        self.model.batches = below + actual
        self._check_times()

    # -- what the world does -----------------------------------------------------------------------

    def op_crash(self) -> None:
        """The process dies now, or at a place in the code during the next steps."""
        if self.dice.random() < 0.5:
            self._tell("kill")
            self.power.crash()
            self._restart([self.model], is_power_cut=False)
            return
        point = self.dice.choice(CRASH_POINTS)
        self._tell(f"arm {point}")
        failpoints.disarm_all()
        failpoints.arm(point, f"raise@{self.dice.randint(1, 3)}")

    def op_cut(self) -> None:
        """The power goes now, or at a moment of the disk during the next steps."""
        if self.dice.random() < 0.3:
            self._power_cut([self.model])
            return
        self.power.cut_at = self.power.moments + self.dice.randint(1, 12)
        self._tell(f"cut at moment {self.power.cut_at}")

    def op_error(self) -> None:
        """The disk refuses something during the next steps."""
        operation = self.dice.choice(
            ("write", "sync", "sync_dir", "commit", "rename", "truncate", "open", "read")
        )
        code = self.dice.choice((errno.EIO, errno.ENOSPC))
        self._tell(f"{errno.errorcode[code]} on {operation}")
        self.plan.rules.append(FaultRule(operation, "*", self.dice.randint(1, 3), code))

    # -- how a step is done ------------------------------------------------------------------------

    def _do(
        self,
        work: Callable[[], object],
        outcomes: list[Model],
        then: Callable[[], None] | None = None,
        *,
        is_cleaning: bool = False,
    ) -> None:
        before = self.model.copy()
        try:
            work()
        except PowerCutError as cut:
            self._tell(f"  power cut: {cut}")
            self._power_cut([before, *outcomes], is_cleaning=is_cleaning)
        except failpoints.CrashError as crash:
            self._tell(f"  crash: {crash}")
            self.power.crash()
            self._restart([before, *outcomes], is_power_cut=False, is_cleaning=is_cleaning)
        except (StorageError, OSError) as error:
            self._tell(f"  refused: {error}")
            require(self.log.offline is not None or self.manager.offline is not None, "L5")
            is_reboot_needed = any(rule.operation == "sync_dir" for rule in self.plan.rules)
            self.plan.rules.clear()
            if is_reboot_needed or self.dice.random() < 0.5:
                self._power_cut([before, *outcomes], is_cleaning=is_cleaning)
            else:
                # After a failed sync nobody knows what the disk has: only promises hold.
                self.power.crash()
                self._restart([before, *outcomes], is_power_cut=True, is_cleaning=is_cleaning)
        else:
            self.model = outcomes[-1]
            if then is not None:
                then()

    def _power_cut(self, outcomes: list[Model], *, is_cleaning: bool = False) -> None:
        style = self.style or self.dice.choice(STYLES)
        self._tell(f"power cut, {style.value}")
        self.power.cut(self.dice, style)
        self._restart(outcomes, is_power_cut=True, is_cleaning=is_cleaning)

    def _restart(
        self, outcomes: list[Model], *, is_power_cut: bool, is_cleaning: bool = False
    ) -> None:
        failpoints.disarm_all()
        self.plan.rules.clear()
        if self.style is None and self.dice.random() < 0.2 and self._fail_during_recovery():
            is_power_cut = True
        if not self.is_ahead:  # A page-cache topic may lose what it committed: `verify` says so.
            check_sound(self.files, self.records)
        self.manager = self._boot()
        if PARTITION not in self.manager.logs:
            raise BrokenPromiseError("the partition is gone")
        self.log = self.manager.logs[PARTITION]
        require(self.log.offline is None, f"offline after a restart: {self.log.offline}")
        require(self.log.start_offset <= self.log.end_offset, "L1")
        self.model = self._recognise(outcomes, is_power_cut=is_power_cut, is_cleaning=is_cleaning)
        self._tell(f"restarted with {self.log.start_offset} to {self.log.end_offset}")
        self.sequences.clear()
        self.epoch = max(self.epoch, self.log.epochs.latest)
        self._check_twice()
        self._check_times()
        self.op_epoch()

    def _fail_during_recovery(self) -> bool:
        """The power goes while the log is being opened; return whether it did."""
        self.power.cut_at = self.power.moments + self.dice.randint(1, 6)
        try:
            self._boot()
        except PowerCutError:
            style = self.dice.choice(STYLES)
            self._tell(f"power cut during recovery, {style.value}")
            self.power.cut(self.dice, style)
            return True
        self.power.crash()
        return False

    def _boot(self) -> LogManager:
        store = FaultyStore(MemoryStateStore(self.records), self.power, self.plan)
        manager = LogManager(self.files, store, "/data", lambda topic: self.settings)
        self.report = manager.open(now_ms=self.now_ms)
        return manager

    # -- promises ----------------------------------------------------------------------------------

    def _recognise(self, outcomes: list[Model], *, is_power_cut: bool, is_cleaning: bool) -> Model:
        """Return the model that the log now agrees with: a promise-keeping prefix of an outcome."""
        actual = self._actual()
        end, start = self.log.end_offset, self.log.start_offset
        for outcome in reversed(outcomes):
            model = outcome.prefix(end) if end < outcome.end_offset else outcome.copy()
            # After a crash of the process alone everything written is still there.
            floor = outcome.promised_end if is_power_cut else outcome.end_offset
            floor = min(floor, min(candidate.end_offset for candidate in outcomes))
            if end < floor or end > outcome.end_offset or start != outcome.start_offset:
                continue
            expected = model.readable()
            agrees = [batch.raw for batch in expected] == [batch.raw for batch in actual]
            if not agrees and is_cleaning:
                # Some groups are swapped and some not: no less than all of them, no more than none.
                least = outcomes[-1].prefix(end).readable()
                most = outcomes[0].prefix(end).readable()
                agrees = records_between(actual, most) and records_between(least, actual)
            if agrees and epochs_agree(self.log, model):
                if is_cleaning:
                    below = [b for b in model.batches if b.header.last_offset < start]
                    model.batches = below + actual
                model.high_watermark = self.log.high_watermark
                model.promised_end = self.log.synced_offset
                require(self.log.synced_offset == end, "what recovery found is durable")
                check_producers(self.log, actual)
                check_assigned(self.log, outcomes)
                return model
        raise none_of(outcomes, self.log, actual)

    def _actual(self) -> list[ModelBatch]:
        return [ModelBatch.of(raw) for raw in batches_of(self.log)]

    def _check_running(self) -> None:
        check_running(self.log, self.model)
        if self.dice.random() < 0.1 and not self.plan.rules:
            check_reads(self.log, self.model, self.dice, self.now_ms)

    def _check_times(self) -> None:
        if not self.plan.rules:
            check_times(self.log, self.model, self.dice, self.now_ms)

    def _check_twice(self) -> None:
        """Opening once more, after nothing happened, gives the same."""
        before = everything_of(self.log)
        self.power.crash()
        self.manager = self._boot()
        self.log = self.manager.logs[PARTITION]
        require(not self.report.recovered, f"nothing is left to recover: {self.report.recovered}")
        require(before == everything_of(self.log), "opening twice is no different from once")

    # -- material ----------------------------------------------------------------------------------

    def _batch(self, settings: LogSettings, *, idempotent: bool = True) -> Sent:
        producer_id = self.dice.choice((-1, 1, 2)) if idempotent else -1
        return random_batch(
            self.dice,
            settings,
            now_ms=self.now_ms,
            producer_id=producer_id,
            # A producer that starts over begins a new epoch: sequences go on from 0.
            producer_epoch=self._producer_epoch(producer_id),
            sequence=self.sequences.get(producer_id, 0) if producer_id >= 0 else -1,
        )

    def _kept(self, sent: Sent, offset: int, settings: LogSettings) -> ModelBatch:
        return sent.kept(settings, offset=offset, epoch=self.epoch, now_ms=self.now_ms)

    def _producer_epoch(self, producer_id: int) -> int:
        if producer_id < 0:
            return -1
        known = self.log.producers.get(producer_id)
        if producer_id in self.sequences and known is not None:
            return known.epoch
        self.sequences[producer_id] = 0
        return known.epoch + 1 if known is not None else 0

    def _tell(self, sentence: str) -> None:
        self.story.append(sentence)
