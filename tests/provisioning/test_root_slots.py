"""Image slots on plain files: `mount` puts a link to a folder where the partition would be."""

import hashlib
import io
import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from provisioning.root_slots import ImageError, RootPaths, at_boot, entries, give_up, install, keep, load, main

ROOT = b"a root file system" * 1000


class Board:
    """A box whose partitions are files, whose ESP is a folder; `cut_at` fails the n-th mount, as a power cut would."""

    def __init__(self, folder: Path) -> None:
        self.root, self.mounts, self.cut_at = folder, 0, 0
        self.esp = folder / "dev/disk/by-partlabel/esp"
        (self.esp / "loader/entries").mkdir(parents=True)
        (self.esp / "rocketbox").mkdir()
        for slot in "ab":
            (folder / f"dev/disk/by-partlabel/rocketbox-{slot}").write_bytes(bytes(64 * 1024))
        (folder / "new/usr/lib/rocketbox/boot").mkdir(parents=True)
        for name, text in (("vmlinuz", "kernel 2"), ("initrd", "initrd 2"), ("options", "ro quiet")):
            (folder / "new/usr/lib/rocketbox/boot" / name).write_text(text)
        for name in ("proc", "opt", "run"):
            (folder / name).mkdir()
        self.places = RootPaths(folder, self.run)
        self.boot("a", "1.0.0")
        (self.esp / "loader/entries/rocketbox-1.0.0.conf").write_text("title Rocketbox 1.0.0\n")

    def run(self, words: Sequence[str]) -> None:
        if words[0] == "mount" and words[1] != "--bind":
            self.mounts += 1
            if self.mounts == self.cut_at:
                raise OSError("the power is gone")
            device, target = Path(words[-2]), Path(words[-1])
            target.rmdir()
            target.symlink_to(device if device.is_dir() else self.root / "new")
        elif words[0] == "umount":
            Path(words[1]).unlink()
            Path(words[1]).mkdir()

    def boot(self, slot: str, version: str) -> None:
        line = f"root=PARTLABEL=rocketbox-{slot} rocketbox.image={version} ro quiet\n"
        (self.root / "proc/cmdline").write_text(line)
        self.places.trial_mark.unlink(missing_ok=True)

    def firmware_takes_a_try(self) -> None:
        """What systemd-boot does before it starts the kernel."""
        for one in entries(self.esp):
            if one.left:
                one.path.rename(one.path.with_name(f"rocketbox-{one.version}+{one.left - 1}-{3 - one.left + 1}.conf"))

    def names(self) -> list[str]:
        return sorted(path.name for path in (self.esp / "loader/entries").iterdir())

    def install(self, version: str) -> str:
        digest = hashlib.sha256(ROOT).hexdigest()
        return install(self.places, io.BytesIO(ROOT), len(ROOT), digest, version)


@pytest.fixture
def board(tmp_path: Path) -> Board:
    return Board(tmp_path)


def test_a_good_image_is_written_tried_and_kept(board: Board) -> None:
    assert board.install("1.1.0") == "b"
    assert board.names() == ["rocketbox-1.0.0.conf", "rocketbox-1.1.0+3.conf"]
    assert (board.root / "dev/disk/by-partlabel/rocketbox-b").read_bytes().startswith(ROOT)
    assert (board.esp / "rocketbox/b/vmlinuz").read_text() == "kernel 2"
    text = (board.esp / "loader/entries/rocketbox-1.1.0+3.conf").read_text()
    assert "options root=PARTLABEL=rocketbox-b rocketbox.image=1.1.0 ro quiet\n" in text
    board.firmware_takes_a_try()
    board.boot("b", "1.1.0")
    at_boot(board.places)
    assert board.places.trial_mark.exists()
    assert keep(board.places) == "1.1.0"
    assert board.names() == ["rocketbox-1.0.0.conf", "rocketbox-1.1.0.conf"]
    assert load(board.places)["trial"] is None
    assert not board.places.trial_mark.exists()


def test_the_image_installed_last_is_the_one_that_boots_even_when_its_version_is_lower(board: Board) -> None:
    keys = []
    for version in ("1.1.0", "0.9.0"):
        board.install(version)
        (path,) = (board.esp / "loader/entries").glob(f"rocketbox-{version}+*")
        keys += [line for line in path.read_text().splitlines() if line.startswith("sort-key")]
    assert keys == sorted(keys, reverse=True)
    assert "rocketbox-1.1.0+3.conf" not in board.names()  # its partition holds 0.9.0 now


