"""Opens the logs of nodes that are stopped, and holds the replicas of a partition side by side.

Partitions to which nobody writes any more may be compared while their nodes run.

Not here: what may differ (`judge.compare_replicas`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from ottla.proto.ids import TopicPartition
from ottla.replication.inspect.dump import BatchItem, DumpChoice, dump_file
from ottla.replication.inspect.places import read_partition_files
from ottla.replication.inspect.verify import verify_directory
from ottla.replication.storage.disk import DiskFiles
from tests.integration.replicated.judge import BatchPrint, compare_replicas


def batches_of(data_dir: Path, place: TopicPartition) -> list[BatchPrint]:
    """Return every sound batch of a replica, in the order of the log."""
    files, directory = DiskFiles(), str(data_dir / str(place))
    found = list[BatchPrint]()
    for segment in read_partition_files(files, directory, None).segments:
        items = dump_file(files, f"{directory}/{segment.log_name}", DumpChoice())
        for item in items:
            if isinstance(item, BatchItem) and item.crc_ok:
                header = item.at.header
                found.append(
                    BatchPrint(
                        header.base_offset,
                        header.last_offset,
                        header.leader_epoch,
                        header.size,
                        header.crc,
                    )
                )
    return found


def differences(
    data_dirs: Mapping[int, Path], high_watermarks: Mapping[TopicPartition, int]
) -> list[str]:
    """Return where replicas differ, in sentences. Every node must have one of each partition."""
    problems = list[str]()
    for place, high_watermark in high_watermarks.items():
        there = {
            node: data_dir
            for node, data_dir in data_dirs.items()
            if (data_dir / str(place)).is_dir()
        }
        missing = sorted(set(data_dirs) - set(there))
        problems += [f"{place}: node {node} has no replica" for node in missing]
        replicas = {node: batches_of(data_dir, place) for node, data_dir in there.items()}
        if replicas:
            problems += compare_replicas(place, replicas, high_watermark)
    return problems


def unsound(data_dirs: Mapping[int, Path]) -> list[str]:
    """Return what is unsound in the directories, in sentences."""
    return [
        f"node {node}: {told}"
        for node, data_dir in data_dirs.items()
        for told in _problems(data_dir)
    ]


def _problems(data_dir: Path) -> Iterable[str]:
    report = verify_directory(DiskFiles(), str(data_dir))
    yield from report.problems
    for partition in report.partitions:
        yield from (f"{partition.partition}: {told}" for told in partition.problems)
