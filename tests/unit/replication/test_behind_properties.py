"""A producer with five batches on their way, and a leader that refuses as it likes.

The producer is one of two kinds. One waits, after a refusal, until nothing is on its way any more
(librdkafka); the other sends a refused batch again as soon as all before it are done, whatever is
on its way behind it (Kafka's own). Both send what comes first first. Whatever the leader does, and
in whatever order things happen, the log has every batch once, in order. The first kind is never
told that something is out of order; the second, which takes that for "again" while something before
it has no answer, never otherwise.
"""

from __future__ import annotations

from collections import deque

from hypothesis import given
from hypothesis import strategies as st

from ottla.proto.errors import ErrorCode, RequestError
from ottla.proto.ids import INT32_MAX, Offset
from ottla.proto.records.header import read_header
from ottla.replication.behind import Behind
from ottla.replication.producers import BATCHES_MAX, ProducerStates
from tests.builders import NOW_MS, produced

HERE = ("orders", 0)
BATCHES = 12
# What the leader does with the next batch: "kept" is written, and answered with an error.
MOODS = ("takes", "takes", "kept", "not leader", "too few", "no topic")
TAKING = ("takes", "kept")
CODES = {
    "kept": ErrorCode.NOT_LEADER_OR_FOLLOWER,
    "not leader": ErrorCode.NOT_LEADER_OR_FOLLOWER,
    "too few": ErrorCode.NOT_ENOUGH_REPLICAS,
    "no topic": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
}
STEPS = st.lists(
    st.one_of(st.just("send"), st.just("hear"), st.sampled_from(MOODS)), min_size=20, max_size=100
)


class Leader:
    """A log that is a list, with the real memory of producers and the real `Behind`."""

    def __init__(self) -> None:
        self.log: list[int] = []
        self.producers = ProducerStates()
        self.behind = Behind()

    def serve(self, batch: memoryview, mood: str) -> ErrorCode:
        code = CODES.get(mood, ErrorCode.NONE)
        if mood in TAKING:
            try:
                self._append(batch)
            except RequestError as refusal:
                code = refusal.code
            else:
                return code
        self.behind.refused(HERE, batch, code)
        return code

    def _append(self, batch: memoryview) -> None:
        has_queue = bool(self.behind) and self.behind.check(HERE, batch, self.producers)
        header = read_header(batch)
        if self.producers.check(header) is None:
            self.producers.record(header, Offset(len(self.log)), NOW_MS)
            self.log.append(header.base_sequence)
        if has_queue:
            self.behind.taken(HERE, batch)


class Story:
    """One producer, one connection in each direction, one leader."""

    def __init__(self, first: int, sizes: list[int], *, is_patient: bool) -> None:
        self.leader = Leader()
        self.first = first
        self.batches = list[memoryview]()
        for size in sizes:
            raw = produced(*[b"x"] * size, producer_id=7, sequence=first)
            self.batches.append(memoryview(raw))
            first = (first + size) & INT32_MAX
        self.is_patient = is_patient
        self.is_draining = False
        self.unsent = list(range(len(sizes)))
        # The first that was never sent.
        self.new = 0
        self.on_their_way = deque[int]()
        self.answers = deque[tuple[int, ErrorCode]]()

    def send(self) -> None:
        in_flight = [*self.on_their_way, *(number for number, _ in self.answers)]
        self.is_draining = self.is_draining and bool(in_flight)
        if not self.unsent or self.is_draining or len(in_flight) == BATCHES_MAX:
            return
        number = self.unsent[0]
        ahead = number - min([*in_flight, number])
        is_free = self.is_patient or number >= self.new or ahead == 0
        # Never further ahead of what is not acknowledged than a leader remembers.
        if is_free and ahead < BATCHES_MAX:
            self.on_their_way.append(self.unsent.pop(0))
            self.new = max(self.new, number + 1)

    def serve(self, mood: str) -> None:
        if self.on_their_way:
            number = self.on_their_way.popleft()
            self.answers.append((number, self.leader.serve(self.batches[number], mood)))

    def hear(self) -> None:
        if not self.answers:
            return
        number, code = self.answers.popleft()
        if code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            assert not self.is_patient
            pending = [*self.unsent, *self.on_their_way, *(one for one, _ in self.answers)]
            assert min(pending) < number
        if code is not ErrorCode.NONE:
            self.unsent = sorted({*self.unsent, number})
            self.is_draining = self.is_patient

    def play(self, steps: list[str]) -> None:
        for step in steps:
            {"send": self.send, "hear": self.hear}.get(step, lambda s=step: self.serve(s))()

    def end_well(self) -> None:
        while self.unsent or self.on_their_way or self.answers:
            self.send()
            self.serve("takes")
            self.hear()


@given(
    steps=STEPS,
    sizes=st.lists(st.integers(1, 3), min_size=BATCHES, max_size=BATCHES),
    first=st.sampled_from((0, INT32_MAX - 5)),
    is_patient=st.booleans(),
)
def test_rule_61_nobody_is_told_to_be_out_of_order_who_keeps_its_order(
    steps: list[str], sizes: list[int], first: int, is_patient: bool
) -> None:
    story = Story(first, sizes, is_patient=is_patient)
    story.play(steps)
    story.end_well()
    sent = [read_header(one).base_sequence for one in story.batches]
    assert story.leader.log == sent
    assert len(story.leader.behind) == 0


@given(st.integers(2, 30))
def test_z2_z3_who_has_dropped_a_batch_is_told_so_after_four_others(dropped: int) -> None:
    leader = Leader()
    batches = [memoryview(produced(b"x", producer_id=7, sequence=n)) for n in range(60)]
    for one in batches[:dropped]:
        assert leader.serve(one, "takes") is ErrorCode.NONE
    leader.serve(batches[dropped], "not leader")
    answers = [leader.serve(one, "takes") for one in batches[dropped + 1 : dropped + 7]]
    again, out_of_order = CODES["not leader"], ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    behind = BATCHES_MAX - 1
    assert answers == [again] * behind + [out_of_order] * (len(answers) - behind)
