"""How a run goes, while it goes: one line that changes on a terminal, plain lines elsewhere.

Not here: what is told when it is over (`cli.py`).
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Final, Protocol, Self

import click

from ottla.chaos.clock import now_s

PHASE: Final = "phase"
TICK: Final = "tick"
FAULT: Final = "fault"
NOTE: Final = "note"
_PLAIN_EVERY_S: Final = 10.0
_REFRESH_PER_S: Final = 4


class Progress(Protocol):
    """Is told what happens; as a context manager it cleans up after itself."""

    def __call__(self, what: str, facts: Mapping[str, Any], /) -> None: ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
        /,
    ) -> None: ...


def progress_for(scenario: str) -> Progress:
    """Return the one that suits where the output goes."""
    return LiveProgress(scenario) if sys.stderr.isatty() else PlainProgress(scenario)


class PlainProgress:
    """A line for each phase and each fault, and one now and then in between."""

    def __init__(self, scenario: str) -> None:
        self._scenario: Final = scenario
        self._began_s: Final = now_s()
        self._told_s = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def __call__(self, what: str, facts: Mapping[str, Any]) -> None:
        now = now_s() - self._began_s
        if what == TICK and now - self._told_s < _PLAIN_EVERY_S:
            return
        self._told_s = now
        click.echo(f"{self._scenario} {now:6.1f} s  {told(what, facts)}", err=True)


class LiveProgress:
    """One line at the bottom that changes; phases and faults stay above it."""

    def __init__(self, scenario: str) -> None:
        # A fifth of the time that a command takes to start.
        from rich.console import Console
        from rich.status import Status

        self._scenario: Final = scenario
        self._began_s: Final = now_s()
        self._console: Final = Console(stderr=True, highlight=False)
        self._status: Final = Status(
            scenario, console=self._console, refresh_per_second=_REFRESH_PER_S
        )

    def __enter__(self) -> Self:
        self._status.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._status.stop()

    def __call__(self, what: str, facts: Mapping[str, Any]) -> None:
        from rich.markup import escape

        now = now_s() - self._began_s
        line = escape(told(what, facts))
        if what == TICK:
            self._status.update(f"[bold]{self._scenario}[/] {now:5.1f} s  {line}")
        else:
            colour = "red" if facts.get("step") == "inject" else "dim"
            self._console.print(f"[{colour}]{self._scenario} {now:6.1f} s  {line}[/]")


def told(what: str, facts: Mapping[str, Any]) -> str:
    """Return an event of a run in words."""
    if what == PHASE:
        return f"── {facts.get('phase', '')}"
    if what == FAULT:
        nodes = ",".join(str(one) for one in facts.get("targets", ()))
        is_mended = facts.get("step") == "heal"
        return f"{'mended' if is_mended else 'broken'}: {facts.get('fault')} {nodes}".rstrip()
    if what != TICK:
        return str(facts.get("text", what))
    faults = "; ".join(str(one) for one in facts.get("faults", ()))
    return (
        f"{facts.get('phase', '')}  {facts.get('ok', 0):.0f} ok  {facts.get('fail', 0):.0f} refused"
        f"  {facts.get('unknown', 0):.0f} unknown  {facts.get('rate', 0):.0f}/s"
        + (f"  broken: {faults}" if faults else "")
    )
