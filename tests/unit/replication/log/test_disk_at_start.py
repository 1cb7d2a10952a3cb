"""What a start does about a wrong directory, a wrong state store and unfinished intents.

Rows of the list "Disk at start". What Kafka keeps in checkpoint files is one state store here; its
pages are `tests/unit/replication/storage/test_lmdb_store.py`. Journal and snapshots of the metadata
quorum are not part of a data directory's logs: the row "bit flip" is done to the state store.
"""

from __future__ import annotations

import struct
from dataclasses import replace
from pathlib import Path

import pytest

from ottla.proto.errors import ConfigError, CorruptionError, StorageError
from ottla.proto.ids import LeaderEpoch, Offset, TopicPartition
from ottla.replication.epochs import EpochStart
from ottla.replication.log.intents import crc_of_file
from ottla.replication.log.state import (
    CLEAN_SHUTDOWN_KEY,
    Intent,
    Pending,
    encode_state,
    new_state,
    partition_key,
    producers_key,
)
from ottla.replication.storage.directory import DataDirectory
from ottla.replication.storage.disk import DiskFiles
from tests.builders import append, batches_of
from tests.unit.replication.log.disk_at_start import (
    BASES,
    BATCH,
    END,
    SETTINGS,
    VICTIM,
    filled,
    require_all_served,
    require_neighbour,
)

LOST = TopicPartition("lost", 0)
COMPACTED = replace(SETTINGS, compact=True)


# -- checkpoints: the record of a partition --------------------------------------------------------


def test_a_missing_record_is_rebuilt_from_the_batches(tmp_path: Path) -> None:
    node = filled(tmp_path)
    node.commit({partition_key("t-0"): None})
    with node.started() as running:
        found = running.report.recovered[VICTIM]
        assert (found.is_rebuilt, found.checked_bytes) == (True, END * BATCH)
        assert batches_of(running.log) == node.written
        assert running.log.epochs.entries == (
            EpochStart(LeaderEpoch(3), Offset(0)),
            EpochStart(LeaderEpoch(4), Offset(7)),
        )
        require_neighbour(running)
    assert node.state().recovery_point == END


def test_a_missing_record_over_a_torn_tail_is_damage_for_nobody_knows_what_was_synced(
    tmp_path: Path,
) -> None:
    node = filled(tmp_path)
    node.commit({partition_key("t-0"): None})
    node.put(15, 2 * BATCH - 1, b"!")
    with node.started() as running:
        assert batches_of(running.log) == node.written[:16]
        assert VICTIM in running.report.damaged


def test_an_extra_record_without_a_directory_is_told_and_kept(tmp_path: Path) -> None:
    node = filled(tmp_path)
    record = encode_state(new_state(Offset(0)))
    node.commit({partition_key("lost-0"): record})
    for _ in range(2):
        with node.started() as running:
            assert running.report.damaged == {LOST: f"the directory {tmp_path}/lost-0 is missing"}
            assert LOST not in running.manager.logs
            assert running.store.get(partition_key("lost-0")) == record
            assert batches_of(running.log) == node.written


@pytest.mark.parametrize("value", [b"", b"\x01", b"garbage", bytes(200), b"\xff" * 200])
def test_a_garbage_record_is_told_and_rebuilt_from_the_batches(
    tmp_path: Path, value: bytes
) -> None:
    node = filled(tmp_path)
    node.commit({partition_key("t-0"): value})
    with node.started() as running:
        found = running.report.recovered[VICTIM]
        assert found.is_rebuilt
        assert found.notes[0].startswith("the state record of t-0 cannot be read: ")
        assert found.notes[0].endswith("; rebuilt from the batches")
        assert batches_of(running.log) == node.written
        require_neighbour(running)


def test_a_garbage_record_without_a_directory_stops_nobody_else(tmp_path: Path) -> None:
    node = filled(tmp_path)
    node.commit({partition_key("lost-0"): b"garbage"})
    with node.started() as running:
        assert LOST in running.report.damaged
        assert batches_of(running.log) == node.written
        require_neighbour(running)


