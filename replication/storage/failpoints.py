"""Named places in the code where a test, or an operator of a chaos run, can make things go wrong.

A row per place (rule 70). `hit(name)` costs a few dozen nanoseconds while nothing is armed, so the
places stay in the product. What can be armed, each with `@n` behind it for "the n-th time only":

    crash        leave at once, as `os._exit(137)` does: no flush, no farewell
    kill         the same by SIGKILL
    error(EIO)   raise `OSError` with that number
    sleep(20)    block for so many milliseconds
    raise        raise `CrashError`: how a simulated process dies
    powercut     cut the power (`faults.py`): lose what was not synced, then leave

Not here: faults of files themselves, which need no name in the code (`faults.py`).
"""

from __future__ import annotations

import errno
import os
import re
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from threading import Lock
from typing import Final

from ottla.proto.errors import ConfigError, ensure

ENVIRONMENT_KEY: Final = "OTTLA_FAILPOINTS"
# What a process killed by SIGKILL reports, so that a supervisor sees no difference.
EXIT_CODE: Final = 137


class CrashError(BaseException):
    """A simulated process died here. No `except Exception` may survive it."""


@dataclass(frozen=True, slots=True)
class Failpoint:
    """One place, and what has happened when it is reached."""

    name: str
    sentence: str


FAILPOINTS: Final = (
    Failpoint("log.append.before", "One or more batches were accepted; no byte is written."),
    Failpoint("log.append.after", "One or more batches are in the page cache; nobody was told."),
    Failpoint("log.sync.before", "Appended batches are about to be synced."),
    Failpoint("log.sync.after", "The sync returned and the synced offset has not moved."),
    Failpoint("log.roll.before", "The active segment is full or old, and still the active one."),
    Failpoint("log.roll.after", "A new segment is open and its first batch is not written."),
    Failpoint("log.epoch.before", "A new leader epoch is known and not yet stored."),
    Failpoint("log.epoch.after", "A new leader epoch is stored and not yet in use."),
    Failpoint("log.truncate.begin", "A truncation was decided and nothing has changed."),
    Failpoint("log.truncate.state", "The state store forgot what lies above; files still have it."),
    Failpoint("log.truncate.files", "Files are cut and not yet synced."),
    Failpoint("log.truncate.end", "A truncation is durable and appends have not resumed."),
    Failpoint("log.checkpoint.before", "A recovery point was chosen and not yet stored."),
    Failpoint("log.checkpoint.after", "A recovery point is stored."),
    Failpoint("log.snapshot.before", "A producer snapshot was taken and not yet stored."),
    Failpoint("log.snapshot.after", "A producer snapshot is stored."),
    Failpoint("log.delete.before", "Segments were chosen for deletion; the log start is old."),
    Failpoint("log.delete.after", "The log start is durable and its files are renamed or gone."),
    Failpoint("log.clean.before", "Segments were chosen for cleaning and nothing is written."),
    Failpoint("log.clean.write", "A cleaned segment is being written beside the old ones."),
    Failpoint("log.clean.intent", "The cleaned segment is synced; the swap is about to be named."),
    Failpoint("log.clean.swap", "The swap is named and half done."),
    Failpoint("log.clean.after", "The cleaned segment stands in place of the old ones."),
    Failpoint("log.recovery.before", "An unclean log is about to be scanned."),
    Failpoint("log.recovery.truncate", "A torn tail was found and is about to be cut."),
    Failpoint("log.recovery.after", "The log is whole again; its recovery point is not stored."),
    Failpoint("state.commit.before", "A transaction of the state store is about to begin."),
    Failpoint("state.commit.after", "A transaction is durable and its caller was not told."),
    Failpoint("quorum.snapshot.before", "A snapshot and what it trims are about to be committed."),
    Failpoint("quorum.snapshot.after", "Both are durable, at once; the member was not told."),
    Failpoint("leader.lead.before", "The metadata made this replica the leader; it does not lead."),
    Failpoint("leader.lead.after", "It leads; nothing is appended in the new epoch."),
    Failpoint("leader.feed", "An answer to a follower is made and not sent."),
    Failpoint("replica.commit", "The high watermark has moved; nobody was told."),
    Failpoint("isr.propose.before", "An in-sync set is to be proposed and is not sent."),
    Failpoint("isr.propose.after", "The controller has answered; the leader was not told."),
    Failpoint(
        "isr.commit.before", "The metadata has another in-sync set; the leader goes by the old."
    ),
    Failpoint("isr.commit.after", "The leader goes by the new in-sync set; nobody was told."),
    Failpoint("follower.append.before", "Batches of the leader are here; no byte is written."),
    Failpoint("follower.append.after", "They are in the page cache; the leader was not told."),
    Failpoint("follower.claim", "The leader is about to be told what is held here."),
)
NAMES: Final = frozenset(row.name for row in FAILPOINTS)


