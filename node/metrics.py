"""What a node counts while it works.

On the hot path a metric is an attribute that is incremented; text is made of it only when somebody
asks (`exposition.py`).

    metrics.topic("orders").bytes_in += 4096
    metrics.requests["Produce"].observe(0.8, version=13)

M1  every metric has a row in `metric_table.py`, and METRICS.md is made from the rows
M2  labels are bounded: a topic's end with the topic (`keep_topics`), and where names could be made
    up there is a limit, above which they count as `other`. A name that a stranger chose and that
    names nothing here (an unknown topic) never becomes a label
M3  a counter never falls: what a deleted topic had stays in the sum over all topics
M4  above `TOPIC_ROWS_MAX` topics none has series of its own: a sum over topics that Prometheus
    makes is right, or it is not there. The sum that is told here always is

Not here: the text, and gauges that are looked up when asked for (`status.py`, `process.py`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator
from operator import attrgetter
from typing import Final, NamedTuple

from ottla.node import metric_table as table
from ottla.node.metric_table import MetricRow
from ottla.node.stream_counts import StreamCounts
from ottla.proto.errors import ErrorCode

OTHER: Final = "other"
# Milliseconds; a request that waits for bytes takes half a second by intention.
REQUEST_BOUNDS_MS: Final[tuple[float, ...]] = (
    *(0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0),
    *(1_000.0, 2_500.0, 5_000.0, 10_000.0, 30_000.0),
)
SECONDS_BOUNDS: Final[tuple[float, ...]] = tuple(ms / 1000 for ms in REQUEST_BOUNDS_MS[:-1])
# Seconds; a producer may be behind by hours, and its clock by anything.
DELAY_BOUNDS: Final[tuple[float, ...]] = (
    *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
    *(30.0, 60.0, 300.0, 3_600.0),
)
_REFUSALS: Final = ("max.connections", "max.connections.per.ip", "descriptors", "idle", "slow")
_DAY_MS: Final = 24 * 60 * 60 * 1000
REASONS_MAX: Final = 64
TOPIC_ROWS_MAX: Final = 1_000
REQUEST_NAMES_MAX: Final = 128
# Versions of a request that are told apart; no API of Kafka's has as many.
VERSIONS_MAX: Final = 32


class Histogram:
    """How many observed values were at most each of a few bounds."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds: Final = bounds
        # One more than there are bounds: the last counts what lies above all of them.
        self.counts: Final = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value


class Reading(NamedTuple):
    """The value of a metric now; values of labels in the order of the row's names."""

    row: MetricRow
    value: float | Histogram
    # Empty although the row has labels: over all topics, as Kafka tells it too.
    labels: tuple[str, ...] = ()


class TopicMetrics:
    """What went in and out of one topic. The attributes are incremented by whoever did it."""

    __slots__ = (
        "bytes_in",
        "bytes_out",
        "failed_fetch",
        "failed_produce",
        "fetch_requests",
        "messages_in",
        "produce_requests",
    )

    def __init__(self) -> None:
        # Records, and bytes of their batches as they came and went.
        self.messages_in = 0
        self.bytes_in = 0
        self.bytes_out = 0
        # One for each topic that a request names, and one for each that got an error.
        self.produce_requests = 0
        self.fetch_requests = 0
        self.failed_produce = 0
        self.failed_fetch = 0

    def add(self, other: TopicMetrics) -> None:
        for name in TopicMetrics.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


_TOPIC_ROWS: Final[tuple[tuple[MetricRow, str], ...]] = (
    (table.MESSAGES_IN, "messages_in"),
    (table.BYTES_IN, "bytes_in"),
    (table.BYTES_OUT, "bytes_out"),
    (table.PRODUCE_REQUESTS, "produce_requests"),
    (table.FETCH_REQUESTS, "fetch_requests"),
    (table.FAILED_PRODUCE, "failed_produce"),
    (table.FAILED_FETCH, "failed_fetch"),
)


class ReplicationMetrics:
    """What was copied, and what became of in-sync sets. Incremented by whoever did it."""

    __slots__ = ("bytes_in", "bytes_out", "failed_isr_updates", "isr_expands", "isr_shrinks")

    def __init__(self) -> None:
        # From leaders, and to followers.
        self.bytes_in = 0
        self.bytes_out = 0
        self.isr_shrinks = 0
        self.isr_expands = 0
        self.failed_isr_updates = 0

    def isr_answered(self, before: Collection[int], wanted: Collection[int], code: int) -> None:
        """Count what the controller said to an in-sync set that a leader wanted."""
        if code:
            self.failed_isr_updates += 1
            return
        # Who is exchanged for another one counts in both.
        self.isr_shrinks += any(one not in wanted for one in before)
        self.isr_expands += any(one not in before for one in wanted)


_REPLICATION_ROWS: Final[tuple[tuple[MetricRow, str], ...]] = (
    (table.REPLICATION_BYTES_IN, "bytes_in"),
    (table.REPLICATION_BYTES_OUT, "bytes_out"),
    (table.ISR_SHRINKS, "isr_shrinks"),
    (table.ISR_EXPANDS, "isr_expands"),
    (table.FAILED_ISR_UPDATES, "failed_isr_updates"),
)


