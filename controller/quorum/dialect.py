"""Our messages as the library says them, and back.

Not here: whether to believe them (`transport.py`); the library itself (`seam.py`).

D1  what the library wants to say and is not a message of ours is not said
"""

from __future__ import annotations

from typing import Any

from ottla.controller.quorum.entries import Entry
from ottla.controller.quorum.messages import (
    Append,
    AppendAnswer,
    Message,
    RequestVote,
    SnapshotPart,
    Vote,
)
from ottla.controller.quorum.snapshots import Part
from ottla.proto.errors import ensure


def from_library(told: dict[str, Any]) -> Message | None:
    """Return what the library wants to say, or None if that may not be said."""
    match told:
        case {"type": "request_vote"}:
            return RequestVote(told["term"], told["last_log_index"], told["last_log_term"])
        case {"type": "response_vote"}:
            return Vote(told["term"])
        case {"type": "next_node_idx"}:
            return AppendAnswer(told["next_node_idx"], told["reset"], told["success"])
        case {"type": "append_entries", "serialized": (part, _, _)}:
            of = (part.index, part.entry_term)
            return SnapshotPart(told["term"], *of, part.position, part.data, part.is_last)
        case {"type": "append_entries", "entries": entries, "prevLogIdx": int(index)}:
            ensure("transmission" not in told, "commands are sent in one piece")
            head = (told["term"], told["commit_index"], index, told["prevLogTerm"])
            return Append(*head, tuple(Entry(*entry) for entry in entries))
        case _:
            return None


def to_library(message: Message) -> dict[str, Any] | None:
    """Return a message as the library expects it, or None if it is not for the library."""
    match message:
        case RequestVote():
            return {
                "type": "request_vote",
                "term": message.term,
                "last_log_index": message.last_index,
                "last_log_term": message.last_term,
            }
        case Vote():
            return {"type": "response_vote", "term": message.term}
        case AppendAnswer():
            return {
                "type": "next_node_idx",
                "next_node_idx": message.next_index,
                "reset": message.reset,
                "success": message.success,
            }
        case Append():
            return {
                "type": "append_entries",
                "term": message.term,
                "commit_index": message.commit_index,
                "entries": list(message.entries),
                "prevLogIdx": message.previous_index,
                "prevLogTerm": message.previous_term,
            }
        case SnapshotPart():
            of = (message.index, message.entry_term)
            part = Part(*of, message.position, message.data, message.is_last)
            return {
                "type": "append_entries",
                "term": message.term,
                # The library would call its own entries committed up to there, unseen (T5).
                "commit_index": 0,
                "serialized": (part, message.position == 0, message.is_last),
            }
        case _:
            return None
