"""What protoc makes of proto/*.proto is what is committed."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from grpc_tools import protoc

from tests.tidy.tree import ROOT


def test_generated_messages_are_those_of_the_proto_files(tmp_path: Path) -> None:
    sources = sorted((ROOT / "proto").glob("*.proto"))
    assert sources
    arguments = [
        "protoc",
        f"-I{ROOT / 'proto'}",
        f"-I{files('grpc_tools') / '_proto'}",
        f"--python_out={tmp_path}",
        f"--pyi_out={tmp_path}",
        *map(str, sources),
    ]
    assert protoc.main(arguments) == 0
    made = {one.name: one.read_text() for one in tmp_path.iterdir()}
    there = {one.name: one.read_text() for one in (ROOT / "proto" / "gen").glob("*_pb2.py*")}
    assert there == made, "run `make protos`"
