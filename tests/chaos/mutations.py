"""Rules that are undone on purpose in a real node, and the scenario that must notice each of them.

The simulator undoes the same rules (`tests/sim/…/breaks.py`); here real processes, real disks and a
judge that only sees what clients saw have to find them.

Not here: running them (`broken_node.py`, `test_mutations.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from ottla.node.groups.group import Group
from ottla.node.groups.ledger import Ledger
from ottla.node.groups.loading import Loaded
from ottla.node.groups.writing import as_group_error, code_of
from ottla.node.kafka import leading
from ottla.node.transactions.ledger import Ledger as TransactionLedger
from ottla.node.transactions.transaction import Transaction
from ottla.node.transactions.words import FOR_EVER_MS, OLD_CLIENT, Refused, Told, WriteValue
from ottla.node.transactions.words import State as TransactionState
from ottla.proto.errors import ErrorCode, RequestError, StorageError
from ottla.proto.ids import Offset
from ottla.replication.log import sync as log_sync
from ottla.replication.storage.ports import File
from ottla.replication.transactions import Transactions
from tests.scripts.replication.breaks import (
    CountsUnsynced,
    CutsAtHighWatermark,
    NoEpochStart,
    NoMinimum,
    ShrinksEarly,
)
from tests.sim.cluster.breaks import elect_outside_isr_and_elr
from tests.sim.replication.breaks import (
    HighWatermarkInclusive,
    acknowledge_before_replication,
    append_below_the_minimum,
    follow_with,
    forget_sequences,
    keep_claims_of_other_lives,
    lead_with,
    leave_syncs_to_us,
    never_sync,
    obey_whom_one_should_not,
)


@dataclass(frozen=True, slots=True)
class Mutation:
    """One rule undone: its name, the scenario that must go red, what is undone, and its rows."""

    name: str
    scenario: str
    undo: Callable[[Any], None]
    # One of these rows of the judge must find it: what the rule is there for. A cluster that
    # stands still, or a process that falls, is found by anybody.
    rows: frozenset[int]

    def found_by(self, broken: Collection[int]) -> list[int]:
        """Return the rows that have found it, of those that are broken."""
        return sorted(self.rows.intersection(broken))


def serve_when_cut_off(patch: Any) -> None:
    """Rule 13: a leader that hears from nobody goes on."""
    patch.setattr(leading, "_require_unreplaced", lambda broker, replica: None)


def ignore_the_minimum(patch: Any) -> None:
    """Rules 25 and 29: what is acknowledged to all is on however few there are.

    Either rule alone is enough that nothing is acknowledged.
    """
    append_below_the_minimum(patch)
    lead_with(NoMinimum)(patch)


def ignore_failed_syncs(patch: Any) -> None:
    """Rule 48: a sync that failed is taken for one that did not."""

    def sync(file: File) -> None:
        with suppress(OSError):
            file.sync()

    patch.setattr(log_sync, "_sync", sync)
    leave_syncs_to_us(patch)


def acknowledge_commits_before_replication(patch: Any) -> None:
    """W1 of writing.py: what a group commits counts as soon as the coordinator has it."""

    def write(ledger: Ledger, batch: Any, apply: Any, told: Any) -> bool:
        try:
            appended = ledger._append(batch)
        except (RequestError, StorageError) as error:
            told(as_group_error(code_of(error)))
            return False
        if not appended.is_duplicate:
            apply(Offset(appended.last_offset + 1))
        told(None)
        return True

    patch.setattr(Ledger, "write", write)


def forget_groups(patch: Any) -> None:
    """P1 of ledger.py: who begins to coordinate knows nothing of what the log holds."""
    take_over = Ledger._take_over
    patch.setattr(Ledger, "_take_over", lambda ledger, loaded: take_over(ledger, Loaded()))


def take_commits_of_anybody(patch: Any) -> None:
    """Who was thrown out of a group, and comes back late, still commits what it knows."""
    patch.setattr(Group, "commit_refusal", lambda *_: ErrorCode.NONE)


def show_the_first_open_record(patch: Any) -> None:
    """T1 of transactions.py: the last stable offset, which is exclusive, is shown as well."""
    exclusive = Transactions.last_stable

    def inclusive(transactions: Transactions, high_watermark: Offset) -> Offset:
        return Offset(min(high_watermark, exclusive(transactions, high_watermark) + 1))

    patch.setattr(Transactions, "last_stable", inclusive)


def forget_markers(patch: Any) -> None:
    """C2 of coordinator.py: who begins to coordinate sends no markers of what was decided."""
    begin, go_on = TransactionLedger.write, TransactionLedger._go_on
    decided_here = set[Transaction]()

    def write(ledger: TransactionLedger, one: Transaction, value: Any, told: Any) -> bool:
        decided_here.add(one)
        return begin(ledger, one, value, told)

    def go_on_here(ledger: TransactionLedger, one: Transaction) -> None:
        if one in decided_here:
            go_on(ledger, one)

    patch.setattr(TransactionLedger, "write", write)
    patch.setattr(TransactionLedger, "_go_on", go_on_here)


def keep_the_epoch(patch: Any) -> None:
    """KIP-890: a producer goes on with the epoch of the transaction that has ended."""
    end = Transaction.end

    def end_as_before(one: Transaction, *args: Any, **more: Any) -> Any:
        return end(one, *args, **{**more, "version": OLD_CLIENT})

    patch.setattr(Transaction, "end", end_as_before)


# Far below what is drawn for some that are prepared.
_IMPATIENT_MS: Final = 3_000


def time_out_what_is_prepared(patch: Any) -> None:
    """T5 of transaction.py: what waits for its decision is aborted after a while, as any other."""
    late = Transaction.time_out

    def time_out(one: Transaction, now_ms: int) -> WriteValue | None:
        value = one.value
        waits = value.timeout_ms == FOR_EVER_MS and value.state is TransactionState.ONGOING
        if waits and one.pending is None and value.started_ms + _IMPATIENT_MS <= now_ms:
            return WriteValue(one._fenced(now_ms), Told())
        return late(one, now_ms)

    patch.setattr(Transaction, "time_out", time_out)


def abort_what_is_to_be_kept(patch: Any) -> None:
    """T5 of transaction.py: who comes back to keep what is prepared aborts it."""

    def keep(one: Transaction, wish: Any, now_ms: int, fresh: int | None) -> WriteValue:
        return WriteValue(one._fenced(now_ms), Refused(ErrorCode.CONCURRENT_TRANSACTIONS))

    patch.setattr(Transaction, "_keep", keep)


# What was acknowledged or shown is gone, has changed, or differs between copies.
_LOSS: Final = frozenset({1, 3, 4, 5, 9, 10, 11, 13, 15, 16})
# It was acknowledged though too few had it, whether or not it was lost.
_TOO_EARLY: Final = _LOSS | {12, 19}
_COMMITS: Final = frozenset({21, 25, 26, 27})
_TORN: Final = frozenset({22, 28, 30, 31})
_NOT_KEPT: Final = frozenset({34})

MUTATIONS: Final = (
    Mutation("ack-before-replication", "C02", acknowledge_before_replication, _TOO_EARLY),
    Mutation("isr-shrunk-locally", "C05", lead_with(ShrinksEarly), _TOO_EARLY),
    Mutation("truncate-to-high-watermark", "C02B", follow_with(CutsAtHighWatermark), _LOSS),
    Mutation("no-epoch-start", "C02J", lead_with(NoEpochStart), _LOSS),
    Mutation("high-watermark-inclusive", "C02", lead_with(HighWatermarkInclusive), _TOO_EARLY),
    Mutation("no-fsync", "C12", never_sync, _LOSS),
    Mutation("failed-sync-ignored", "C32", ignore_failed_syncs, _LOSS),
    Mutation("follower-counts-unsynced", "C12S", follow_with(CountsUnsynced), _LOSS),
    Mutation("no-dedup", "C23", forget_sequences, frozenset({2, 10})),
    Mutation("leader-outside-isr", "C16B", elect_outside_isr_and_elr, _LOSS | {18}),
    Mutation("minimum-ignored", "C07B", ignore_the_minimum, _TOO_EARLY),
    Mutation("serve-when-cut-off", "C05", serve_when_cut_off, _LOSS | {17}),
    Mutation("claims-of-other-lives", "C17B", keep_claims_of_other_lives, _LOSS | {18, 20}),
    Mutation("empty-disk-leads", "C17B", obey_whom_one_should_not, _LOSS | {18, 20}),
    Mutation("commit-before-replication", "C40", acknowledge_commits_before_replication, _COMMITS),
    Mutation("groups-not-reloaded", "C40", forget_groups, _COMMITS),
    Mutation("commits-of-anybody", "C40", take_commits_of_anybody, _COMMITS),
    Mutation("last-stable-inclusive", "C46", show_the_first_open_record, _TORN),
    Mutation("markers-lost-on-failover", "C46O", forget_markers, _TORN | {32, 33}),
    Mutation("epoch-not-bumped", "C46", keep_the_epoch, _TORN),
    Mutation("prepared-times-out", "C46", time_out_what_is_prepared, _NOT_KEPT),
    Mutation("prepared-not-kept", "C46", abort_what_is_to_be_kept, _NOT_KEPT),
)
BY_NAME: Final = {one.name: one for one in MUTATIONS}
