"""Members that do anything in any order, and what holds all the same."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from ottla.node.groups.group import Group
from ottla.node.groups.words import JoinAnswer, State, SyncAnswer, Terms
from ottla.proto.errors import ErrorCode
from tests.unit.node.groups.party import Party

NAMES = ("desk-1", "desk-2")
PROTOCOLS = (
    (("a", b"1"),),
    (("a", b"1"), ("b", b"2")),
    (("b", b"2"), ("a", b"3")),
    (("b", b"4"),),
)
# Nothing waits for longer than this: sessions, rebalances and newcomers are all over by then.
LONG_MS = 20 * 60 * 1000


class Crowd(RuleBasedStateMachine):
    """Members come, go, are silent, and say what is not true; the log takes its time."""

    def __init__(self) -> None:
        super().__init__()
        self.party = Party(Terms(initial_delay_ms=50, size_max=5))
        self.party.unwritten = []
        self.generation = 0
        # What was told to each member of each generation.
        self.told: dict[tuple[int, str], bytes] = {}

    def ids(self) -> list[str]:
        known = [
            one.member_id for one in self.party.answers.values() if isinstance(one, JoinAnswer)
        ]
        return ["", "stranger", *sorted({one for one in known if one})]

    @rule(data=st.data())
    def somebody_joins(self, data: Any) -> None:
        name = data.draw(st.sampled_from((None, None, *NAMES)))
        self.party.join(
            data.draw(st.sampled_from(self.ids())),
            is_id_needed=data.draw(st.booleans()),
            instance_id=name,
            may_skip=data.draw(st.booleans()),
            protocols=data.draw(st.sampled_from(PROTOCOLS)),
            rebalance_ms=data.draw(st.sampled_from((100, 20_000))),
        )

    @rule(data=st.data(), age=st.sampled_from((0, 0, 0, 1)))
    def somebody_syncs(self, data: Any, age: int) -> None:
        member_id = data.draw(st.sampled_from(self.ids()))
        given = {one: f"{self.party.group.generation}/{one}".encode() for one in self.ids()}
        generation = self.party.group.generation - age
        self.party.sync(member_id, given, generation=generation)

    @rule(data=st.data())
    def somebody_beats(self, data: Any) -> None:
        self.party.beat(data.draw(st.sampled_from(self.ids())))

    @rule(data=st.data())
    def somebody_leaves(self, data: Any) -> None:
        name = data.draw(st.sampled_from((None, None, *NAMES)))
        self.party.leave((data.draw(st.sampled_from(self.ids())), name, ""))

    @rule(ms=st.sampled_from((1, 60, 200, 9_000, 25_000)))
    def time_passes(self, ms: int) -> None:
        self.party.wait(ms)

    @rule(is_refused=st.booleans())
    def the_log_answers(self, is_refused: bool) -> None:
        unwritten = self.party.unwritten
        assert unwritten is not None
        if unwritten:
            error = ErrorCode.COORDINATOR_NOT_AVAILABLE if is_refused else None
            self.party.commit(unwritten.pop(0), error)

    @rule()
    def another_node_coordinates(self) -> None:
        party = self.party
        assert party.unwritten is not None
        for effect in party.unwritten:
            party.commit(effect)
        party.unwritten.clear()
        party.carry_out(party.group.close(ErrorCode.NOT_COORDINATOR))
        assert len(party.answers) == party.asked, "everybody was told"
        party.group = Group("party")
        if party.written:
            party.group = Group.restore("party", party.written[-1], party.now_ms)
        self.generation = party.group.generation

    @invariant()
    def the_generation_only_grows(self) -> None:
        assert self.party.group.generation >= self.generation
        self.generation = self.party.group.generation

    @invariant()
    def nobody_is_in_two_places(self) -> None:
        group = self.party.group
        assert all(key == one.member_id for key, one in group.members.items())
        named = {one.instance_id: one.member_id for one in group.members.values()}
        named.pop(None, None)
        assert named == group.static_ids
        assert not set(group.pending) & set(group.members)
        assert len(group.members) <= self.party.terms.size_max

    @invariant()
    def its_state_is_true(self) -> None:
        group = self.party.group
        if group.state is State.EMPTY:
            assert not group.members
        elif group.state is not State.PREPARING:
            assert group.leader in group.members
            assert group.protocol is not None
        if group.state is State.STABLE:
            assert not any(one.joining or one.syncing for one in group.members.values())

    @invariant()
    def one_truth_in_each_generation(self) -> None:
        for answer in self.party.answers.values():
            if isinstance(answer, SyncAnswer) and answer.assignment:
                generation, _, member_id = answer.assignment.decode().partition("/")
                key = (int(generation), member_id)
                assert self.told.setdefault(key, answer.assignment) == answer.assignment

    def teardown(self) -> None:
        party = self.party
        assert party.unwritten is not None
        for effect in party.unwritten:
            party.commit(effect)
        party.unwritten = None
        party.wait(LONG_MS)
        assert len(party.answers) == party.asked, "whoever waits is answered in the end"
        assert party.group.state is State.EMPTY


TestCrowd = Crowd.TestCase
TestCrowd.settings = settings(max_examples=30, stateful_step_count=30, deadline=None)