class ConnectionMetrics:
    """The clients of one listener: how many are connected, and since the start came and went."""

    __slots__ = ("closed", "created", "open")

    def __init__(self) -> None:
        self.open = 0
        self.created = 0
        self.closed = 0


class ControllerMetrics:
    """What this node did as a controller. Incremented by whoever did it."""

    __slots__ = ("elections", "proposals", "unclean_elections")

    def __init__(self) -> None:
        # Partitions; the second is part of the first.
        self.elections = 0
        self.unclean_elections = 0
        # Seconds.
        self.proposals: Final = Histogram(SECONDS_BOUNDS)

    def readings(self) -> Iterator[Reading]:
        yield Reading(table.ELECTIONS, self.elections)
        yield Reading(table.UNCLEAN_ELECTIONS, self.unclean_elections)
        yield Reading(table.PROPOSAL_TIME, self.proposals)


class RequestMetrics:
    """How often one API was asked for in each version, and how long it took, by phases."""

    __slots__ = ("counts", "local_ms", "queue_ms", "remote_ms", "time_ms")

    def __init__(self) -> None:
        # By version; the last counts versions that no API has, which only strangers send.
        self.counts: Final = [0] * (VERSIONS_MAX + 1)
        self.time_ms: Final = Histogram(REQUEST_BOUNDS_MS)
        # Parts of it: before it was taken up, working, and waiting for others.
        self.queue_ms: Final = Histogram(REQUEST_BOUNDS_MS)
        self.local_ms: Final = Histogram(REQUEST_BOUNDS_MS)
        self.remote_ms: Final = Histogram(REQUEST_BOUNDS_MS)

    def observe(self, ms: float, queue_ms: float = 0.0, version: int = VERSIONS_MAX) -> None:
        """Count a request that was answered `ms` after it had come, of which it queued so long."""
        self.counts[version if 0 <= version < VERSIONS_MAX else VERSIONS_MAX] += 1
        self.time_ms.observe(ms)
        self.queue_ms.observe(queue_ms)

    def observe_phases(self, local_ms: float, remote_ms: float) -> None:
        """Count how long the same request was worked on here, and then waited."""
        self.local_ms.observe(local_ms)
        self.remote_ms.observe(remote_ms)


class RequestTable(dict[str, RequestMetrics]):
    """By name of an API, such as `Produce`; a name is added when it is asked for first."""

    def __missing__(self, name: str) -> RequestMetrics:
        if name != OTHER and len(self) >= REQUEST_NAMES_MAX:
            return self[OTHER]
        return self.setdefault(name, RequestMetrics())


