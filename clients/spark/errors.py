"""What only the source and the sink raise, beside what every client raises.

OttlaError
├── DataLossError    records that a query should read are gone
├── ReadLateError    records that a query should read did not come in time
└── WriteFailedError records of a query were not acknowledged
"""

from __future__ import annotations

from ottla.proto.errors import OttlaError


class DataLossError(OttlaError):
    """Records that a query should have read are gone, and `failOnDataLoss` says to tell."""


class ReadLateError(OttlaError):
    """Records that a query should have read did not come in time, and are not known to be gone."""


class WriteFailedError(OttlaError):
    """Some records of a task were not acknowledged: the task has failed, and Spark tries again."""


def data_loss(sentence: str) -> DataLossError:
    """Return the error, with what can be done about it."""
    return DataLossError(
        f"{sentence} With failOnDataLoss=false the query goes on with what is left."
    )