@pytest.mark.parametrize("name", [b"\xff\xfe", b"no-partition", b"t-00", b"../t-0"])
def test_a_record_under_no_name_of_a_partition_stops_nobody(tmp_path: Path, name: bytes) -> None:
    node = filled(tmp_path)
    node.commit({b"partition/" + name: b"garbage"})
    require_all_served(node)


def test_a_record_of_a_future_version_is_neither_rebuilt_nor_written_over(tmp_path: Path) -> None:
    node = filled(tmp_path)
    value = b"\x03" + encode_state(node.state())[1:]
    node.commit({partition_key("t-0"): value})
    before = node.logs()
    with node.started() as running:
        assert running.log.offline is not None
        assert "version 3" in running.log.offline
        assert VICTIM in running.report.damaged
        assert running.store.get(partition_key("t-0")) == value
        require_neighbour(running)
    assert node.logs() == before


@pytest.mark.parametrize(
    "epochs", [((4, 0), (3, 7)), ((3, 7), (4, 0)), ((3, 0), (3, 7)), ((3, 0), (4, 0))]
)
def test_a_history_of_epochs_that_does_not_grow_is_rebuilt(
    tmp_path: Path, epochs: tuple[tuple[int, int], ...]
) -> None:
    node = filled(tmp_path)
    entries = tuple(EpochStart(LeaderEpoch(epoch), Offset(start)) for epoch, start in epochs)
    node.commit({partition_key("t-0"): encode_state(replace(node.state(), epochs=entries))})
    with node.started() as running:
        assert "epochs do not grow" in running.report.recovered[VICTIM].notes[0]
        assert [tuple(entry) for entry in running.log.epochs.entries] == [(3, 0), (4, 7)]
        assert batches_of(running.log) == node.written


def test_an_epoch_beyond_the_end_is_forgotten_and_one_at_the_end_is_kept(tmp_path: Path) -> None:
    node = filled(tmp_path, clean=True)
    at_end = (*node.state().epochs, EpochStart(LeaderEpoch(5), Offset(END)))
    node.change_state(epochs=(*at_end, EpochStart(LeaderEpoch(6), Offset(END + 1))))
    with node.started() as running:
        assert running.log.epochs.entries == at_end
        notes = running.report.recovered[VICTIM].notes
        assert notes == [f"epochs beyond the end {END} forgotten"]


@pytest.mark.parametrize("value", [b"", b"garbage", b"\x02\xff\xff\xff\xff", b"\x03" + bytes(4)])
def test_a_garbage_snapshot_of_producers_is_replaced_by_the_batches(
    tmp_path: Path, value: bytes
) -> None:
    node = filled(tmp_path)
    with node.started() as running:
        append(running.log, b"once", producer_id=9, producer_epoch=0, sequence=0)
        running.manager.checkpoint()
        node.written = batches_of(running.log)
    node.commit({producers_key("t-0", Offset(END + 1)): value})
    with node.started() as running:
        producer = running.log.producers.get(9)
        assert producer is not None
        assert producer.last_offset == END
    require_all_served(node)


# -- checkpoints: the store itself -----------------------------------------------------------------


@pytest.mark.parametrize("content", [b"", b"\0" * 4096, b"garbage" * 3000])
def test_a_state_store_that_is_none_refuses_the_start_and_keeps_everything(
    tmp_path: Path, content: bytes
) -> None:
    node = filled(tmp_path)
    before = node.logs()
    (tmp_path / "state" / "data.mdb").write_bytes(content)
    for _ in range(2):
        with pytest.raises(CorruptionError, match=r"data\.mdb"):
            node.start()
    assert node.logs() == before
    assert (tmp_path / "state" / "data.mdb").read_bytes() == content


def test_a_state_store_without_its_file_refuses_the_start(tmp_path: Path) -> None:
    node = filled(tmp_path)
    (tmp_path / "state" / "data.mdb").unlink()
    with pytest.raises(CorruptionError, match=r"has lost its file data\.mdb"):
        node.start()


