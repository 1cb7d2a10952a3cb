"""When a follower was caught up, against the naive answer: look at all that ever happened."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ottla.proto.ids import BrokerId, Offset
from ottla.replication.progress import NEVER_MS, FollowerProgress

# Each turn: time passes, the leader appends, and the follower fetches with a held offset that is so
# far behind the end of one of the last turns.
TURNS = st.lists(
    st.tuples(st.integers(0, 50), st.integers(0, 5), st.integers(0, 4), st.integers(0, 3)),
    max_size=40,
)


@given(TURNS)
def test_rule_34_p3_then_the_leader_had_nothing_that_the_follower_lacks_now(
    turns: list[tuple[int, int, int, int]],
) -> None:
    progress = FollowerProgress(BrokerId(2), NEVER_MS)
    now_ms = end = held = 0
    # The leader's end after each turn, and what rule 34 alone would say.
    ends: list[tuple[int, int]] = []
    classic_ms = NEVER_MS
    for passed_ms, count, turns_back, short in turns:
        now_ms += passed_ms
        end += count
        known = [one for _, one in ends] + [end]
        held = max(held, known[max(0, len(known) - 1 - turns_back)] - short)
        before_ms = progress.caught_up_ms
        progress.took(Offset(held), Offset(end), now_ms)
        if held >= end:
            classic_ms = now_ms
        elif ends and held >= ends[-1][1]:
            classic_ms = ends[-1][0]
        ends.append((now_ms, end))
        assert progress.caught_up_ms >= max(before_ms, classic_ms)
        if progress.caught_up_ms != NEVER_MS:
            assert any(at == progress.caught_up_ms and held >= one for at, one in ends)