def test_an_image_that_lost_its_tries_is_forgotten_and_remembered_as_bad(board: Board) -> None:
    board.install("1.1.0")
    for _ in range(3):
        board.firmware_takes_a_try()
    at_boot(board.places)  # the firmware fell back to 1.0.0
    state = load(board.places)
    assert (state["trial"], state["bad"], state["rolled_back"]["version"]) == (None, ["1.1.0"], "1.1.0")
    assert board.names() == ["rocketbox-1.0.0.conf"]
    assert not board.places.trial_mark.exists()


def test_an_image_whose_entry_was_never_written_is_not_blamed(board: Board) -> None:
    board.install("1.1.0")
    (board.esp / "loader/entries/rocketbox-1.1.0+3.conf").unlink()
    state = at_boot(board.places)
    assert (state["trial"], state.get("bad")) == (None, None)


def test_giving_up_leaves_no_try_and_keeps_the_reason(board: Board) -> None:
    board.install("1.1.0")
    board.firmware_takes_a_try()
    board.boot("b", "1.1.0")
    at_boot(board.places)
    give_up(board.places, "does not stay up")
    assert board.names() == ["rocketbox-1.0.0.conf", "rocketbox-1.1.0+0-3.conf"]
    board.boot("a", "1.0.0")
    assert at_boot(board.places)["rolled_back"]["reason"] == "does not stay up"


def test_a_kept_image_cannot_be_given_up(board: Board) -> None:
    give_up(board.places, "whatever")
    assert board.names() == ["rocketbox-1.0.0.conf"]


@pytest.mark.parametrize("cut_at", [1, 2, 3])
def test_cut_off_anywhere_the_box_has_the_entry_it_runs_and_no_other(board: Board, cut_at: int) -> None:
    board.install("1.0.5")
    board.mounts, board.cut_at = 0, cut_at
    with pytest.raises(OSError, match="power"):
        board.install("1.1.0")
    expected = ["rocketbox-1.0.0.conf", "rocketbox-1.0.5+3.conf"] if cut_at == 1 else ["rocketbox-1.0.0.conf"]
    assert board.names() == expected
    board.cut_at = 0
    assert board.install("1.1.0") == "b"


def test_an_image_on_trial_installs_nothing(board: Board) -> None:
    board.places.trial_mark.write_text("1.0.0\n")
    with pytest.raises(ImageError, match="on trial itself"):
        board.install("1.1.0")


def test_the_image_that_runs_is_not_written_a_second_time(board: Board) -> None:
    with pytest.raises(ImageError, match="is already running"):
        board.install("1.0.0")
    assert board.names() == ["rocketbox-1.0.0.conf"]


def test_a_disk_that_reads_back_other_bytes_is_named(board: Board) -> None:
    with pytest.raises(ImageError, match="the disk is faulty"):
        install(board.places, io.BytesIO(ROOT), len(ROOT), "0" * 64, "1.1.0")
    assert board.names() == ["rocketbox-1.0.0.conf"]


def test_an_image_larger_than_its_partition_is_refused_before_the_first_byte(board: Board) -> None:
    with pytest.raises(ImageError, match="flash the whole disk"):
        install(board.places, io.BytesIO(b""), 65 * 1024 * 1024, "0" * 64, "1.1.0")


def test_serial_and_model_come_from_the_fat_partition_once(board: Board) -> None:
    (board.esp / "rocketbox/serial.txt").write_text("RBX-0007\r\n")
    at_boot(board.places)
    (board.esp / "rocketbox/serial.txt").write_text("RBX-0008\n")
    at_boot(board.places)
    assert (board.root / "var/lib/rocketbox-factory/serial").read_text() == "RBX-0007\n"


def test_a_serial_that_a_power_cut_left_empty_is_taken_again(board: Board) -> None:
    (board.esp / "rocketbox/serial.txt").write_text("RBX-0007\n")
    kept = board.root / "var/lib/rocketbox-factory/serial"
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.touch()
    at_boot(board.places)
    assert kept.read_text() == "RBX-0007\n"


def test_every_image_has_slots_of_its_own_and_forgotten_ones_go(
    board: Board, capsys: pytest.CaptureFixture[str]
) -> None:
    (board.places.images / "0.1.0").mkdir(parents=True)
    assert main(["boot"], board.places) == 0
    assert [path.name for path in board.places.images.iterdir() if path.is_dir()] == ["1.0.0"]
    assert json.loads(capsys.readouterr().out)["on_trial"] is False


def test_a_machine_that_runs_no_image_says_so(board: Board, capsys: pytest.CaptureFixture[str]) -> None:
    (board.root / "proc/cmdline").write_text("root=/dev/sda1\n")
    assert main(["commit"], board.places) == 1
    assert "was not booted from a rocketbox image" in capsys.readouterr().err
