"""Our admin client, as commands use it.

Not here: what is asked of it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from ottla.clients.admin.client import AsyncAdmin
from ottla.clients.cli.cluster import CHANGE_TIMEOUT_MS, require_somebody
from ottla.proto.options.endpoints import Address


@asynccontextmanager
async def open_admin(bootstrap: Sequence[Address]) -> AsyncIterator[AsyncAdmin]:
    """Yield an admin client that has patience; that nobody is there is told at once."""
    await require_somebody(bootstrap)
    async with AsyncAdmin(
        {
            "bootstrap.servers": ",".join(map(str, bootstrap)),
            "default.api.timeout.ms": CHANGE_TIMEOUT_MS,
            "request.timeout.ms": CHANGE_TIMEOUT_MS,
        }
    ) as admin:
        yield admin