class Kind(Enum):
    """What happens at an armed failpoint."""

    CRASH = "crash"
    KILL = "kill"
    ERROR = "error"
    SLEEP = "sleep"
    RAISE = "raise"
    POWER_CUT = "powercut"


@dataclass(frozen=True, slots=True)
class Action:
    """What to do, and when."""

    kind: Kind
    # An error number for ERROR, milliseconds for SLEEP, otherwise 0.
    value: int = 0
    # Act the n-th time only; None is every time.
    nth: int | None = None


_ACTION = re.compile(r"(?P<kind>\w+)(\((?P<value>\w+)\))?(@(?P<nth>[1-9]\d*))?")


def parse_action(text: str) -> Action:
    """Return the action written as `crash@3` or `error(ENOSPC)`, or raise `ConfigError`."""
    match = _ACTION.fullmatch(text.strip())
    kinds = {kind.value: kind for kind in Kind}
    if match is None or match["kind"] not in kinds:
        known = ", ".join(kinds)
        raise ConfigError(f"'{text}' is no failpoint action; there are {known}, and @n for when.")
    kind = kinds[match["kind"]]
    nth = int(match["nth"]) if match["nth"] else None
    return Action(kind, _value_of(kind, match["value"], text), nth)


def _value_of(kind: Kind, value: str | None, text: str) -> int:
    if kind is Kind.ERROR:
        code = getattr(errno, value or "", None)
        if not isinstance(code, int):
            raise ConfigError(f"'{text}' needs the name of an error, as in error(EIO).")
        return code
    if kind is Kind.SLEEP:
        if value is None or not value.isdigit():
            raise ConfigError(f"'{text}' needs whole milliseconds, as in sleep(20).")
        return int(value)
    if value is not None:
        raise ConfigError(f"'{text}': the action {kind.value} takes nothing in brackets.")
    return 0


class _Armed:
    """An action and how often its place was reached."""

    __slots__ = ("action", "hits")

    def __init__(self, action: Action) -> None:
        self.action = action
        self.hits = 0


_armed: Final[dict[str, _Armed]] = {}
_counting: Final = Lock()
_power_switch: list[Callable[[str], None]] = []


def hit(name: str) -> None:
    """Do what was armed for this place; usually nothing."""
    if _armed:
        _reach(name)


def is_any_armed() -> bool:
    """Return whether something may happen at some place."""
    return bool(_armed)


def require_name(name: str) -> str:
    """Return the name of a place, or raise `ConfigError`."""
    if name not in NAMES:
        raise ConfigError(f"There is no failpoint '{name}'; docs/generated/FAILPOINTS.md has all.")
    return name


def arm(name: str, action: Action | str) -> None:
    """Let `action` happen at the place `name` from now on. A text is parsed."""
    _armed[require_name(name)] = _Armed(parse_action(action) if isinstance(action, str) else action)


def disarm(name: str) -> None:
    _armed.pop(name, None)


def disarm_all() -> None:
    _armed.clear()


def armed() -> dict[str, Action]:
    """Return what is armed now, for whoever wants to show it."""
    return {name: row.action for name, row in _armed.items()}


def arm_from_environment(environ: Mapping[str, str]) -> None:
    """Arm what `OTTLA_FAILPOINTS` says: `name=action;name=action`. Call it once, at the start."""
    for clause in environ.get(ENVIRONMENT_KEY, "").split(";"):
        if not clause.strip():
            continue
        name, equals, action = clause.partition("=")
        if not equals:
            raise ConfigError(f"{ENVIRONMENT_KEY}: '{clause}' is not of the form name=action.")
        arm(name.strip(), action)


def connect_power(switch: Callable[[str], None] | None) -> None:
    """Say who cuts the power when a `powercut` is reached; None takes it back."""
    _power_switch[:] = [] if switch is None else [switch]


def cut_power(why: str) -> None:
    """Lose what was not synced, and end this process; without a switch, only end it."""
    for switch in _power_switch:
        switch(why)
    os._exit(EXIT_CODE)


def block_ms(delay_ms: int) -> None:
    """Block this thread, as a slow disk does. The only sleep in the server."""
    time.sleep(delay_ms / 1000)


def _reach(name: str) -> None:
    ensure(name in NAMES, "every failpoint has a row", name=name)
    with _counting:
        row = _armed.get(name)
        if row is None:
            return
        row.hits += 1
        if row.action.nth not in (None, row.hits):
            return
    _enact(name, row.action)


def _enact(name: str, action: Action) -> None:
    match action.kind:
        case Kind.CRASH:
            os._exit(EXIT_CODE)
        case Kind.KILL:
            os.kill(os.getpid(), signal.SIGKILL)
        case Kind.ERROR:
            raise OSError(action.value, os.strerror(action.value), f"failpoint {name}")
        case Kind.SLEEP:
            block_ms(action.value)
        case Kind.RAISE:
            raise CrashError(name)
        case Kind.POWER_CUT:
            if not _power_switch:
                raise ConfigError(f"{name}=powercut needs a storage that was opened with faults.")
            _power_switch[0](name)
