"""The epoch history against the naive one: a list that has the epoch of every single offset."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ottla.proto.ids import LeaderEpoch, Offset
from ottla.replication.epochs import EpochHistory

# What happens to a log: records of the next-but-n epoch, a cut at the end, a cut at the start.
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(0, 3), st.integers(1, 4)),
        st.tuples(st.just("cut"), st.integers(0, 100), st.just(0)),
        st.tuples(st.just("start"), st.integers(0, 100), st.just(0)),
    ),
    max_size=20,
)


class Naive:
    """The epoch of every offset from `start` on, and the real history beside it."""

    def __init__(self) -> None:
        self.start = 0
        self.written: list[int] = []
        self.epochs = EpochHistory()

    @property
    def end(self) -> int:
        return self.start + len(self.written)

    def write(self, step: int, count: int) -> None:
        epoch = max(self.epochs.latest, 0) + step
        self.epochs.assign(LeaderEpoch(epoch), Offset(self.end))
        self.written += [epoch] * count

    def cut(self, share: int, _: int) -> None:
        kept = len(self.written) * share // 100
        del self.written[kept:]
        self.epochs.truncate_end(Offset(self.end))

    def move_start(self, share: int, _: int) -> None:
        gone = len(self.written) * share // 100
        del self.written[:gone]
        self.start += gone
        self.epochs.truncate_start(Offset(self.start))


def played(steps: list[tuple[str, int, int]]) -> Naive:
    naive = Naive()
    actions = {"write": naive.write, "cut": naive.cut, "start": naive.move_start}
    for name, first, second in steps:
        actions[name](first, second)
    return naive


@given(STEPS)
def test_every_offset_is_in_the_epoch_that_wrote_it(steps: list[tuple[str, int, int]]) -> None:
    naive = played(steps)
    known = [naive.epochs.epoch_at(Offset(naive.start + n)) for n in range(len(naive.written))]
    assert known == naive.written


@given(STEPS)
def test_e1_epochs_and_their_starts_strictly_increase(steps: list[tuple[str, int, int]]) -> None:
    entries = played(steps).epochs.entries
    assert list(entries) == sorted(entries)
    assert len({entry.epoch for entry in entries}) == len(entries)
    assert len({entry.start_offset for entry in entries}) == len(entries)


@given(STEPS, st.integers(0, 60))
def test_rule_40_an_epoch_ends_where_the_first_later_one_begins(
    steps: list[tuple[str, int, int]], asked: int
) -> None:
    naive = played(steps)
    answer = naive.epochs.end_of(LeaderEpoch(asked), Offset(naive.end))
    if answer is None:
        assert asked > naive.epochs.latest
        return
    later = [naive.start + n for n, epoch in enumerate(naive.written) if epoch > asked]
    assert answer.end_offset == min(later, default=naive.end)
    older = [epoch for epoch in naive.written if epoch <= asked]
    assert answer.epoch == max(older, default=asked)