def test_a_missing_state_directory_beside_partitions_is_told_for_each_of_them(
    tmp_path: Path,
) -> None:
    node = filled(tmp_path)
    for path in (tmp_path / "state").iterdir():
        path.unlink()
    (tmp_path / "state").rmdir()
    with node.started() as running:
        assert all(found.is_rebuilt for found in running.report.recovered.values())
        assert len(running.report.recovered) == 2
        assert batches_of(running.log) == node.written
        require_neighbour(running)


def test_a_flipped_bit_in_the_state_store_is_found_before_any_log_is_touched(
    tmp_path: Path,
) -> None:
    node = filled(tmp_path)
    record = encode_state(node.state())
    before = node.logs()
    path = tmp_path / "state" / "data.mdb"
    content = bytearray(path.read_bytes())
    # All copies: LMDB keeps pages that earlier transactions left.
    position = content.find(record)
    assert position > 0
    while position >= 0:
        content[position + 20] ^= 0x10
        position = content.find(record, position + 1)
    path.write_bytes(content)
    with pytest.raises(CorruptionError, match="is not what was written"):
        node.start()
    assert node.logs() == before


# -- the clean-shutdown marker ---------------------------------------------------------------------


def test_a_clean_marker_is_told_as_it_is_and_is_gone_after_the_start(tmp_path: Path) -> None:
    node = filled(tmp_path, clean=True)
    with node.started() as running:
        assert running.report.clean_broker_epoch == 7
        assert running.report.recovered == {}
        assert running.store.get(CLEAN_SHUTDOWN_KEY) is None
    with node.started() as running:
        assert running.report.clean_broker_epoch is None


def test_a_clean_marker_of_an_old_epoch_does_not_hide_what_came_after_it(tmp_path: Path) -> None:
    # Somebody brought an old marker back: whether it proves anything is the controller's to say.
    node = filled(tmp_path)
    node.commit({CLEAN_SHUTDOWN_KEY: struct.pack(">q", 2)})
    node.put(15, BATCH, b"\0" * BATCH)
    with node.started() as running:
        assert running.report.clean_broker_epoch == 2
        assert running.report.recovered[VICTIM].cut_bytes == BATCH
        assert running.store.get(CLEAN_SHUTDOWN_KEY) is None


@pytest.mark.parametrize("value", [b"", b"yes", bytes(9)])
def test_a_garbage_marker_is_no_proof_and_no_obstacle(tmp_path: Path, value: bytes) -> None:
    node = filled(tmp_path, clean=True)
    node.commit({CLEAN_SHUTDOWN_KEY: value})
    with node.started() as running:
        assert running.report.clean_broker_epoch is None
        assert running.store.get(CLEAN_SHUTDOWN_KEY) is None
        assert batches_of(running.log) == node.written


# -- whose directory it is -------------------------------------------------------------------------


def test_a_second_process_is_refused_and_the_first_goes_on(tmp_path: Path) -> None:
    node = filled(tmp_path)
    with node.started() as running:
        with pytest.raises(StorageError, match="is in use by another process"):
            node.start()
        require_neighbour(running)
        assert batches_of(running.log) == node.written
    require_all_served(node)


@pytest.mark.parametrize(
    ("node_id", "cluster_id", "sentence"),
    [(2, "c", "belongs to node 1"), (1, "other", "belongs to cluster c")],
)
def test_the_wrong_node_or_cluster_is_refused_before_anything_is_touched(
    tmp_path: Path, node_id: int, cluster_id: str, sentence: str
) -> None:
    node = filled(tmp_path)
    before = node.logs()
    with pytest.raises(ConfigError, match=sentence):
        DataDirectory.open(
            DiskFiles(),
            node.root,
            node_id=node_id,
            cluster_id=cluster_id,
            strict=False,
            new_id=lambda: "d",
        )
    assert node.logs() == before
    require_all_served(node)


def test_an_empty_directory_with_the_strict_flag_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="Is the expected file system mounted"):
        DataDirectory.open(
            DiskFiles(),
            str(tmp_path),
            node_id=1,
            cluster_id="c",
            strict=True,
            new_id=lambda: "d",
        )
    assert [path.name for path in tmp_path.iterdir()] == [".lock"]


# -- intents that a crash left, and files that are missing for them --------------------------------


