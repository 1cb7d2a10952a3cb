"""What only the cluster can say of a pipeline, asked before Spark is started.

Not here: what the file alone can tell (`declaration.py`), and SQL (`tables.py`).
"""

from __future__ import annotations

from ottla.clients.admin.blocking import Admin
from ottla.clients.metadata import TopicInfo
from ottla.clients.pipeline.declaration import Pipeline
from ottla.proto.errors import ConfigError, ErrorCode


def require_topics(pipeline: Pipeline) -> None:
    """Refuse a pipeline whose topics are not there: nothing is made by mistyping a name."""
    wanted = pipeline.topics_read | pipeline.topics_written
    if not wanted:
        return
    with Admin({"bootstrap.servers": pipeline.bootstrap}) as admin:
        found = admin.describe_topics(sorted(wanted))
    problems = list[str]()
    for name, told in found.items():
        if isinstance(told, TopicInfo):
            continue
        if told.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise told
        problems.append(f"Topic {name} is not there; `ottla topics create {name}` makes it.")
    if problems:
        raise ConfigError(*problems)
