"""Kafka's command-line programs, run one after the other in one JVM (`ToolRunner.java`).

The programs are Kafka's own, unchanged; only the JVM around them is kept between two of them.
"""

from __future__ import annotations

import base64
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from tests.interop.kafka import KafkaToolError, java_command

RUNNER: Final = Path(__file__).with_name("ToolRunner.java")
TOOL_DEADLINE_S: Final = 60.0

TOPICS: Final = "org.apache.kafka.tools.TopicCommand"
CONFIGS: Final = "kafka.admin.ConfigCommand"
GET_OFFSETS: Final = "org.apache.kafka.tools.GetOffsetShell"
DELETE_RECORDS: Final = "org.apache.kafka.tools.DeleteRecordsCommand"
CONSOLE_PRODUCER: Final = "org.apache.kafka.tools.ConsoleProducer"
CONSOLE_CONSUMER: Final = "org.apache.kafka.tools.consumer.ConsoleConsumer"
PRODUCER_PERFORMANCE: Final = "org.apache.kafka.tools.ProducerPerformance"
CONSUMER_PERFORMANCE: Final = "org.apache.kafka.tools.ConsumerPerformance"
CONSUMER_GROUPS: Final = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
VERIFIABLE_PRODUCER: Final = "org.apache.kafka.tools.VerifiableProducer"
VERIFIABLE_CONSUMER: Final = "org.apache.kafka.tools.VerifiableConsumer"
TRANSACTIONAL_COPIER: Final = "org.apache.kafka.tools.TransactionalMessageCopier"
WORD_COUNT: Final = "org.apache.kafka.streams.examples.wordcount.WordCountDemo"
API_VERSIONS: Final = "org.apache.kafka.tools.BrokerApiVersionsCommand"
LOG_DIRS: Final = "org.apache.kafka.tools.LogDirsCommand"
TRANSACTIONS: Final = "org.apache.kafka.tools.TransactionsCommand"
FEATURES: Final = "org.apache.kafka.tools.FeatureCommand"
CLUSTER: Final = "org.apache.kafka.tools.ClusterTool"
QUORUM: Final = "org.apache.kafka.tools.MetadataQuorumCommand"
ELECTIONS: Final = "org.apache.kafka.tools.LeaderElectionCommand"


class Ran(NamedTuple):
    """How a program ended and what it printed."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()

    @property
    def said(self) -> str:
        return self.out + self.err


@dataclass(frozen=True, slots=True)
class Tools:
    """A JVM that runs programs against one node."""

    process: subprocess.Popen[bytes]
    bootstrap: str

    def run(self, program: str, *arguments: str, stdin: bytes = b"") -> Ran:
        """Run a program to its end. `--bootstrap-server` is not added: not all know it."""
        fields = [*(argument.encode() for argument in arguments), stdin]
        line = "\t".join([program, *(base64.b64encode(one).decode() for one in fields)])
        requests, answers = self.process.stdin, self.process.stdout
        assert requests is not None
        assert answers is not None
        # A program that hangs would hang the test run: the JVM goes, and the line never comes.
        watch = threading.Timer(TOOL_DEADLINE_S, self.process.kill)
        watch.start()
        try:
            requests.write(line.encode() + b"\n")
            requests.flush()
            answer = answers.readline().decode().split("\t")
        finally:
            watch.cancel()
        if len(answer) != 3:
            raise KafkaToolError(f"{program} {arguments} did not end in {TOOL_DEADLINE_S} s")
        out, err = (base64.b64decode(one).decode(errors="replace") for one in answer[1:])
        return Ran(int(answer[0]), out, err)

    def ask(self, program: str, *arguments: str, stdin: bytes = b"") -> Ran:
        """Run a program with `--bootstrap-server`, which must end with 0."""
        ran = self.try_(program, *arguments, stdin=stdin)
        if ran.code != 0:
            raise KafkaToolError(f"{program} {arguments} ended with {ran.code}:\n{ran.said}")
        return ran

    def try_(self, program: str, *arguments: str, stdin: bytes = b"") -> Ran:
        """Run a program with `--bootstrap-server`, whatever its end."""
        return self.run(program, "--bootstrap-server", self.bootstrap, *arguments, stdin=stdin)


@contextmanager
def start_tools(bootstrap: str) -> Iterator[Tools]:
    """Yield a JVM that is ready, and end it after the block."""
    command = java_command(str(RUNNER), heap="512m")
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        if process.stdout.readline() != b"ready\n":
            raise KafkaToolError(f"{RUNNER.name} did not start; a JDK is needed, not only a JRE")
        yield Tools(process, bootstrap)
    finally:
        process.kill()
        process.communicate()


if __name__ == "__main__":
    # python -m tests.interop.tools host:port class arguments…: one program, to try things out.
    with start_tools(sys.argv[1]) as tools:
        found = tools.run(*sys.argv[2:])
        print(found.out, found.err, found.code)
