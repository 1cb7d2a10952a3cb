"""Producers that ask anything in any order, coordinators that die, and a model beside them.

The model is naive: it knows who was last told to hold the id, what became of each transaction, and
nothing of how that is done. Every request is in the old dialect or in the new one, by lot.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from ottla.node.transactions.records import decode_value, encode_value
from ottla.node.transactions.transaction import Transaction
from ottla.node.transactions.words import (
    EPOCH_MAX,
    FOR_EVER_MS,
    NEW_CLIENT,
    OLD_CLIENT,
    Decision,
    Init,
    NeedsId,
    Refused,
    State,
    Told,
    WriteValue,
)

PLACES = [("t", number) for number in range(4)]
TIMEOUT_MS = 100
DIALECTS = st.sampled_from((OLD_CLIENT, NEW_CLIENT))
Token = tuple[int, int]


class Asked(NamedTuple):
    """A request: what is asked, by whom, with what, and in which dialect."""

    kind: str
    # Of producers; they are counted, and each may have had several tokens.
    who: int
    token: Token | None
    is_commit: bool = False
    version: int = NEW_CLIENT


class Office(RuleBasedStateMachine):
    """One transactional id, and everybody who wants something of it."""

    def __init__(self) -> None:
        super().__init__()
        self.now_ms = 1_000
        self.ids = iter(range(100, 100_000))
        self.one = Transaction.new("x", next(self.ids), TIMEOUT_MS, self.now_ms)
        self.log: list[bytes] = []
        # What was answered is told when it is committed.
        self.owed: tuple[Asked, Told | Refused] | None = None
        # The model: everybody who was told to hold the id, in order; the last one holds it.
        self.tokens: list[Token] = []
        # To which producer each was given.
        self.owners: dict[Token, int] = {}
        self.people = iter(range(100_000))
        # Whether the transaction that a token ended was committed. Only of new clients.
        self.outcomes: dict[Token, bool] = {}
        self.is_patient = False
        self.decided: bool | None = None

    @initialize(near_end=st.booleans())
    def choose(self, near_end: bool) -> None:
        asked = Asked("init", next(self.people), None)
        self._ask(lambda fresh: self.one.init(self._wish(), self.now_ms, fresh), asked)
        self.the_log_answers(is_refused=False)
        if near_end:
            # Epochs run out soon.
            value = decode_value(self.log[-1])
            self.one.value = type(value)(
                producer_id=value.producer_id,
                producer_epoch=EPOCH_MAX - 6,
                timeout_ms=value.timeout_ms,
                updated_ms=value.updated_ms,
            )
            self.log.append(encode_value(self.one.value))
            self.tokens = [(value.producer_id, EPOCH_MAX - 6)]
            self.owners = {self.tokens[0]: asked.who}

    def _wish(self, **changes: Any) -> Init:
        timeout_ms = FOR_EVER_MS if self.is_patient else TIMEOUT_MS
        return Init(timeout_ms=timeout_ms, **changes)

    def _ask(self, question: Any, asked: Asked) -> None:
        decision: Decision = question(None)
        if isinstance(decision, NeedsId):
            decision = question(next(self.ids))
        assert not isinstance(decision, NeedsId)
        is_current = asked.token is None or asked.token == self.tokens[-1]
        if isinstance(decision, WriteValue):
            assert is_current, f"{asked}, which was fenced, changes something"
            self.one.begin(decision.value)
            self.owed = (asked, decision.answer)
        elif isinstance(decision, Told):
            self._tell(asked, decision)

    def _tell(self, asked: Asked, answer: Told) -> None:
        if asked.kind == "init":
            self._held_by((answer.producer_id, answer.producer_epoch), asked.who)
        elif asked.kind == "end" and asked.token is not None and asked.version == NEW_CLIENT:
            known = self.outcomes.setdefault(asked.token, asked.is_commit)
            assert known == asked.is_commit, "what was told stays true"
            self._held_by((answer.producer_id, answer.producer_epoch), asked.who)

    def _held_by(self, token: Token, who: int) -> None:
        # Only who asks again is given what was given before (T2).
        assert self.owners.setdefault(token, who) == who, f"two producers are {token}"
        if token not in self.tokens:
            assert all(one[0] != token[0] or one[1] < token[1] for one in self.tokens)
            self.tokens.append(token)

    # ── What may happen ───────────────────────────────────────────────────────────────────────

    @rule(data=st.data(), keeps=st.booleans(), says=st.booleans())
    def somebody_wants_the_id(self, data: Any, keeps: bool, says: bool) -> None:
        token = data.draw(st.sampled_from(self.tokens)) if says else None
        wish = self._wish(expected=token, keeps_prepared=keeps and self.is_patient)
        # One that asks again with what it was before gets the same answer: no model of that here.
        # But whatever is open, it does not touch (T2).
        if token is None or token == self.tokens[-1] or self.one.value.state is State.ONGOING:
            # To keep what is open one may name it, whoever holds it.
            named = None if wish.keeps_prepared else token
            who = next(self.people) if named is None else self.owners[named]
            asked = Asked("init", who, named)
            self._ask(lambda fresh: self.one.init(wish, self.now_ms, fresh), asked)

    @rule(data=st.data(), place=st.sampled_from(PLACES), version=DIALECTS)
    def somebody_adds(self, data: Any, place: tuple[str, int], version: int) -> None:
        token: Token = data.draw(st.sampled_from(self.tokens))
        producer_id, epoch = token
        places = frozenset({place})
        self._ask(
            lambda _: self.one.add(producer_id, epoch, places, self.now_ms, version),
            Asked("add", self.owners[token], token),
        )

    @rule(data=st.data(), is_commit=st.booleans(), version=DIALECTS)
    def somebody_ends(self, data: Any, is_commit: bool, version: int) -> None:
        token: Token = data.draw(st.sampled_from(self.tokens))
        producer_id, epoch = token
        self._ask(
            lambda fresh: self.one.end(
                producer_id,
                epoch,
                self.now_ms,
                is_commit=is_commit,
                version=version,
                fresh=fresh,
            ),
            Asked("end", self.owners[token], token, is_commit, version),
        )

    @rule(is_commit=st.booleans(), version=DIALECTS)
    def somebody_holds_the_id_and_ends_a_transaction(self, is_commit: bool, version: int) -> None:
        """All of it in one step: what comes of it is met more often so."""
        if self.one.pending is not None or self.one.value.state.is_decided:
            return
        asked = Asked("init", next(self.people), None)
        self._ask(lambda fresh: self.one.init(self._wish(), self.now_ms, fresh), asked)
        self.the_log_answers(is_refused=False)
        if self.one.value.state is not State.EMPTY:
            # What was open is being aborted first.
            return
        token, places = self.tokens[-1], frozenset(PLACES[:1])
        adding = Asked("add", asked.who, token)
        self._ask(lambda _: self.one.add(*token, places, self.now_ms, version), adding)
        self.the_log_answers(is_refused=False)
        ending = Asked("end", asked.who, token, is_commit, version)
        self._ask(
            lambda fresh: self.one.end(
                *token, self.now_ms, is_commit=is_commit, version=version, fresh=fresh
            ),
            ending,
        )
        self.the_log_answers(is_refused=False)
        self.one.marked(PLACES)
        self.one.begin(self.one.complete(self.now_ms))
        self.the_log_answers(is_refused=False)

    @rule()
    def somebody_becomes_patient(self) -> None:
        self.is_patient = not self.is_patient

    @rule(ms=st.sampled_from((1, 60, 200)))
    def time_passes(self, ms: int) -> None:
        self.now_ms += ms
        late = self.one.time_out(self.now_ms)
        if late is not None:
            assert self.one.value.timeout_ms != FOR_EVER_MS
            self.one.begin(late.value)

    @rule(is_refused=st.booleans())
    def the_log_answers(self, is_refused: bool) -> None:
        if self.one.pending is None:
            return
        if is_refused:
            self.one.give_up()
        else:
            self.log.append(encode_value(self.one.pending))
            self._note(self.one.pending.state)
            self.one.settle()
            if self.owed is not None and isinstance(self.owed[1], Told):
                self._tell(self.owed[0], self.owed[1])
        self.owed = None

    @rule(data=st.data())
    def a_marker_is_written(self, data: Any) -> None:
        one = self.one
        if one.unmarked:
            one.marked([data.draw(st.sampled_from(sorted(one.unmarked)))])
        if one.value.state.is_decided and not one.unmarked and one.pending is None:
            one.begin(one.complete(self.now_ms))

    @rule(is_kept=st.booleans())
    def the_coordinator_dies(self, is_kept: bool) -> None:
        """Whoever is next reads the log: what was on its way there may have come or not."""
        if is_kept and self.one.pending is not None:
            self.log.append(encode_value(self.one.pending))
            self._note(self.one.pending.state)
            if self.owed is not None and isinstance(self.owed[1], Told):
                # Nobody was told, and it is so all the same.
                self._tell(self.owed[0], self.owed[1])
        self.owed = None
        self.one = Transaction("x", decode_value(self.log[-1]))

    # ── What holds ────────────────────────────────────────────────────────────────────────────

    def _note(self, state: State) -> None:
        if state.is_decided:
            assert self.decided is None, "decided once"
            self.decided = state.is_commit
        elif state.is_complete:
            assert self.decided is state.is_commit, "what is decided stays decided"
            self.decided = None
        else:
            assert self.decided is None, "nothing goes on before a decision is complete"

    @invariant()
    def what_is_decided_reaches_every_partition(self) -> None:
        one = self.one
        if one.value.state.is_decided:
            assert one.unmarked <= one.value.partitions
        else:
            assert not one.unmarked

    @rule(version=DIALECTS)
    def who_holds_the_id_can_go_on(self, version: int) -> None:
        one = self.one
        if self.tokens and one.pending is None and one.value.state is State.ONGOING:
            told = one.end(
                *one.value.holder,
                self.now_ms,
                is_commit=True,
                version=version,
                fresh=1,
            )
            assert isinstance(told, WriteValue)


TestOffice = Office.TestCase
TestOffice.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
