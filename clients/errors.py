"""What a client can know about a request that got no answer.

OttlaError
├── NotSentError             the request never left: surely nothing happened
│   ├── UnreachableError       no connection could be made
│   └── NoCommonVersionError   the broker speaks no version of the API that we speak
└── OutcomeUnknownError      the request left, and no answer can be read: it may have happened
    ├── ClosedByPeerError      the broker hung up first
    ├── AnswerTimeoutError     the answer did not come in time
    └── BrokenAnswerError      something came that is no answer (a RemoteProtocolError as well)

A refusal is none of these: it is an answer, and its code is in it.
"""

from __future__ import annotations

from ottla.proto.errors import OttlaError, RemoteProtocolError


class NotSentError(OttlaError):
    """The request never left this process: surely nothing happened."""


class UnreachableError(NotSentError):
    """No connection could be made."""


class NoCommonVersionError(NotSentError):
    """The broker speaks no version of this API that we speak."""


class OutcomeUnknownError(OttlaError):
    """The request left and no answer can be read: a write may have happened, or not."""


class ClosedByPeerError(OutcomeUnknownError):
    """The broker closed the connection before it answered."""


class AnswerTimeoutError(OutcomeUnknownError):
    """The answer did not come within the time allowed."""


class BrokenAnswerError(OutcomeUnknownError, RemoteProtocolError):
    """What came is not an answer to what was asked."""
