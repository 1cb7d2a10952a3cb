"""Requests changed at random: where Kafka hangs up so do we, and nobody is left without an answer.

The dice have a fixed seed, so the bytes are the same in every run. What is answered depends on what
the change happens to mean; only how it ends is compared.
"""

from __future__ import annotations

import random
import struct
from typing import Final

from ottla.proto.kafka.apis import API_TABLE, ApiRow
from tests.interop.differential.case import Ask, Case, Send, Talk, versions_of
from tests.interop.differential.cases.examples import EXAMPLES
from tests.interop.differential.messages import write_request

PER_VERSION: Final = 12
_BYTES: Final = (0x00, 0x01, 0x02, 0x7F, 0x80, 0xFF)
_NUMBERS: Final = (-(2**31), -2, -1, 0, 1, 100, 2**31 - 1)


def mutate(body: bytes, dice: random.Random) -> bytes:
    """Return the bytes with one to three changes."""
    changed = bytearray(body)
    for _ in range(dice.choice((1, 1, 1, 2, 3))):
        at = dice.randrange(len(changed)) if changed else 0
        match dice.randrange(6):
            case 0:
                changed[at : at + 1] = bytes([dice.choice(_BYTES)])
            case 1:
                changed[at : at + 4] = struct.pack(">i", dice.choice(_NUMBERS))
            case 2:
                del changed[at : at + 1]
            case 3:
                changed.insert(at, dice.choice(_BYTES))
            case 4:
                del changed[at:]
            case _:
                changed[at : at + 1] = bytes(
                    one ^ 1 << dice.randrange(8) for one in changed[at : at + 1]
                )
    return bytes(changed)


def _mutated(row: ApiRow) -> Case:
    def talk(ask: Ask) -> Talk:
        dice = random.Random(f"{row.name} {ask.version}")
        body = write_request(row, ask.version, EXAMPLES[row])
        for _ in range(PER_VERSION):
            yield Send(row, ask.version, body=mutate(body, dice), may_be_silent=True)

    return Case(
        f"{row.name}: changed at random", row, talk, versions_of(row), only_how_it_ends=True
    )


MUTATED_CASES: Final[tuple[Case, ...]] = tuple(_mutated(row) for row in API_TABLE)
