from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ottla.controller.seeking import Seeking


def test_who_was_named_is_asked_first_and_then_the_others_in_turn() -> None:
    seeking = Seeking((1, 2, 3), believed=3)
    assert [seeking.next() for _ in range(4)] == [3, 1, 2, None]


def test_two_that_name_each_other_are_asked_once_in_a_round() -> None:
    seeking = Seeking((1, 2, 3))
    assert seeking.next() == 1
    seeking.was_named(2)
    assert seeking.next() == 2
    seeking.was_named(1)
    assert seeking.next() == 3
    assert seeking.next() is None
    seeking.begin_round()
    assert seeking.next() == 1


def test_after_a_silence_the_others_come_first() -> None:
    seeking = Seeking((1, 2, 3))
    seeking.was_found(2)
    assert seeking.next() == 2
    seeking.was_found(2)
    seeking.was_silent(2)
    assert {seeking.next(), seeking.next()} == {1, 3}
    assert seeking.next() is None


def test_somebody_who_is_no_controller_is_not_asked() -> None:
    seeking = Seeking((1, 2), believed=9)
    assert [seeking.next() for _ in range(3)] == [1, 2, None]


@given(
    st.lists(st.integers(0, 9), min_size=1, max_size=5, unique=True),
    st.lists(st.tuples(st.sampled_from(["named", "silent", "none"]), st.integers(0, 9))),
)
def test_every_round_asks_everybody_once(
    controllers: list[int], says: list[tuple[str, int]]
) -> None:
    seeking = Seeking(controllers)
    told = iter(says)
    for _ in range(3):
        asked = []
        while (one := seeking.next()) is not None:
            asked.append(one)
            what, leader = next(told, ("none", 0))
            if what == "silent":
                seeking.was_silent(one)
            elif what == "named":
                seeking.was_named(leader)
        assert sorted(asked) == sorted(controllers)
        seeking.begin_round()
