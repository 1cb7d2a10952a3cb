"""`ottla health --http`: what nodes say of themselves, and what is made of it."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner

from ottla.__main__ import main
from ottla.clients.cli.nodes import ask_node, told_in
from ottla.clients.cli.verdict import NodeTold, Verdict, node_findings, verdict_of
from ottla.proto.options.endpoints import Address, parse_address

HERE = Address("localhost", 9100)
READY: dict[str, Any] = {"node_id": 1, "ready": True, "reason": None, "conditions": []}
SENTENCE = "no controller is active"


def page(node_id: int, reason: str | None = None) -> dict[str, Any]:
    conditions = [
        {"name": "quorum_has_leader", "holds": reason is None, "reason": reason},
        {"name": "unfenced", "holds": True, "reason": None},
    ]
    return {
        "node_id": node_id,
        "ready": reason is None,
        "reason": reason,
        "conditions": conditions,
    }


class Pages(http.server.BaseHTTPRequestHandler):
    """Answers with what the server was given, as a node would."""

    def do_GET(self) -> None:
        assert isinstance(self.server, Stage)
        assert self.path == "/health/ready"
        body = json.dumps(self.server.told).encode()
        self.send_response(200 if self.server.told["ready"] else 503)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Keep the output of the tests clean."""


class Stage(http.server.ThreadingHTTPServer):
    """A node's page, as long as the test lasts."""

    def __init__(self, told: dict[str, Any]) -> None:
        super().__init__(("127.0.0.1", 0), Pages)
        self.told = told

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server_address[1]}"


@pytest.fixture
def stages() -> Iterator[list[Stage]]:
    found = [Stage(page(1)), Stage(page(2))]
    threads = [threading.Thread(target=one.serve_forever, args=(0.01,)) for one in found]
    for thread in threads:
        thread.start()
    yield found
    for one, thread in zip(found, threads, strict=True):
        one.shutdown()
        thread.join()
        one.server_close()


def ask(stages: list[Stage], *more: str) -> tuple[int, str]:
    where = ",".join(one.address for one in stages)
    done = CliRunner().invoke(main, ["health", "--http", where, *more])
    return done.exit_code, done.stdout


def test_nodes_that_are_all_ready_are_exit_code_0(stages: list[Stage]) -> None:
    code, told = ask(stages)
    assert code == 0
    assert told.splitlines() == [
        "healthy: 2 of 2 nodes are ready",
        "  condition          node 1  node 2",
        "  quorum_has_leader  yes     yes",
        "  unfenced           yes     yes",
    ]


def test_a_node_that_is_not_ready_is_named_with_its_reason(stages: list[Stage]) -> None:
    stages[1].told = page(2, SENTENCE)
    code, told = ask(stages)
    assert code == 1
    where = stages[1].address
    assert told.splitlines() == [
        "degraded: 1 of 2 nodes are ready",
        f"  node 2 at {where} is not ready: {SENTENCE}.",
        "  condition          node 1  node 2",
        "  quorum_has_leader  yes     no",
        "  unfenced           yes     yes",
        f"  node 2, quorum_has_leader: {SENTENCE}.",
    ]


def test_when_no_node_is_ready_programs_get_exit_code_2_and_every_condition(
    stages: list[Stage],
) -> None:
    for node_id, one in enumerate(stages, 1):
        one.told = page(node_id, SENTENCE)
    code, told = ask(stages, "--json")
    answer = json.loads(told)
    assert (code, answer["verdict"]) == (2, "unavailable")
    assert [one["code"] for one in answer["reasons"]] == ["not_ready", "not_ready"]
    for one, stage in zip(answer["nodes"], stages, strict=True):
        assert one == {"address": stage.address, **stage.told}


def test_a_node_that_cannot_be_reached_is_told(stages: list[Stage]) -> None:
    stages[0].shutdown()
    stages[0].server_close()
    told = ask_node(parse_address(stages[0].address))
    assert told.silent == "it cannot be reached: connection refused"
    code, text = ask(stages)
    assert code == 1
    assert f"  {stages[0].address}: it cannot be reached: connection refused." in text.splitlines()


def test_an_address_that_is_none_is_exit_code_2_and_one_sentence() -> None:
    done = CliRunner().invoke(main, ["health", "--http", "nowhere"])
    assert done.exit_code == 2
    assert done.stderr.startswith("ottla: --http must be ")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"404",
        b"[]",
        b"{}",
        b'{"conditions": 3}',
        json.dumps({**READY, "node_id": "x"}).encode(),
    ],
)
def test_what_is_no_page_of_a_node_says_nothing(body: bytes) -> None:
    told = told_in(HERE, body)
    assert not told.is_ready
    assert told.silent is not None


def test_what_could_move_a_cursor_is_escaped() -> None:
    told = told_in(HERE, json.dumps({**READY, "ready": False, "reason": "\x1b[2J"}).encode())
    assert told.reason == '"\\u001b[2J"'


def test_the_verdict_is_by_how_many_are_ready() -> None:
    ready = NodeTold("a:1", node_id=1, is_ready=True)
    silent = NodeTold("b:2", silent="it does not speak HTTP")
    assert node_findings([ready]) == ()
    assert verdict_of(node_findings([ready, silent])) is Verdict.DEGRADED
    assert verdict_of(node_findings([silent])) is Verdict.UNAVAILABLE
