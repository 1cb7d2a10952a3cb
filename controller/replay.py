"""The metadata as a quorum agrees on it: bytes in, outcomes out, and the same on every member.

Around `apply` it adds what agreement needs (rule 68):
  - the version counts every command, also those that were refused
  - the digest runs over every command, what came of it and what it changed: members that disagree
    about anything have different digests at the same version
  - a session remembers what came of the last commands of whoever asks, so that a command which is
    committed twice is obeyed once

A session begins with a registration, or with the taking of the office, and ends with the next one
of the same broker or of anybody. Without it a command is not obeyed: it comes from an earlier life
or from a deposed controller, and whether it was obeyed before is unknown.

Not here: what a command does (`state.py`), and agreeing on it (`quorum/`).

M1  `apply_bytes` is total and deterministic, for any bytes, on every program that knows the
    feature level of the cluster; one that does not stops
M2  a command with one request id is obeyed at most once, and its outcome is given again while it
    is remembered; after that it is unknown, and never obeyed again
M3  members that were fed the same commands are equal, digest and sessions included
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Final

from ottla.controller.commands import Command, ForgetBroker, RegisterBroker, TakeOffice
from ottla.controller.delta import Delta, delta_between, encode_delta, with_digest
from ottla.controller.image import FEATURE_LEVEL, NO_CONTROLLER, MetadataImage
from ottla.controller.outcome import Outcome, Refusal, refused, unknown
from ottla.controller.parts import OUTCOME
from ottla.controller.proposal import Proposal, RequestId, decode_proposal
from ottla.controller.shapes import NUMBER, Reader
from ottla.controller.state import apply
from ottla.proto.errors import ErrorCode, RequestError, StorageError
from ottla.proto.ids import BrokerId

# Whoever has more commands under way than this hears "unknown" for some.
WINDOW: Final = 256
DIGEST_BYTES: Final = 16


@dataclass(frozen=True, slots=True)
class Session:
    """What came of the last commands of one life of a broker, or of one office."""

    node_id: BrokerId
    is_office: bool
    # Below it nothing is remembered.
    floor: int = 0
    # Sequence and outcome, ascending by sequence.
    remembered: tuple[tuple[int, bytes], ...] = ()


@dataclass(frozen=True, slots=True)
class MetadataState:
    """All that the members of a quorum agree on."""

    image: MetadataImage
    # By the epoch, which is the version at which the session began.
    sessions: Mapping[int, Session] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Applied:
    """A command's effect: the state after it, what came of it, and what to tell brokers."""

    state: MetadataState
    outcome: Outcome
    delta: Delta
    # `encode_delta` of it.
    delta_bytes: bytes


def first_state(cluster_id: str) -> MetadataState:
    return MetadataState(MetadataImage(0, cluster_id, NO_CONTROLLER, {}))


def apply_bytes(state: MetadataState, data: bytes) -> Applied:
    """Return what becomes of the state, whatever the bytes are."""
    before = state.image
    if before.feature_level > FEATURE_LEVEL:
        # The others go on: this member must neither guess nor refuse, but stop.
        raise StorageError(
            f"The cluster is at feature level {before.feature_level}, and this version of Ottla "
            f"knows levels up to {FEATURE_LEVEL}. Start a newer version."
        )
    version = before.version + 1
    try:
        proposal = decode_proposal(data, feature_level=before.feature_level)
        image, outcome, sessions = _obey(state, proposal, version)
    except RequestError as error:
        image, outcome, sessions = before, refused(error), state.sessions
    if outcome.version is None:
        outcome = replace(outcome, version=version)
    image = replace(image, version=version)
    delta = delta_between(before, image)
    delta_bytes = encode_delta(delta)
    digest = _digest_after(before.digest, data, outcome, delta_bytes)
    digested = replace(delta, digest=digest)
    return Applied(
        MetadataState(replace(image, digest=digest), sessions),
        outcome,
        digested,
        with_digest(delta_bytes, delta, digested),
    )


