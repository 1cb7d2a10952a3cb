"""The driver's end of the sink, with a log and a coordinator that are made up."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar, Self

import pytest

from ottla.clients.admin.answers import NewTopic, TransactionInfo, TransactionListing
from ottla.clients.admin.transactions import TERMINATED_TIMEOUT_MS
from ottla.clients.consumer.record import Record
from ottla.clients.errors import TransactionUnknownError
from ottla.clients.producer.prepared import PreparedTransaction
from ottla.clients.spark import decider as module
from ottla.clients.spark.decider import Decider
from ottla.clients.spark.decisions import (
    AbortedElsewhereError,
    Book,
    End,
    ListOpen,
    Program,
    ReadBook,
    Settle,
    StaleRoundError,
    TakeOver,
    Warn,
    WriteBook,
)
from ottla.clients.spark.errors import WriteFailedError
from ottla.clients.spark.options import read_sink_options
from ottla.proto.errors import ErrorCode, OttlaError, RequestError
from ottla.proto.ids import INT32_MAX, TopicPartition

PREFIX = "sink"
TOPIC = "ottla-spark-decisions"


class Log:
    """The partition of the books: records by offset, and an open transaction of another sink."""

    def __init__(self) -> None:
        self.records = list[tuple[bytes, bytes]]()
        # Where readers of what is certain have to wait, and for how many more looks; or None.
        self.held_at: int | None = None
        self.looks_left = 0
        self.now_ms = 0.0

    def write(self, key: str, book: Book) -> None:
        self.records.append((key.encode(), book.to_bytes()))

    def look(self) -> int:
        """Return the last stable offset; time goes by."""
        self.now_ms += 1000
        self.looks_left -= 1
        if self.held_at is None or self.looks_left < 0:
            return len(self.records)
        return self.held_at


class FakeConsumer:
    """As much of a consumer as reads the book."""

    def __init__(self, log: Log, config: dict[str, str]) -> None:
        self._log = log
        self._is_committed = config["isolation.level"] == "read_committed"
        self._position = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        pass

    def beginning_offsets(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, 0)

    def end_offsets(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        held = self._log.held_at if self._is_committed else None
        return dict.fromkeys(partitions, len(self._log.records) if held is None else held)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        self._position = offset

    def position(self, partition: TopicPartition) -> int:
        return self._position

    def consume(self, count: int, timeout: float) -> list[Record]:
        start, self._position = self._position, max(self._position, self._log.look())
        found = enumerate(self._log.records[start : self._position], start)
        return [Record(TOPIC, 0, offset, -1, key, value) for offset, (key, value) in found]


class FakeProducer:
    """Takes over, and remembers how it was made."""

    configs: ClassVar = list[dict[str, str]]()

    def __init__(self, config: dict[str, str]) -> None:
        self.configs.append(config)

    def init_transactions(self) -> None:
        pass

    def close(self) -> None:
        pass


class FakeAdmin:
    """A coordinator that refuses what it is told to refuse, and remembers what it was asked."""

    def __init__(self) -> None:
        self.refusals = dict[str, OttlaError]()
        self.ended = list[tuple[str, bool]]()
        # Id → state and time-out.
        self.known = dict[str, tuple[str, int]]()
        self.unknown = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        # Topics that were asked for, and what is answered, one after the other; then yes.
        self.wanted = list[NewTopic]()
        self.answers = list[ErrorCode]()

    def describe_topics(self, names: Iterable[str]) -> dict[str, RequestError]:
        return {one: RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) for one in names}

    def create_topics(self, topics: Iterable[NewTopic]) -> dict[str, RequestError | None]:
        made = list(topics)
        self.wanted += made
        answer = RequestError(self.answers.pop(0)) if self.answers else None
        return {one.name: answer for one in made}

    def close(self) -> None:
        pass

    def complete_transaction(self, prepared: PreparedTransaction, *, commit: bool) -> None:
        name = prepared.transactional_id
        self.ended.append((name, commit))
        if name in self.refusals:
            raise self.refusals[name]

    def list_transactions(self, *, states: Iterable[str]) -> list[TransactionListing]:
        return [
            TransactionListing(name, 1, state, 0)
            for name, (state, _) in self.known.items()
            if state in states
        ]

    def describe_transactions(
        self, names: Iterable[str]
    ) -> dict[str, TransactionInfo | RequestError]:
        return {name: self._describe(name) for name in names}

    def _describe(self, name: str) -> TransactionInfo | RequestError:
        if name not in self.known:
            return RequestError(self.unknown, "who?")
        return TransactionInfo(name, 1, 0, *self.known[name], None, (), 0)


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Log:
    made = Log()
    monkeypatch.setattr(module, "Consumer", lambda config: FakeConsumer(made, config))
    monkeypatch.setattr(module, "Producer", FakeProducer)
    monkeypatch.setattr(module, "now_ms", lambda: made.now_ms)
    return made


@pytest.fixture(autouse=True)
def admin(monkeypatch: pytest.MonkeyPatch) -> FakeAdmin:
    made = FakeAdmin()
    monkeypatch.setattr(module, "Admin", lambda config: made)
    return made


def _decider() -> Decider:
    return Decider(
        read_sink_options(
            {
                "kafka.bootstrap.servers": "nowhere:1",
                "kafka.transaction.timeout.ms": "900000",
                "topic": "t",
                "exactlyOnce": "true",
                "transactionalIdPrefix": PREFIX,
            }
        )
    )


def _read() -> Any:
    with _decider() as decider:
        return decider.perform(ReadBook())


def test_a_book_behind_another_sinks_open_write_is_waited_for(log: Log) -> None:
    log.write(PREFIX, Book(1))
    log.held_at, log.looks_left = len(log.records), 20
    log.write("other", Book(9))
    log.write(PREFIX, Book(2))
    assert _read() == Book(2)


def test_a_book_that_cannot_be_read_to_its_end_is_not_believed(log: Log) -> None:
    log.write(PREFIX, Book(1))
    log.held_at, log.looks_left = len(log.records), 1000
    log.write("other", Book(9))
    with pytest.raises(WriteFailedError, match="only up to 1, and not to 2"):
        _read()


def test_a_driver_that_dies_holds_up_the_others_for_less_than_they_wait(log: Log) -> None:
    with _decider() as decider:
        decider.perform(TakeOver())
    timeout_ms = int(FakeProducer.configs[-1]["transaction.timeout.ms"])
    assert 3 * timeout_ms < module._READ_MS


# ── The topic of the books ────────────────────────────────────────────────────────────────────


def test_the_book_is_on_disk_when_it_is_written_whatever_the_cluster_does_by_default(
    admin: FakeAdmin,
) -> None:
    # With pagecache a power cut could take the book, and leave the commits that it has decided.
    with _decider() as decider:
        decider._make_topic()
    (topic,) = admin.wanted
    assert topic.name == TOPIC
    assert topic.configs["ottla.durability"] == "fsync"
    assert topic.configs["cleanup.policy"] == "compact"


def test_a_cluster_that_does_not_know_our_options_is_asked_without_them(admin: FakeAdmin) -> None:
    # As Apache Kafka answers.
    admin.answers = [ErrorCode.INVALID_CONFIG]
    with _decider() as decider:
        decider._make_topic()
    first, second = admin.wanted
    assert {**second.configs, "ottla.durability": "fsync"} == first.configs
    assert second.configs != first.configs


@pytest.mark.parametrize("answers", [[ErrorCode.INVALID_CONFIG] * 2, [ErrorCode.POLICY_VIOLATION]])
def test_a_topic_of_books_that_cannot_be_made_is_told(
    admin: FakeAdmin, answers: list[ErrorCode]
) -> None:
    admin.answers = [*answers]
    with _decider() as decider, pytest.raises(RequestError) as refused:
        decider._make_topic()
    assert refused.value.code is answers[-1]


def test_a_topic_of_books_that_another_driver_has_made_just_now_is_there(admin: FakeAdmin) -> None:
    admin.answers = [ErrorCode.TOPIC_ALREADY_EXISTS]
    with _decider() as decider:
        decider._make_topic()
    assert len(admin.wanted) == 1


ONE = PreparedTransaction("sink/1/0-1", 4, 0)


def _end(*, commit: bool) -> None:
    with _decider() as decider:
        decider.perform(End(ONE, commit))


@pytest.mark.parametrize(
    "code", [ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND]
)
def test_an_id_that_was_forgotten_since_counts_as_committed(
    admin: FakeAdmin, code: ErrorCode
) -> None:
    for refusal in (RequestError(code, "who?"), TransactionUnknownError("who?", code)):
        admin.refusals[ONE.transactional_id] = refusal
        _end(commit=True)
        _end(commit=False)


def test_a_commit_that_is_refused_is_told_and_an_abort_of_what_has_ended_is_not(
    admin: FakeAdmin,
) -> None:
    code = ErrorCode.PRODUCER_FENCED
    admin.refusals[ONE.transactional_id] = RequestError(code, "fenced")
    with pytest.raises(AbortedElsewhereError, match="rows are missing"):
        _end(commit=True)
    _end(commit=False)
    admin.refusals[ONE.transactional_id] = TransactionUnknownError("no answer, then", code)
    with pytest.raises(WriteFailedError, match="the next round asks again"):
        _end(commit=True)
    _end(commit=False)
    admin.refusals[ONE.transactional_id] = TransactionUnknownError("no answer")
    for commit in (True, False):
        with pytest.raises(TransactionUnknownError):
            _end(commit=commit)


@pytest.mark.parametrize("state", ["CompleteAbort", "PrepareAbort", "Empty"])
@pytest.mark.parametrize(
    "code", [ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_PRODUCER_ID_MAPPING]
)
def test_one_that_its_coordinator_knows_as_aborted_does_not_count_as_committed(
    admin: FakeAdmin, code: ErrorCode, state: str
) -> None:
    admin.refusals[ONE.transactional_id] = RequestError(code, "no")
    admin.known[ONE.transactional_id] = (state, INT32_MAX)
    with pytest.raises(AbortedElsewhereError, match="somebody else has ended it"):
        _end(commit=True)


def test_one_that_somebody_else_has_committed_or_not_decided_yet_is_not_lost(
    admin: FakeAdmin,
) -> None:
    admin.refusals[ONE.transactional_id] = RequestError(ErrorCode.PRODUCER_FENCED, "fenced")
    for state in ("PrepareCommit", "CompleteCommit"):
        admin.known[ONE.transactional_id] = (state, INT32_MAX)
        _end(commit=True)
    admin.known[ONE.transactional_id] = ("Ongoing", INT32_MAX)
    with pytest.raises(WriteFailedError, match=r"taken it over.*the next round asks") as caught:
        _end(commit=True)
    assert not isinstance(caught.value, AbortedElsewhereError)


@pytest.mark.parametrize("code", [ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_ID_MAPPING])
def test_one_of_which_nobody_tells_is_neither_lost_nor_committed(
    admin: FakeAdmin, code: ErrorCode
) -> None:
    admin.refusals[ONE.transactional_id] = RequestError(code, "no")
    admin.unknown = ErrorCode.COORDINATOR_NOT_AVAILABLE
    with pytest.raises(WriteFailedError, match="the next round asks again") as caught:
        _end(commit=True)
    assert not isinstance(caught.value, AbortedElsewhereError)


def test_what_a_program_warns_of_is_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with _decider() as decider:
        decider.perform(Warn("rows are missing, 100% of them"))
    assert [one.getMessage() for one in caplog.records] == ["rows are missing, 100% of them"]


def test_a_program_hears_of_failures_and_may_go_on() -> None:
    def program() -> Program:
        with pytest.raises(StaleRoundError):
            yield WriteBook(Book())
        return "done"

    with _decider() as decider:
        assert decider.run(program()) == "done"


def test_what_is_committed_is_waited_for_until_it_can_be_read_and_not_for_ever(
    log: Log, admin: FakeAdmin, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = 0

    def pause(seconds: float) -> None:
        nonlocal looks
        looks += 1
        log.now_ms += 1000
        if looks == 3:
            admin.known[ONE.transactional_id] = ("CompleteCommit", INT32_MAX)

    monkeypatch.setattr(module, "pause", pause)
    with _decider() as decider:
        admin.known["sink/of another"] = ("PrepareCommit", INT32_MAX)
        admin.known[ONE.transactional_id] = ("PrepareCommit", INT32_MAX)
        decider.perform(Settle((ONE,)))
        assert looks == 3
        admin.known[ONE.transactional_id] = ("PrepareCommit", INT32_MAX)
        decider.perform(Settle((ONE,)))
    assert 10 < looks < 20


def test_ids_that_an_attempt_has_and_can_still_use_are_found_until_they_are_terminated(
    admin: FakeAdmin,
) -> None:
    admin.known = {
        "sink/1/open": ("Ongoing", INT32_MAX),
        "sink/1/no row yet": ("Empty", INT32_MAX),
        "sink/1/being terminated": ("Ongoing", TERMINATED_TIMEOUT_MS),
        "sink/1/terminated": ("Empty", TERMINATED_TIMEOUT_MS),
        "sink/1/done": ("CompleteCommit", INT32_MAX),
        "sinks/1/of another": ("Ongoing", INT32_MAX),
    }
    with _decider() as decider:
        found = decider.perform(ListOpen())
    assert found == ["sink/1/open", "sink/1/no row yet", "sink/1/being terminated"]
