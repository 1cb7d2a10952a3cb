"""A follower gave the partition up (rule 55): the controllers took it out, and it stays out."""

from __future__ import annotations

from ottla.proto.errors import ErrorCode
from tests.scripts.replication.led import LAG_MS, Led, proposed, view


def test_rule_37_who_does_not_fetch_any_more_is_not_asked_for_again() -> None:
    led = Led(view(1, 2, 3))
    led.fetch(2, 10)
    led.fetch(3, 10)
    # The controllers say so, and not a proposal of this leader.
    led.learn(1, 2)
    for end in range(20, 60, 10):
        led.append(end)
        led.fetch(2, end)
        led.wait(LAG_MS // 2)
        assert proposed(led) is None
    assert led.high_watermark == 50
    # Only a fetch brings it back, as that of anybody else.
    led.fetch(3, 50)
    assert proposed(led) == (1, 2, 3)


def test_rule_38_a_proposal_with_it_that_is_under_way_is_over_with_the_next_partition_epoch() -> (
    None
):
    led = Led(view(1, 2))
    led.fetch(2, 10)
    led.fetch(3, 10)
    assert proposed(led) == (1, 2, 3)
    proposal = led.send()
    # The report bumps the partition epoch although 3 was not in sync yet.
    led.learn(1, 2)
    led.answer(proposal, ErrorCode.INVALID_UPDATE_VERSION)
    led.wait(LAG_MS)
    assert proposed(led) is None
    assert set(led.core.maximal_isr) == {1, 2}
