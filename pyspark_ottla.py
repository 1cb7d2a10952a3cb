"""Lets PySpark find the data source `ottla` by itself: it looks for modules named `pyspark_…`.

Not here: the data source (`ottla.clients.spark.source`).
"""

from __future__ import annotations

from ottla.clients.spark.source import OttlaDataSource as DefaultSource

__all__ = ["DefaultSource"]
