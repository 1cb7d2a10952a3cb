"""What only the cluster can say of a pipeline, asked before Spark is started.

Not here: what the file alone can tell (`declaration.py`), and SQL (`tables.py`).
"""

from __future__ import annotations

from ottla.clients.admin.blocking import Admin
from ottla.clients.errors import NoCommonVersionError, TransactionFailedError
from ottla.clients.metadata import TopicInfo
from ottla.clients.pipeline.declaration import Pipeline
from ottla.clients.pipeline.kinds import AT_LEAST_ONCE
from ottla.clients.producer.client import Producer
from ottla.proto.errors import ConfigError, ErrorCode


def require_exactly_once(pipeline: Pipeline) -> None:
    """Refuse a pipeline that is to write exactly once to a cluster that prepares nothing."""
    if not pipeline.writes_exactly_once:
        return
    config = {
        "bootstrap.servers": pipeline.bootstrap,
        # None of a round's (`clients/spark/decisions.py`), and never used to write.
        "transactional.id": f"{pipeline.name}/asks",
        "transaction.two.phase.commit.enable": "true",
    }
    try:
        with Producer(config) as producer:
            producer.init_transactions()
    except (NoCommonVersionError, TransactionFailedError) as error:
        code = error.code if isinstance(error, TransactionFailedError) else None
        if code not in (None, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED):
            raise
        raise ConfigError(
            f"{pipeline.name} writes to topics exactly once, for which the cluster must keep "
            f"prepared transactions, and the one at {pipeline.bootstrap} does not. Start its nodes "
            "with transaction.two.phase.commit.enable=true (Apache Kafka 4.3: also "
            "unstable.api.versions.enable=true; older ones cannot). Or write "
            f'guarantee = "{AT_LEAST_ONCE}" under [pipeline]: after a failure, rows may then be '
            "in a topic twice."
        ) from error


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