def _obey(
    state: MetadataState, proposal: Proposal, version: int
) -> tuple[MetadataImage, Outcome, Mapping[int, Session]]:
    command = proposal.command
    if isinstance(command, TakeOffice | RegisterBroker):
        image, outcome = _apply_safely(state.image, command)
        sessions = state.sessions
        if outcome.epoch == version:
            sessions = _opened(sessions, command, version)
        return image, outcome, sessions
    known = _recalled(state, proposal.request)
    if known is not None:
        return state.image, known, state.sessions
    image, outcome = _apply_safely(state.image, command)
    outcome = replace(outcome, version=version)
    sessions = _remembered(state.sessions, proposal.request, outcome)
    if isinstance(command, ForgetBroker) and outcome.refusal is None:
        sessions = {
            epoch: one
            for epoch, one in sessions.items()
            if one.is_office or one.node_id != command.broker_id
        }
    return image, outcome, sessions


def _apply_safely(image: MetadataImage, command: Command) -> tuple[MetadataImage, Outcome]:
    try:
        return apply(image, command)
    except MemoryError:
        # Another member may have had enough, and would go on with another state.
        raise
    except Exception as error:  # noqa: BLE001
        # A mistake of ours. It would be raised again by every member at every start, so that the
        # quorum could never go on; all of them refuse the command instead.
        sentence = f"The command met a mistake in the program: {type(error).__name__}."
        return image, Outcome(Refusal(ErrorCode.UNKNOWN_SERVER_ERROR, sentence))


# ── Sessions ──────────────────────────────────────────────────────────────────────────────────


def _opened(
    sessions: Mapping[int, Session], command: TakeOffice | RegisterBroker, epoch: int
) -> Mapping[int, Session]:
    is_office = isinstance(command, TakeOffice)
    node_id = command.node_id if isinstance(command, TakeOffice) else command.broker_id

    def has_ended(one: Session) -> bool:
        return one.is_office if is_office else not one.is_office and one.node_id == node_id

    kept = {key: one for key, one in sessions.items() if not has_ended(one)}
    return {**kept, epoch: Session(node_id, is_office)}


def _recalled(state: MetadataState, request: RequestId) -> Outcome | None:
    """Return what came of this request before, or None if this is the first time."""
    session = state.sessions.get(request.epoch)
    if session is None or session.node_id != request.node_id:
        return unknown(
            f"Node {request.node_id} has no session {request.epoch} (any more); what it asked for "
            "may or may not have happened before."
        )
    if request.sequence < session.floor:
        return unknown(f"What came of request {request.sequence} is not remembered any more.")
    at = bisect_left(session.remembered, (request.sequence, b""))
    if at < len(session.remembered) and session.remembered[at][0] == request.sequence:
        return decode_outcome(session.remembered[at][1])
    return None


def _remembered(
    sessions: Mapping[int, Session], request: RequestId, outcome: Outcome
) -> Mapping[int, Session]:
    session = sessions[request.epoch]
    new = (request.sequence, encode_outcome(outcome.answer()))
    at = bisect_left(session.remembered, new)
    remembered = (*session.remembered[:at], new, *session.remembered[at:])
    floor = session.floor
    if len(remembered) > WINDOW:
        floor = remembered[0][0] + 1
        remembered = remembered[1:]
    return {**sessions, request.epoch: replace(session, floor=floor, remembered=remembered)}


def encode_outcome(outcome: Outcome) -> bytes:
    out = bytearray()
    OUTCOME.write(out, outcome)
    return bytes(out)


def decode_outcome(data: bytes) -> Outcome:
    reader = Reader(data, "The outcome of a command")
    outcome = OUTCOME.read(reader)
    reader.require_end()
    return outcome


def _digest_after(before: bytes, data: bytes, outcome: Outcome, delta: bytes) -> bytes:
    """Return the next digest. Its bytes are as fixed as the commands of a feature level are."""
    digest = blake2b(before, digest_size=DIGEST_BYTES)
    for part in (data, encode_outcome(_without_words(outcome)), delta):
        size = bytearray()
        NUMBER.write(size, len(part))
        digest.update(size + part)
    return digest.digest()


def _without_words(outcome: Outcome) -> Outcome:
    """Return the outcome as members agree on it: a later version may say the same otherwise."""
    if outcome.refusal is None and not outcome.results:
        return outcome
    results = (replace(one, refusal=_bare(one.refusal)) for one in outcome.results)
    return replace(outcome, refusal=_bare(outcome.refusal), results=tuple(results))


def _bare(refusal: Refusal | None) -> Refusal | None:
    return None if refusal is None else Refusal(refusal.code, "")
