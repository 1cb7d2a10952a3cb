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


def told_length(size: int, size_max: int) -> str:
    """Return why a length that was announced is refused, and what may have been meant."""
    if size < 0:
        return f"a request of {size} bytes was announced"
    # What browsers, TLS clients and lost load balancers send first, taken for a length.
    head = size.to_bytes(4, "big")
    if head[:2] in (b"\x16\x03", b"\x80\x2e"):
        return "this is a TLS handshake, and the listener speaks plain text"
    if head in (b"GET ", b"POST", b"HEAD", b"PUT ", b"OPTI", b"CONN"):
        return "this is an HTTP request, and the listener speaks Kafka's protocol"
    return f"a request of {size} bytes was announced; socket.request.max.bytes allows {size_max}"
