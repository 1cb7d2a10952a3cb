"""Opens the storage of a real process, with the faults that its environment asks for.

`OTTLA_FAULTS` is a list of clauses `name=value` between semicolons:

    power_cut=17         cut the power at the 17th moment (`faults.Power`) of this process
    style=reorder        drop, keep, torn, reorder or mixed; drop unless said
    seed=5               of the dice of the cut
    enospc_after=1000000 the disk takes so many more bytes
    eio=sync:*.log:3     fail the third sync of a matching file; any of `faults.OPERATIONS`
    eio=sync:*.log:3+    the same, and every sync after it
    error=EACCES:open:*.log:1   the same with another error
    slow_sync_ms=20      every sync takes so much longer

`plan_of` reads the same clauses about errors, for whoever changes them while the process runs.

A cut in a real process undoes on the real files what was not synced, and leaves with code 137.
LMDB is not followed page by page: it keeps D3 by itself (`tests/contract/` shows it).

Not here: what a fault does (`faults.py`).
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Final

from ottla.proto.errors import ConfigError
from ottla.replication.storage.disk import DiskFiles
from ottla.replication.storage.failpoints import EXIT_CODE, block_ms, connect_power
from ottla.replication.storage.faults import (
    OPERATIONS,
    FaultPlan,
    FaultRule,
    FaultyFiles,
    FaultyStore,
    Power,
)
from ottla.replication.storage.lmdb_store import LmdbStateStore
from ottla.replication.storage.ports import Files, StateStore
from ottla.replication.storage.unsynced import Style

ENVIRONMENT_KEY: Final = "OTTLA_FAULTS"
_BOOT_ID_PATH: Final = "/proc/sys/kernel/random/boot_id"
# Counts the cuts that were enacted here, since the kernel's boot id does not.
_CUTS_FILE: Final = ".power_cuts"


@dataclass(slots=True)
class Faults:
    """What the environment asks for."""

    power_cut: int | None = None
    style: Style = Style.DROP
    seed: int = 0
    plan: FaultPlan = field(default_factory=FaultPlan)


@dataclass(frozen=True, slots=True)
class Storage:
    """What a node stands on."""

    files: Files
    # Opens the state store in a directory, made if absent.
    open_store: Callable[[str], StateStore]
    # Changes when the page cache may have been lost (rule 8).
    boot_id: str
    # What goes wrong, which may be changed at any time; None: nothing can.
    plan: FaultPlan | None = None


def faults_from_environment(environ: Mapping[str, str]) -> Faults | None:
    """Return what `OTTLA_FAULTS` asks for, None if nothing, or raise `ConfigError`."""
    text = environ.get(ENVIRONMENT_KEY, "")
    if not text.strip():
        return None
    return _read(text)


def plan_of(text: str) -> FaultPlan:
    """Return the errors that clauses ask for, or raise `ConfigError`."""
    return _read(text).plan


def _read(text: str) -> Faults:
    faults = Faults()
    for clause in filter(str.strip, text.split(";")):
        name, _, value = clause.partition("=")
        _read_clause(faults, name.strip(), value.strip())
    return faults


def _read_clause(faults: Faults, name: str, value: str) -> None:
    match name:
        case "power_cut":
            faults.power_cut = _number(name, value)
        case "style":
            styles = {style.value: style for style in Style}
            if value not in styles:
                raise ConfigError(f"{ENVIRONMENT_KEY}: style is one of {', '.join(styles)}.")
            faults.style = styles[value]
        case "seed":
            faults.seed = _number(name, value)
        case "enospc_after":
            faults.plan.room_bytes = _number(name, value)
        case "eio":
            faults.plan.rules.append(_rule(name, f"EIO:{value}"))
        case "error":
            faults.plan.rules.append(_rule(name, value))
        case "slow_sync_ms":
            delay_ms = _number(name, value)
            faults.plan.slow_sync = lambda: block_ms(delay_ms)
        case _:
            raise ConfigError(f"{ENVIRONMENT_KEY}: there is no fault '{name}'.")


def _number(name: str, value: str) -> int:
    if not (value.isascii() and value.isdigit()):
        raise ConfigError(f"{ENVIRONMENT_KEY}: {name} is a whole number, not '{value}'.")
    return int(value)


def _rule(name: str, value: str) -> FaultRule:
    parts = value.split(":")
    code = getattr(errno, parts[0], None)
    if len(parts) != 4 or not isinstance(code, int) or parts[1] not in OPERATIONS:
        form = "operation:pattern:nth" if name == "eio" else "ERROR:operation:pattern:nth"
        known = ", ".join(OPERATIONS)
        raise ConfigError(f"{ENVIRONMENT_KEY}: {name} is {form}; operations are {known}.")
    nth, is_lasting = parts[3].removesuffix("+"), parts[3].endswith("+")
    return FaultRule(parts[1], parts[2], max(1, _number(name, nth)), code, is_lasting)


def open_storage(root: str, environ: Mapping[str, str]) -> Storage:
    """Return the real storage, behind the faults asked for. `root` is where cuts are counted."""
    faults = faults_from_environment(environ)
    boot_id = Path(_BOOT_ID_PATH).read_text(encoding="ascii").strip()
    if faults is None:
        return Storage(DiskFiles(), LmdbStateStore, boot_id)
    power = Power(cut_at=faults.power_cut, machine=boot_id)
    counter = Path(root) / _CUTS_FILE
    power.cuts = int(counter.read_text(encoding="ascii")) if counter.exists() else 0

    def enact() -> None:
        power.cut(Random(faults.seed), faults.style)
        counter.write_text(str(power.cuts), encoding="ascii")
        os._exit(EXIT_CODE)

    power.on_cut = enact
    connect_power(power.switch_off)
    plan = faults.plan
    return Storage(
        FaultyFiles(DiskFiles(), power, plan),
        lambda path: FaultyStore(LmdbStateStore(path), power, plan, name=path),
        power.boot_id,
        plan,
    )
