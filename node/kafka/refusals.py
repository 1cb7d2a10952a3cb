"""How a refusal, or none, is told.

A client that may try again is told a code that says so. Of those that stand for no fault of its own
there are two: NOT_CONTROLLER, nothing was done, and REQUEST_TIMED_OUT, it may have been done. The
port of the controllers makes the difference, and nothing here blurs it.

Not here: refusing.
"""

from __future__ import annotations

from typing import Any

from ottla.proto.errors import ErrorCode, RequestError


def error_fields(error: RequestError | None) -> dict[str, Any]:
    """Return the two fields that most answers have for each result."""
    if error is None:
        return {"error_code": ErrorCode.NONE, "error_message": None}
    return {"error_code": error.code, "error_message": error.sentence}
