"""What is asked of every peer: one row each.

    kind        one turn
    produce     `records` written as fast as it goes, by `clients` processes; then the topic goes
    consume     `records` that were written once, read from the start; cold: not from the page
                cache; warm: just read once; ahead: when the driver had fetched all of them before
    together    written and read at the same time, at the tail
    pace        single records, one due every 1/rate s: time to the acknowledgement
    flow        the same, and time until a reader at the tail has each
    start       three nodes from nothing to the first acknowledged write; then memory when idle
    outage      the leader is killed with SIGKILL under a writer that tries again soon; on the
                cluster whose start was just measured, if it was
    partitions  written before and after so many partitions are made; made, and failed over; warmed
                up before with 12 times what is measured, to one partition
    restart     a cluster with so many records is stopped and started; killed and started; every
                round on the same data

W1  a row's name is unique, and says what it is: results are kept under it
W2  a turn is bounded: by its number of records, and by `seconds_max`; what writes as fast as it
    goes by `turns.TRAFFIC_S`, and a pace by what it takes to see that it is not kept

Not here: how a turn is taken (`turns.py`), what the figures should be (`goals.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from bench.peers.table import VARIANTS
from bench.versus.goals import variants_for

Kind = Literal[
    "produce",
    "consume",
    "together",
    "pace",
    "flow",
    "start",
    "outage",
    "partitions",
    "restart",
]
Direction = Literal["more", "less"]

# Records that a driver hands over at once.
_PER_CALL: Final = 1000
_WARM_RECORDS: Final = 30_000
PAGECACHE: Final = ("ottla-pagecache", "kafka")
FSYNC: Final = ("ottla-fsync", "kafka-flush")
BOTH: Final = ("ottla-pagecache", "kafka", "ottla-fsync", "kafka-flush")
PACED: Final = (*BOTH, "nats", "nats-sync")
# What one gets without setting anything.
DEFAULTS: Final = ("ottla-fsync", "kafka", "nats")


@dataclass(frozen=True, slots=True)
class Workload:
    """One row."""

    name: str
    kind: Kind
    title: str
    variants: tuple[str, ...]
    # The figure that stands in the table, its unit, and whether more of it is better.
    figure: str = "mb_per_s"
    unit: str = "MB/s"
    better: Direction = "more"
    size: int = 1024
    records: int = 0
    acks: str = "all"
    partitions: int = 12
    clients: int = 1
    codec: str = "none"
    rate: int = 0
    is_cold: bool = False
    # Read when all is in the driver already: what the driver itself can do, beside the others.
    is_ahead: bool = False
    # Of an outage: the leader is also the active controller.
    is_controller: bool = False
    seconds_max: float = 120.0
    # How long a turn takes at most, roughly, with making and removing its topic: for the budget.
    about_s: float = 8.0
    # Of a turn that takes minutes.
    rounds_max: int = 99
    # The row on whose cluster this one is taken, right after it.
    follows: str = ""
    # "quick"; every row is in "full", and those that a goal names are in "goals".
    sets: tuple[str, ...] = ()

    @property
    def is_alone(self) -> bool:
        """Return whether each turn has a new cluster, and no other runs beside it."""
        return self.kind in ("start", "outage", "partitions", "restart")

    @property
    def is_fast(self) -> bool:
        """Return whether it goes as fast as it can: so fast as the system is warm."""
        return self.kind in ("produce", "consume", "together")

    @property
    def is_lasting(self) -> bool:
        """Return whether all rounds are taken on one cluster: it takes minutes to fill."""
        return self.kind == "restart"

    @property
    def is_compared(self) -> bool:
        """Return whether the figure is one of a peer: else it says what the driver can do."""
        return not self.is_ahead

    @property
    def payload_bytes(self) -> int:
        return self.size * self.records

    @property
    def warm_records(self) -> int:
        """Return how many are read before the clock starts: all, unless it should be cold."""
        is_few = self.is_cold or self.is_ahead
        return min(_WARM_RECORDS, self.records) if is_few else self.records

    def part(self, share: float) -> Workload:
        """Return the same with fewer records and partitions: to see that it works, and no more."""
        if share == 1.0:
            return self
        step = 1 if self.rate else _PER_CALL * self.clients
        records = max(step, round(self.records * share) // step * step) if self.records else 0
        many = self.kind == "partitions"
        partitions = max(10, round(self.partitions * share)) if many else self.partitions
        return replace(self, records=max(records, self.rate // 2), partitions=partitions)

    def facts(self) -> dict[str, object]:
        return {
            "name": self.name,
            "kind": self.kind,
            "title": self.title,
            "figure": self.figure,
            "unit": self.unit,
            "better": self.better,
        }


_SIZE_NAMES: Final = {100: "100 B", 1024: "1 KB", 10_240: "10 KB"}
# By rate, in every round. p99 is the 5th, 13th, 31st or 201st of them from above; p99.9 says
# something from 3,000 on.
_PACED_RECORDS: Final = {100: 400, 300: 1200, 1000: 3000, 10_000: 20_000}
_TURN_RECORDS: Final = {100: 1_000_000, 1024: 250_000, 10_240: 30_000}


def _produce(
    size: int = 1024,
    *,
    acks: str = "all",
    partitions: int = 12,
    clients: int = 1,
    codec: str = "none",
    variants: tuple[str, ...] = BOTH,
    sets: tuple[str, ...] = (),
) -> Workload:
    """Return a row that writes as fast as it goes; what is usual is not in its name."""
    parts = [f"produce-{_SIZE_NAMES[size].replace(' ', '').lower()}"]
    told = [f"produce {_SIZE_NAMES[size]}, acks={acks}"]
    if acks != "all":
        parts.append(f"acks{acks}")
    if partitions != 12:
        parts.append(f"p{partitions}")
    told.append(f"{partitions} partition{'s' if partitions > 1 else ''}")
    if clients != 1:
        parts.append(f"c{clients}")
        told.append(f"{clients} clients")
    if codec != "none":
        parts.append(codec)
        told.append(codec)
    small = size == 100
    return Workload(
        "-".join(parts),
        "produce",
        ", ".join(told),
        variants,
        figure="records_per_s" if small else "mb_per_s",
        unit="records/s" if small else "MB/s",
        size=size,
        records=_TURN_RECORDS[size],
        acks=acks,
        partitions=partitions,
        clients=clients,
        codec=codec,
        sets=sets,
    )


def _consume(name: str, title: str, **more: object) -> Workload:
    row = Workload(name, "consume", title, PAGECACHE, size=1024, records=800_000, about_s=15.0)
    return replace(row, **more)  # type: ignore[arg-type]


def _pace(rate: int, kind: Literal["pace", "flow"]) -> Workload:
    what = "acknowledged" if kind == "pace" else "read at the tail"
    return Workload(
        f"{'ack' if kind == 'pace' else 'flow'}-{rate}",
        kind,
        f"single records {what}, {rate:,}/s",
        PACED if kind == "pace" else BOTH,
        figure="p50_ms",
        unit="ms p50",
        better="less",
        size=100,
        records=_PACED_RECORDS[rate],
        partitions=1,
        rate=rate,
        about_s=10.0,
    )


_OUTAGE: Final = Workload(
    "outage",
    "outage",
    "unavailability after kill -9 of a leader",
    DEFAULTS,
    figure="gap_s",
    unit="s",
    better="less",
    size=100,
    partitions=1,
    about_s=30.0,
    follows="start",
)


def _many(partitions: int) -> Workload:
    return Workload(
        f"partitions-{partitions}",
        "partitions",
        f"produce 1 KB with {partitions:,} partitions in the cluster, beside 1",
        ("ottla-pagecache", "kafka"),
        figure="after_share",
        unit="of the speed before",
        records=_TURN_RECORDS[1024],
        partitions=partitions,
        seconds_max=300.0,
        about_s=180.0,
        # Each has three measurements before and three after.
        rounds_max=3,
    )


_ROWS: Final[Sequence[Workload]] = (
    _produce(sets=("quick",)),
    _produce(100),
    _produce(10_240),
    _produce(partitions=1),
    _produce(partitions=100),
    _produce(100, partitions=1),
    _produce(clients=8),
    _produce(codec="lz4"),
    _produce(acks="1", variants=PAGECACHE),
    _produce(100, acks="1", variants=PAGECACHE),
    _produce(10_240, acks="1", variants=PAGECACHE),
    _produce(partitions=100, clients=8),
    _consume("consume-warm", "consume 1 KB from the start, page cache warm"),
    _consume("consume-cold", "consume 1 KB from the start, page cache cold", is_cold=True),
    _consume(
        "consume-driver",
        "the application's thread alone: 1 KB that librdkafka had fetched before",
        is_ahead=True,
    ),
    Workload(
        "together",
        "together",
        "produce and consume 1 KB together, at the tail",
        BOTH,
        figure="consume_mb_per_s",
        unit="MB/s read",
        records=200_000,
        about_s=15.0,
    ),
    *(_pace(rate, "pace") for rate in (300, 1000)),
    *(_pace(rate, "flow") for rate in (100, 300, 1000, 10_000)),
    Workload(
        "start",
        "start",
        "three nodes from start to first acked write",
        DEFAULTS,
        figure="first_ack_s",
        unit="s",
        better="less",
        partitions=1,
        about_s=25.0,
        sets=("quick",),
    ),
    _OUTAGE,
    replace(
        _OUTAGE,
        name="outage-controller",
        title="unavailability after kill -9 of a leader that is the active controller",
        variants=("ottla-fsync", "kafka"),
        is_controller=True,
        follows="",
    ),
    _many(1000),
    _many(5000),
    Workload(
        "restart-5gb",
        "restart",
        "restart with 5 GB: to the first acked write, after kill -9 of all",
        ("ottla-pagecache", "kafka"),
        figure="killed_s",
        unit="s",
        better="less",
        records=5_000_000,
        seconds_max=400.0,
        about_s=180.0,
        rounds_max=3,
    ),
)
WORKLOADS: Final[Mapping[str, Workload]] = {row.name: row for row in _ROWS}


def baseline_of(row: Workload, variant: str) -> str:
    """Return what a variant is compared with: Kafka that promises as much, if the row has it."""
    wanted = VARIANTS[variant].baseline
    return wanted if wanted in row.variants else "kafka"


def chosen(only: Sequence[str]) -> list[Workload]:
    """Return rows by name, by the beginning of a name with `*`, or by the name of a set.

    `NAME:ONE,OTHER` takes only those variants of it.
    """
    if not only or "full" in only:
        return list(WORKLOADS.values())
    found = dict[str, Workload]()
    for word in only:
        name, _, variants = word.partition(":")
        rows = [row for row in WORKLOADS.values() if _is_meant(row, name)]
        if not rows:
            known = ", ".join(WORKLOADS)
            raise SystemExit(f"there is no workload {name}: full, goals, quick, {known}")
        for row in rows:
            chosen_row = _for_goals(row) if name == "goals" else row
            found.setdefault(row.name, _narrowed(row, variants) if variants else chosen_row)
    return list(found.values())


def _for_goals(row: Workload) -> Workload:
    """Return only what the goals name, and what that is compared with if its cluster is up."""
    wanted = variants_for(row.name)
    if not row.is_alone:
        wanted |= {VARIANTS[name].baseline for name in wanted}
    return replace(row, variants=tuple(name for name in row.variants if name in wanted))


def _is_meant(row: Workload, word: str) -> bool:
    if word == "goals":
        return bool(variants_for(row.name))
    if word.endswith("*"):
        return row.name.startswith(word[:-1])
    return word == row.name or word in row.sets


def _narrowed(row: Workload, variants: str) -> Workload:
    wanted = variants.split(",")
    unknown = [one for one in wanted if one not in row.variants]
    if unknown:
        raise SystemExit(f"{row.name} is not measured for {', '.join(unknown)}")
    return replace(row, variants=tuple(one for one in row.variants if one in wanted))
