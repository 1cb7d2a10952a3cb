from __future__ import annotations

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from ottla.controller.image import PartitionInfo
from ottla.controller.serving import Ground, Standing, electable_others, standing
from ottla.proto.ids import BrokerId, LeaderEpoch

SESSION_MS = 2_000
NOW_MS = 100_000


def _standing(
    fetched_ms: Mapping[int, int | None], *, is_heard: bool = False, is_unclean: bool = False
) -> Standing:
    return standing(
        is_heard=is_heard,
        fetched_ms={BrokerId(key): at for key, at in fetched_ms.items()},
        is_unclean_allowed=is_unclean,
        session_ms=SESSION_MS,
        now_ms=NOW_MS,
    )


def test_who_is_heard_by_the_active_controller_serves() -> None:
    assert _standing({2: None}, is_heard=True).ground is Ground.HEARD
    assert _standing({}, is_heard=True, is_unclean=True).ground is Ground.HEARD


def test_without_controllers_a_leader_serves_while_everybody_fetches_from_it() -> None:
    told = _standing({2: NOW_MS - SESSION_MS + 1, 3: NOW_MS})
    assert told.ground is Ground.FETCHED
    assert told.may_serve


def test_a_fetch_of_exactly_one_session_ago_does_not_count() -> None:
    assert not _standing({2: NOW_MS - SESSION_MS}).may_serve


def test_one_replica_that_may_be_elected_and_does_not_fetch_is_enough_to_stop_a_leader() -> None:
    told = _standing({2: NOW_MS, 3: None, 4: NOW_MS - 9_999})
    assert not told.may_serve
    assert "broker 3, 4 may lead" in told.sentence


def test_a_leader_that_nobody_can_replace_serves_alone() -> None:
    assert _standing({}).ground is Ground.ALONE


def test_a_leader_alone_in_sync_stops_if_anybody_may_be_elected_uncleanly() -> None:
    told = _standing({}, is_unclean=True)
    assert not told.may_serve
    assert "lacks records" in told.sentence


def test_who_could_be_elected_is_in_sync_or_eligible_and_somebody_else() -> None:
    one, two, three, four = (BrokerId(number) for number in (1, 2, 3, 4))
    partition = PartitionInfo(
        replicas=(one, two, three, four),
        isr=(one, two),
        leader=one,
        leader_epoch=LeaderEpoch(3),
        partition_epoch=4,
        elr=(four,),
    )
    assert electable_others(partition, one) == (two, four)


@given(
    fetched=st.dictionaries(
        st.integers(2, 5), st.none() | st.integers(NOW_MS - 2 * SESSION_MS, NOW_MS), max_size=4
    ),
    is_heard=st.booleans(),
    is_unclean=st.booleans(),
)
def test_a_cut_off_leader_never_serves_beside_one_that_could_have_been_elected(
    fetched: dict[int, int | None], is_heard: bool, is_unclean: bool
) -> None:
    told = _standing(fetched, is_heard=is_heard, is_unclean=is_unclean)
    gone = [at for at in fetched.values() if at is None or NOW_MS - at >= SESSION_MS]
    could_be_replaced = bool(gone) or (not fetched and is_unclean)
    assert told.may_serve == (is_heard or not could_be_replaced)
    assert told.sentence.endswith(".")
