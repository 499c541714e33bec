from pathlib import Path

from tests.uplink_spark.zone.test_entry_table import ENTRIES
from uplink_spark.zone.files import LocalFiles
from uplink_spark.zone.manifest import encode_items, encode_mark, file_head, manifest_path
from uplink_spark.zone.rollup import encode_rolled, rolled_path
from uplink_spark.zone.segments import ManifestFile, RolledFile


def written(root: Path, path: str, data: bytes) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_bytes(data)


def test_a_manifest_file_is_followed_up_to_its_last_mark(tmp_path: Path) -> None:
    files, path = LocalFiles(str(tmp_path)), manifest_path(0, 0)
    file, late = ManifestFile(0, 0), ManifestFile(0, 0, begin=2)
    assert not file.refresh(files.read)
    data = file_head(0, 0)
    for count, more in enumerate((b"", encode_items(ENTRIES[:2]), encode_mark(2), encode_items(ENTRIES[2:]))):
        data += more
        written(tmp_path, path, data)
        assert file.refresh(files.read)
        assert late.refresh(files.read)
        assert (len(file), file.next_seq, late.next_seq, len(late)) == (
            (0, 2)[count > 1],
            (0, 2)[count > 1],
            (0, 2)[count > 1],
            0,
        )
    written(tmp_path, path, data + encode_mark(3))
    assert file.refresh(files.read)
    assert late.refresh(files.read)
    assert (list(file.entries(0, 9)), list(file.entries(1, 2)), list(late.entries(0, 9))) == (
        ENTRIES,
        ENTRIES[1:2],
        ENTRIES[2:],
    )
    assert file.table(5, 9) is None
    assert (file.seq_at_landed(9000), file.seq_at_landed(9001)) == (0, None)


def test_rolled_up_entries_are_read_once(tmp_path: Path) -> None:
    files = LocalFiles(str(tmp_path))
    file = RolledFile(0, 0, 3)
    assert not file.refresh(files.read)
    written(tmp_path, rolled_path(0, 0, 3), b"torn")
    assert not file.refresh(files.read)
    written(tmp_path, rolled_path(0, 0, 3), encode_rolled(0, encode_items(ENTRIES)))
    assert file.refresh(files.read)
    (tmp_path / rolled_path(0, 0, 3)).unlink()
    assert file.refresh(files.read)
    assert (list(file.entries(0, 9)), len(file), file.key) == (ENTRIES, 3, (0, 3))
