"""Reads what groups have committed when everything is mended, with a new client.

Not here: what should be there (`checkers/groups.py`).

G1  a group whose offsets nobody could tell in time leaves a look that has failed
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from typing import Final

from ottla.chaos.clock import now_s
from ottla.chaos.history import Kind, Place
from ottla.chaos.runner.lines import Lines
from ottla.chaos.runner.raw_member import find_coordinator
from ottla.chaos.runner.recorder import COMMITTED, Recorder
from ottla.chaos.runner.requests import place_of
from ottla.clients.consumer.requests import (
    OFFSET_FETCH_VERSION_MAX,
    committed_of,
    offset_fetch_fields,
)
from ottla.proto.errors import ErrorCode, OttlaError
from ottla.proto.ids import TopicPartition
from ottla.proto.kafka.apis import OFFSET_FETCH

READER: Final = "final"
_ANSWER_S: Final = 5.0
_PAUSE_S: Final = 0.1


async def read_groups(
    addresses: Mapping[int, str],
    groups: Mapping[str, Collection[Place]],
    recorder: Recorder,
    deadline_s: float,
) -> None:
    """Write down what each group has committed in these partitions."""
    lines = Lines(addresses, READER)
    try:
        for group, places in sorted(groups.items()):
            index = recorder.begin(READER, COMMITTED, value=group, phase="final")
            end_s = now_s() + deadline_s
            found = await _read(lines, group, places)
            while found is None and now_s() < end_s:
                await asyncio.sleep(_PAUSE_S)
                found = await _read(lines, group, places)
            if found is None:
                recorder.end(index, Kind.FAIL, error="nobody tells")
            else:
                recorder.end(index, Kind.OK, offsets=tuple(sorted(found.items())))
    finally:
        await lines.close()


async def _read(lines: Lines, group: str, places: Collection[Place]) -> dict[Place, int] | None:
    for asked in lines.addresses:
        node = await find_coordinator(lines, asked, group)
        if node is None:
            continue
        wanted = [TopicPartition(*place) for place in places]
        try:
            line = await lines.to(node)
            fields = offset_fetch_fields(group, wanted)
            answer = await line.call(
                OFFSET_FETCH, fields, OFFSET_FETCH_VERSION_MAX, timeout_s=_ANSWER_S
            )
        except OttlaError:
            lines.cut(node)
            continue
        code, found = committed_of(answer)
        if code is ErrorCode.NONE:
            return {place_of(one): found[one].offset if one in found else -1 for one in wanted}
    return None