def test_a_pending_reset_without_any_file_begins_anew(tmp_path: Path) -> None:
    node = filled(tmp_path)
    for base in BASES:
        node.remove_segment(base)
    node.change_state(
        pending=Pending(intent=Intent.RESET, offset=Offset(40)),
        recovery_point=40,
        recovery_base=40,
        recovery_position=0,
        start_offset=40,
        high_watermark=40,
        epochs=(),
    )
    with node.started() as running:
        assert running.log.offline is None
        assert (running.log.start_offset, running.log.end_offset) == (40, 40)
        assert VICTIM not in running.report.damaged
    assert node.state().pending.intent is Intent.NOTHING


def test_a_pending_reset_removes_segments_and_leaves_strange_files_alone(tmp_path: Path) -> None:
    node = filled(tmp_path)
    stranger = tmp_path / "t-0" / "notes.log"
    stranger.write_bytes(b"mine")
    node.change_state(
        pending=Pending(intent=Intent.RESET, offset=Offset(40)),
        recovery_point=40,
        recovery_base=40,
        recovery_position=0,
        start_offset=40,
        high_watermark=40,
        epochs=(),
    )
    with node.started() as running:
        assert (running.log.start_offset, running.log.end_offset) == (40, 40)
    assert stranger.read_bytes() == b"mine"


def test_a_pending_swap_that_was_done_already_changes_nothing(tmp_path: Path) -> None:
    node = filled(tmp_path, COMPACTED)
    size, crc = crc_of_file(DiskFiles(), str(node.path(0)))
    sources = (Offset(0),)
    node.change_state(
        pending=Pending(intent=Intent.SWAP, offset=Offset(0), sources=sources, size=size, crc=crc)
    )
    require_all_served(node)
    assert node.state().pending.intent is Intent.NOTHING


def test_a_pending_swap_whose_cleaned_file_is_lost_destroys_none_of_its_sources(
    tmp_path: Path,
) -> None:
    # The cleaned file was durable before the intent (Z1): without it, and with all the sources
    # there, somebody took it away. What is left are the sources.
    node = filled(tmp_path, COMPACTED)
    before = node.logs()
    sources = (Offset(0), Offset(5))
    node.change_state(pending=Pending(intent=Intent.SWAP, offset=Offset(0), sources=sources))
    with node.started() as running:
        assert running.log.offline is not None or batches_of(running.log) == node.written
        require_neighbour(running)
    assert node.logs() == before


def test_a_pending_swap_whose_files_are_all_lost_is_damage(tmp_path: Path) -> None:
    node = filled(tmp_path, COMPACTED)
    sources = (Offset(0), Offset(5))
    node.change_state(pending=Pending(intent=Intent.SWAP, offset=Offset(0), sources=sources))
    node.remove_segment(0)
    node.remove_segment(5)
    with node.started() as running:
        assert running.log.offline is not None
        assert VICTIM in running.report.damaged
        require_neighbour(running)


def test_a_pending_deletion_without_a_directory_is_finished(tmp_path: Path) -> None:
    node = filled(tmp_path)
    node.change_state(pending=Pending(intent=Intent.DELETE))
    (tmp_path / "t-0").rename(tmp_path / "t-0.0-delete")
    with node.started() as running:
        assert running.report.damaged == {}
        assert VICTIM not in running.manager.logs
        assert running.store.get(partition_key("t-0")) is None
        require_neighbour(running)
    assert not (tmp_path / "t-0.0-delete").exists()


def test_files_that_a_swap_left_are_kept_while_nobody_knows_whether_it_happened(
    tmp_path: Path,
) -> None:
    # A crash inside a swap left the only copy of some records in `.cleaned`, and then the record
    # that says so was lost.
    node = filled(tmp_path, COMPACTED)
    node.path(5).rename(node.path(5, ".log.deleted"))
    node.path(0).rename(node.path(0, ".log.cleaned"))
    before = node.logs()
    node.commit({partition_key("t-0"): None})
    with node.started() as running:
        assert running.log.offline is not None
        assert VICTIM in running.report.damaged
        require_neighbour(running)
    assert node.logs() == before
