"""For all tests: an example of a property may take its time on a machine that is busy; gRPC, which
some tests use in this very process, says nothing in the children that others start; and the order
in which workers get their tests (`schedule.py`)."""

from __future__ import annotations

import gc
import os
from collections.abc import Generator

import pytest
from hypothesis import settings

from tests.schedule import LongestFirst, turn_of

os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"

settings.register_profile("ottla", deadline=None)
settings.load_profile("ottla")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Generator[None, object, object]:
    # Ten thousand tests are collected and none is thrown away: looking for garbage meanwhile, again
    # and again among more and more objects, takes a good part of the time.
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # Stable: what has the same turn stays in the order of the lot.
    items.sort(key=lambda item: turn_of(item.nodeid))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> LongestFirst:
    return LongestFirst(config, log)
