"""Takes over every transactional id when everything is mended: none may be lost to its producer.

Not here: what follows if one is (`checkers/transactions.py`).

H1  an id that nobody could take over in time leaves an operation that has failed
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from typing import Final

from ottla.chaos.clock import now_s
from ottla.chaos.history import Kind
from ottla.chaos.runner.lines import Lines
from ottla.chaos.runner.raw_member import find_coordinator
from ottla.chaos.runner.recorder import HOLD, Recorder
from ottla.chaos.runner.transaction_notes import TRANSACTION_MS
from ottla.clients.cluster import TRANSACTION_KEY_TYPE
from ottla.clients.connection import error_code_of
from ottla.proto.errors import ErrorCode, OttlaError
from ottla.proto.kafka.apis import INIT_PRODUCER_ID

_READER: Final = "final"
_ANSWER_S: Final = 5.0
_PAUSE_S: Final = 0.1


async def hold_ids(
    addresses: Mapping[int, str], ids: Collection[str], recorder: Recorder, deadline_s: float
) -> None:
    """Write down of each id whether a new producer can hold it."""
    lines = Lines(addresses, _READER)
    try:
        for name in sorted(ids):
            index = recorder.begin(_READER, HOLD, value=name, phase="final")
            end_s = now_s() + deadline_s
            code = await _hold(lines, name)
            while code is not ErrorCode.NONE and now_s() < end_s:
                await asyncio.sleep(_PAUSE_S)
                code = await _hold(lines, name)
            told = "nobody answers" if code is None else code.name
            is_held = code is ErrorCode.NONE
            recorder.end(index, Kind.OK if is_held else Kind.FAIL, error=None if is_held else told)
    finally:
        await lines.close()


async def _hold(lines: Lines, name: str) -> ErrorCode | None:
    """Ask for an id once; return what was said, or None."""
    fields = {
        "transactional_id": name,
        "transaction_timeout": TRANSACTION_MS,
        "producer_id": -1,
        "producer_epoch": -1,
    }
    for asked in lines.addresses:
        node = await find_coordinator(lines, asked, name, TRANSACTION_KEY_TYPE)
        if node is None:
            continue
        try:
            line = await lines.to(node)
            answer = await line.call(INIT_PRODUCER_ID, fields, timeout_s=_ANSWER_S)
        except OttlaError:
            lines.cut(node)
            continue
        return error_code_of(answer.error_code)
    return None
