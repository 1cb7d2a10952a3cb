"""What this machine can do, so that every other figure has its limit beside it.

    python -m bench.limit                 a table
    python -m bench.limit --json          the same for programs
    python -m bench.limit --dir /data     on another disk

Page-cache writes go to files that are removed before the kernel writes them back: what is measured
is the copy into memory. `writev+fdatasync` waits for the disk. What sends ends when the receiving
process has every byte: of a file in the page cache by `sendfile`, or read and sent, or of memory
alone. At most about 2 GB are written.
Not here: the log (`log.py`).
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable
from typing import Final

import lmdb
from crc32c import crc32c

from bench.drain import Drain, running
from bench.machine import machine_of
from bench.measure import Case, say, size_name, table, take_turns, timed, warm_memory, workspace
from bench.raw import RawFiles, in_two

SIZES: Final = (4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20)
SEND_SIZES: Final = (64 << 10, 1 << 20)
_TURN_BYTES: Final = 8 << 20
_SYNCED_TURN_BYTES: Final = 2 << 20
_SYNCS_PER_TURN_MAX: Final = 16
_SEND_TURN_BYTES: Final = 32 << 20
_COMMITS_PER_TURN: Final = 8
_FREE_BYTES_MIN: Final = 2 << 30


def write_case(directory: str, size: int, *, sync: bool) -> Case:
    turn_bytes = _SYNCED_TURN_BYTES if sync else _TURN_BYTES
    count = turn_bytes // size
    if sync:
        count = min(count, _SYNCS_PER_TURN_MAX)
    buffers = in_two(memoryview(bytes(range(256)) * (size // 256)))

    def run() -> float:
        files = RawFiles(directory, roll_bytes=1 << 30)

        def write() -> None:
            for _ in range(count):
                files.write(buffers, size)
                if sync:
                    files.sync()

        try:
            return timed(write)
        finally:
            files.remove()

    return Case("writev+fdatasync" if sync else "writev (page cache)", size, count, run)


def checksum_case(size: int) -> Case:
    data = memoryview(bytes(range(256)) * (size // 256))
    count = _TURN_BYTES // size

    def checksum() -> None:
        for _ in range(count):
            crc32c(data)

    return Case("CRC-32C", size, count, lambda: timed(checksum))


def send_case(drain: Drain, name: str, size: int, send: Callable[[int], None]) -> Case:
    """`send` is called with a position and sends `size` bytes from there."""
    count = _SEND_TURN_BYTES // size

    def send_all() -> None:
        for number in range(count):
            send(number * size)
        drain.wait()

    def run() -> float:
        drain.announce(count * size)
        return timed(send_all)

    return Case(name, size, count, run)


def sendfile_case(drain: Drain, descriptor: int, size: int) -> Case:
    return send_case(
        drain,
        "sendfile to loopback",
        size,
        lambda position: drain.send_file(descriptor, position, size),
    )


def read_and_send_case(drain: Drain, descriptor: int, size: int) -> Case:
    return send_case(
        drain,
        "read and send to loopback",
        size,
        lambda position: drain.socket.sendall(os.pread(descriptor, size, position)),
    )


def send_from_memory_case(drain: Drain, size: int) -> Case:
    data = bytes(size)
    return send_case(drain, "send/recv loopback", size, lambda _: drain.socket.sendall(data))


def commit_case(environment: lmdb.Environment) -> Case:
    value = bytes(100)

    def commit() -> None:
        for number in range(_COMMITS_PER_TURN):
            with environment.begin(write=True) as transaction:
                transaction.put(b"key-%d" % number, value)

    return Case("LMDB synced commit", 0, _COMMITS_PER_TURN, lambda: timed(commit))


def measure(directory: str, round_count: int) -> list[Case]:
    warm_memory(directory, 256 << 20)
    source = f"{directory}/source"
    with open(source, "wb") as file:
        file.write(bytes(range(256)) * (_SEND_TURN_BYTES // 256))
    environment = lmdb.open(f"{directory}/lmdb", map_size=1 << 24)
    with running() as drain, open(source, "rb") as file:
        cases = [
            *(write_case(directory, size, sync=False) for size in SIZES),
            *(write_case(directory, size, sync=True) for size in SIZES),
            *(checksum_case(size) for size in SIZES),
            *(sendfile_case(drain, file.fileno(), size) for size in SEND_SIZES),
            *(read_and_send_case(drain, file.fileno(), size) for size in SEND_SIZES),
            *(send_from_memory_case(drain, size) for size in SEND_SIZES),
            commit_case(environment),
        ]
        take_turns(cases, round_count)
    environment.close()
    return cases


def row_of(case: Case) -> list[str]:
    size = size_name(case.op_bytes) if case.op_bytes else "-"
    rate = f"{case.megabytes_per_s:,.0f}" if case.op_bytes else "-"
    return [case.name, size, rate, f"{case.median_us:,.1f}", f"{case.best_us:,.1f}"]


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.limit", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--dir", help="where to write; a directory of its own is made in it")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with workspace(options.dir, free_bytes_min=_FREE_BYTES_MIN) as directory:
        machine = machine_of(directory)
        say(f"measuring in {options.rounds} rounds; about a minute …")
        cases = measure(directory, options.rounds)
    if options.json:
        facts = [case.facts() for case in cases]
        print(json.dumps({"machine": machine.facts(), "limits": facts}, indent=2))
        return
    print(machine.line())
    print(table(["limit", "size", "MB/s", "µs median", "µs best"], [row_of(c) for c in cases]))


if __name__ == "__main__":
    main()
