"""What commands print: a table for people, JSON for programs, a sentence for what went wrong.

O1  with `--json`, standard output has JSON and nothing else
O2  whatever a broker sent is made printable before a terminal sees it
O3  everything goes through `click.echo`: the command `ottla` knows from that who broke the pipe

Not here: records, which are passed on byte for byte (`text.py`).
"""

from __future__ import annotations

import io
import json
import select
import sys
from collections.abc import Sequence
from typing import Any, Final

import click

from ottla.clients.connection import error_code_of
from ottla.proto.errors import ErrorCode, RequestError
from ottla.proto.kafka.message import Message
from ottla.proto.options.option import shown_name

# A table that goes into a file or a pipe is not folded: a line stays a line.
_WIDTH_OF_A_PIPE: Final = 100_000


def tell_json(document: Any) -> None:
    click.echo(json.dumps(document, indent=2, ensure_ascii=False))


def printable(text: str) -> str:
    """Return the text, in quotes and escaped if it could move a cursor."""
    return text if text.isprintable() else json.dumps(text)


def tell_table(headings: Sequence[str], rows: Sequence[Sequence[object]], indent: int = 0) -> None:
    """Print columns; those that hold only numbers are aligned as numbers are."""
    # A fifth of the time that a command takes to start, and JSON does without.
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    is_terminal = sys.stdout.isatty()
    console = Console(
        file=io.StringIO(),
        force_terminal=is_terminal,
        width=None if is_terminal else _WIDTH_OF_A_PIPE,
        highlight=False,
    )
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    for at, heading in enumerate(headings):
        is_numeric = bool(rows) and all(isinstance(row[at], int) for row in rows)
        table.add_column(
            heading, justify="right" if is_numeric else "left", overflow="fold", no_wrap=False
        )
    for row in rows:
        table.add_row(*(Text(printable(str(cell))) for cell in row))
    with console.capture() as captured:
        console.print(table)
    lines = (line.rstrip() for line in captured.get().splitlines())
    click.echo("\n".join(" " * indent + line for line in lines))


def refusal_of(result: Message) -> RequestError | None:
    """Return what a broker refused, in its own words if it has any; None if it did it."""
    if result.error_code == 0:
        return None
    code = error_code_of(result.error_code)
    sentence = result.get("error_message", None)
    if code != result.error_code:
        sentence = f"{sentence or code.sentence} (code {result.error_code})"
    return RequestError(code, printable(sentence) if sentence else "")


def refusal_as_json(refusal: RequestError | None) -> dict[str, Any] | None:
    if refusal is None:
        return None
    return {"code": int(refusal.code), "name": refusal.code.name, "message": refusal.sentence}


def told_refusal(what: str, refusal: RequestError) -> str:
    """Return one sentence: what was not done, why, and Kafka's name for it."""
    return f"{what}: {refusal.sentence.rstrip()} ({refusal.code.name})"


def told_undone(what: str, done: str, refusal: RequestError) -> str:
    """Return that something was not done, or that nobody knows; `done` is a word like "created"."""
    if is_unknown(refusal):
        return told_refusal(f"{what}: not known whether it was {done}", refusal)
    return told_refusal(f"{what} was not {done}", refusal)


def is_unknown(refusal: RequestError | None) -> bool:
    """Return whether what was refused may have been done all the same, or will be."""
    return refusal is not None and refusal.code is ErrorCode.REQUEST_TIMED_OUT


def with_topic_hint(refusal: RequestError, topic: str | None) -> RequestError:
    """Return the refusal; if the topic is not there, in words that say how it would be."""
    if topic is None or refusal.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return refusal
    advice = f"`ottla topics create {shown_name(topic)}` makes it."
    return RequestError(refusal.code, f"there is none; {advice}")


def reader_is_gone() -> bool:
    """Return whether nobody reads standard output any more; a write would find out, too."""
    try:
        output = sys.stdout.fileno()
    except OSError:
        # It is not a file: a test holds it.
        return False
    watch = select.poll()
    watch.register(output, 0)
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in watch.poll(0))


def complain(sentence: str) -> None:
    click.echo(f"ottla: {sentence}", err=True)
