"""Which lines `tc` gets for which weather, and what its answers mean."""

from __future__ import annotations

import json

import pytest

from ottla.chaos.backends import netem
from ottla.chaos.ports import LinkFault

BAD = LinkFault(delay_ms=100, jitter_ms=50, loss_per_mille=50, bytes_per_s=125_000)


def test_each_way_has_a_band_of_its_own_and_everything_else_the_first() -> None:
    ways = {3: (["10.0.0.3"], LinkFault(delay_ms=5)), 2: (["10.0.0.2", "10.1.0.2"], BAD)}
    everything = " ".join("0" * 16)
    begin = "filter add dev eth0 parent 1: protocol ip prio 1 u32 match ip dst"
    assert netem.tree(ways) == [
        "qdisc replace dev eth0 root noqueue",
        f"qdisc replace dev eth0 root handle 1: prio bands 4 priomap {everything}",
        "qdisc add dev eth0 parent 1:3 handle 13: netem delay 100ms 50ms loss 5% rate 1000000bit",
        f"{begin} 10.0.0.2/32 flowid 1:3",
        f"{begin} 10.1.0.2/32 flowid 1:3",
        "qdisc add dev eth0 parent 1:4 handle 14: netem delay 5ms",
        f"{begin} 10.0.0.3/32 flowid 1:4",
    ]


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (LinkFault(delay_ms=5), "netem delay 5ms"),
        (LinkFault(jitter_ms=5), "netem delay 0ms 5ms"),
        (LinkFault(loss_per_mille=25), "netem loss 2.5%"),
        (LinkFault(bytes_per_s=1000), "netem rate 8000bit"),
    ],
)
def test_only_what_is_ill_is_said(fault: LinkFault, words: str) -> None:
    assert netem.tree({1: (["10.0.0.1"], fault)})[2].partition("12: ")[2] == words


@pytest.mark.parametrize("ways", [{}, {2: ((), BAD)}])
def test_where_nobody_is_named_everything_is_as_it_was(ways: dict[int, netem.Way]) -> None:
    assert netem.tree(ways) == [netem.CALM]


def test_the_highest_node_has_the_last_band_and_the_next_is_refused() -> None:
    assert "bands 16" in netem.tree({15: (["10.0.0.1"], BAD)})[1]
    assert "parent 1:10 handle 110:" in netem.tree({15: (["10.0.0.1"], BAD)})[2]
    with pytest.raises(ValueError, match="16 bands"):
        netem.tree({16: (["10.0.0.1"], BAD)})


def told(kind: str, handle: str, **counted: int) -> dict[str, object]:
    return {"kind": kind, "handle": handle, "bytes": 9, "packets": 0, "drops": 0, "qlen": 0} | (
        dict[str, object](counted)
    )


def test_packets_that_went_on_were_lost_or_wait_have_met_the_weather_of_their_way() -> None:
    statistics = json.dumps(
        [
            told("prio", "1:", packets=900),
            told("netem", "12:", packets=30),
            told("netem", "13:", packets=20, drops=3, qlen=1),
        ]
    )
    assert [netem.met_in(statistics, node) for node in (1, 2, 3)] == [30, 24, 0]


@pytest.mark.parametrize(
    ("code", "said", "found"),
    [
        (0, "", None),
        (0, "Warning: something", None),
        (
            1,
            "Error: Specified qdisc kind is unknown.\nCommand failed -:2\n",
            "the kernel does not offer it (Error: Specified qdisc kind is unknown.)",
        ),
        (2, " \n", "the kernel does not offer it (tc ended with 2)"),
    ],
)
def test_it_is_offered_if_everything_was_done(code: int, said: str, found: str | None) -> None:
    assert netem.why_not(code, said) == found