class Metrics:
    """Everything a node counts. Belongs to the event loop; lives as long as the process."""

    def __init__(self, *, version: str) -> None:
        self.requests: Final = RequestTable()
        self.replication: Final = ReplicationMetrics()
        self.controller: Final = ControllerMetrics()
        self.streams: Final = StreamCounts()
        # Requests that wait now: for bytes; for replicas or the disk.
        self.waiting_fetches = 0
        self.waiting_produces = 0
        # Seconds.
        self.fsync: Final = Histogram(SECONDS_BOUNDS)
        self.loop_delay: Final = Histogram(SECONDS_BOUNDS)
        self.append_delay: Final = Histogram(DELAY_BOUNDS)
        # Parts of requests that name no topic of ours: they count in the sum, under no name.
        self.unknown_topic: Final = TopicMetrics()
        self._version: Final = version
        self._connections: Final[dict[str, ConnectionMetrics]] = {}
        self._topics: Final[dict[str, TopicMetrics]] = {}
        self._deleted: Final = TopicMetrics()
        self._errors: Final[dict[tuple[str, int], int]] = {}
        # What a counter begins with is part of its increase: the usual reasons are told from 0.
        self._refused: Final[dict[str, int]] = dict.fromkeys(_REFUSALS, 0)
        self._protocol_errors: Final[dict[str, int]] = {}
        self._sources: Final[list[Callable[[], Iterable[Reading]]]] = []

    # ── While working ─────────────────────────────────────────────────────────────────────────

    def topic(self, name: str) -> TopicMetrics:
        """Return the counters of a topic that exists; they may be kept and incremented (M2)."""
        found = self._topics.get(name)
        return self._topics.setdefault(name, TopicMetrics()) if found is None else found

    def connections_of(self, listener: str) -> ConnectionMetrics:
        """Return the counters of a listener for clients, by its name in the configuration."""
        return self._connections.setdefault(listener, ConnectionMetrics())

    def keep_topics(self, names: Collection[str]) -> None:
        """Forget the labels of topics that are not among these any more (M3)."""
        for name in [name for name in self._topics if name not in names]:
            self._deleted.add(self._topics.pop(name))

    def batch_appended(self, delay_ms: int) -> None:
        """Count how long before its append the newest record of a batch was made.

        Clocks differ and timestamps may be anything: what is not between now and a day ago counts
        as the nearer of them, so that the sum stays a sum of times.
        """
        self.append_delay.observe(min(max(delay_ms, 0), _DAY_MS) / 1000)

    def request_answered(
        self,
        request: str,
        version: int,
        *,
        took_ms: float,
        queue_ms: float,
        errors: Iterable[int] = (),
    ) -> None:
        """Count an answer, how long it took, and the error codes in it."""
        self.requests[request].observe(took_ms, queue_ms, version)
        for code in errors:
            self.request_failed(request, code)

    def request_failed(self, request: str, code: int) -> None:
        """Count an error code in an answer. One that is none of Kafka's is our bug, and shows."""
        key = (request, code)
        self._errors[key] = self._errors.get(key, 0) + 1

    def refused(self, reason: str) -> None:
        """Count a connection that was not taken; the reason is a word, not a sentence."""
        _count(self._refused, reason)

    def protocol_error(self, reason: str) -> None:
        """Count a connection that was closed because the peer broke the protocol."""
        _count(self._protocol_errors, reason)

    # ── When asked ────────────────────────────────────────────────────────────────────────────

    def watch(self, source: Callable[[], Iterable[Reading]]) -> None:
        """Ask `source` too, at each scrape.

        The node does other work between two readings, so what it returns must not be a walk over
        something that changes: take a list of it first.
        """
        self._sources.append(source)

    def sources(self) -> Iterator[Iterable[Reading]]:
        """Yield all there is to read, in parts between which other work may be done."""
        yield list(self._node_readings())
        yield from self._topic_readings()
        for source in self._sources:
            yield source()

    def _node_readings(self) -> Iterator[Reading]:
        for name, connections in self._connections.items():
            yield Reading(table.CONNECTIONS, connections.open, (name,))
            yield Reading(table.CONNECTIONS_CREATED, connections.created, (name,))
            yield Reading(table.CONNECTIONS_CLOSED, connections.closed, (name,))
        yield Reading(table.PURGATORY_SIZE, self.waiting_fetches, ("Fetch",))
        yield Reading(table.PURGATORY_SIZE, self.waiting_produces, ("Produce",))
        yield Reading(table.FSYNC_TIME, self.fsync)
        yield Reading(table.LOOP_DELAY, self.loop_delay)
        yield Reading(table.APPEND_DELAY, self.append_delay)
        yield Reading(table.BUILD_INFO, 1, (self._version,))
        for row, attribute in _REPLICATION_ROWS:
            yield Reading(row, getattr(self.replication, attribute))
        for reason, count in self._refused.items():
            yield Reading(table.REFUSED, count, (reason,))
        for reason, count in self._protocol_errors.items():
            yield Reading(table.PROTOCOL_ERRORS, count, (reason,))
        for (request, code), count in self._errors.items():
            yield Reading(table.REQUEST_ERRORS, count, (request, _code_name(code)))
        for name, request_metrics in self.requests.items():
            yield from _request_readings(name, request_metrics)

    def _topic_readings(self) -> Iterator[list[Reading]]:
        # One tuple for each topic, made once: whoever writes the text knows it again.
        topics = [((name,), metrics) for name, metrics in self._topics.items()]
        is_told = len(topics) <= TOPIC_ROWS_MAX
        for row, attribute in _TOPIC_ROWS:
            value_of = attrgetter(attribute)
            everything = value_of(self._deleted) + value_of(self.unknown_topic)
            readings = []
            for labels, metrics in topics:
                value = value_of(metrics)
                everything += value
                if is_told:
                    readings.append(Reading(row, value, labels))
            readings.append(Reading(row, everything))
            yield readings


def stream_readings(streams: StreamCounts, now_ms: int) -> Iterator[Reading]:
    """Yield how the streams to other nodes do, by the clock for deadlines."""
    for stream, peer, count in streams:
        labels = (stream, str(peer))
        yield Reading(table.STREAM_BREAKS, count.breaks, labels)
        if count.is_open is not None:
            yield Reading(table.STREAM_OPEN, int(count.is_open), labels)
        if count.heard_ms is not None:
            yield Reading(table.STREAM_SILENCE, max(0, now_ms - count.heard_ms) / 1000, labels)


def _request_readings(name: str, metrics: RequestMetrics) -> Iterator[Reading]:
    for version, count in enumerate(metrics.counts):
        if count:
            label = OTHER if version == VERSIONS_MAX else str(version)
            yield Reading(table.REQUESTS, count, (name, label))
    for row, histogram in (
        (table.REQUEST_TIME, metrics.time_ms),
        (table.REQUEST_QUEUE_TIME, metrics.queue_ms),
        (table.LOCAL_TIME, metrics.local_ms),
        (table.REMOTE_TIME, metrics.remote_ms),
    ):
        # What nobody asked for, or has no phases, would only take room.
        if any(histogram.counts):
            yield Reading(row, histogram, (name,))


def _count(counts: dict[str, int], reason: str) -> None:
    known = reason in counts or len(counts) < REASONS_MAX
    kept = reason if known else OTHER
    counts[kept] = counts.get(kept, 0) + 1


def _code_name(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return str(code)
