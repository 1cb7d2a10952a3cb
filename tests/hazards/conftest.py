"""The library as shipped leaves its files open; here they are closed for it after each test."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Iterator

import pytest

from tests.hazards import plain


@pytest.fixture(autouse=True)
def close_what_the_library_left_open() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        yield
        for each in plain.LEFT_OPEN:
            each._destroy()
        plain.LEFT_OPEN.clear()
        gc.collect()
