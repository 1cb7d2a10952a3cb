"""Long lists in a request, worked through with pauses: the loop belongs to everybody.

Not here: how long a list may be (the codec, by what the bytes of a request can hold).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from itertools import islice
from typing import Final, TypeVar

# Names of groups that are looked up at once. The longest takes a fifth of a millisecond to hash.
AT_ONCE: Final = 50

T = TypeVar("T")


def in_turns(things: Iterable[T]) -> Iterator[Sequence[T]]:
    rest = iter(things)
    while some := tuple(islice(rest, AT_ONCE)):
        yield some


async def with_pauses(things: Iterable[T]) -> AsyncIterator[T]:
    """Yield all, and let others have the loop now and then."""
    for number, some in enumerate(in_turns(things)):
        if number:
            await asyncio.sleep(0)
        for one in some:
            yield one
