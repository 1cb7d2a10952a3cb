"""The tail in memory says what the file says, or nothing: T1 to T3."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ottla.proto.ids import Offset
from ottla.replication.log.tail import Tail, TailBudget

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(1, 5)),
        st.tuples(st.just("skip"), st.integers(1, 3)),
        st.tuples(st.just("drop"), st.integers(0, 60)),
        st.tuples(st.just("read"), st.integers(0, 60)),
    ),
    max_size=60,
)


def bytes_of(offset: int) -> bytes:
    """Return the batch at an offset: some bytes of a length of its own."""
    return offset.to_bytes(2, "big") * (1 + offset % 4)


def read_from_file(first: int, end: int) -> bytes:
    return b"".join(map(bytes_of, range(first, end)))


@given(STEPS, st.integers(1, 40), st.integers(0, 50))
def test_it_returns_what_the_file_has(
    steps: list[tuple[str, int]], bytes_max: int, wanted: int
) -> None:
    budget = TailBudget(30)
    tail, end = Tail(budget, bytes_max), 0
    for what, number in steps:
        if what == "add":
            tail.add(Offset(end), Offset(end + number), read_from_file(end, end + number))
            end += number
        elif what == "skip":
            end += number
        elif what == "drop":
            tail.drop_below(Offset(number))
        else:
            found = tail.read(Offset(number), wanted, wanted)
            assert found is None or read_from_file(number, end).startswith(b"".join(found))
            assert found is None or all(found)
        assert tail.size_bytes <= bytes_max
        assert 0 <= budget.left_bytes == 30 - tail.size_bytes


def test_chunks_are_returned_one_after_another_as_far_as_they_fit() -> None:
    tail = Tail(TailBudget())
    for offset in range(3):
        tail.add(Offset(offset), Offset(offset + 1), b"x" * 10)
    assert tail.read(Offset(0), 5, 5) is None
    assert tail.read(Offset(0), 20, 20) == [b"x" * 10] * 2
    assert tail.read(Offset(1), 100, 100) == [b"x" * 10] * 2
    assert tail.read(Offset(3), 100, 100) is None


def test_the_first_chunk_may_be_more_than_is_wanted_and_no_other() -> None:
    tail = Tail(TailBudget())
    for offset in range(3):
        tail.add(Offset(offset), Offset(offset + 1), b"x" * 10)
    assert tail.read(Offset(0), 5, 10) == [b"x" * 10]
    assert tail.read(Offset(0), 19, 100) == [b"x" * 10]
    assert tail.read(Offset(0), 5, 9) is None


def test_who_asks_from_the_middle_of_a_chunk_reads_the_file() -> None:
    tail = Tail(TailBudget())
    tail.add(Offset(4), Offset(9), b"x")
    assert tail.read(Offset(5), 100, 100) is None
    assert tail.read(Offset(3), 100, 100) is None


def test_what_is_committed_goes() -> None:
    tail = Tail(TailBudget())
    tail.add(Offset(0), Offset(5), b"abc")
    tail.add(Offset(5), Offset(6), b"d")
    tail.drop_below(Offset(5))
    assert tail.size_bytes == 1
    assert tail.read(Offset(5), 100, 100) == [b"d"]


def test_t2_one_budget_is_shared_by_all() -> None:
    budget = TailBudget(10)
    first, second = Tail(budget), Tail(budget)
    first.add(Offset(0), Offset(1), b"x" * 8)
    second.add(Offset(0), Offset(1), b"y" * 4)
    assert second.read(Offset(0), 100, 100) is None
    first.clear()
    second.add(Offset(1), Offset(2), b"y" * 4)
    assert second.read(Offset(1), 100, 100) == [b"y" * 4]
