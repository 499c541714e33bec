"""`replica resync`: a member gives its copy up and takes the leader's anew; its promises stay.

Asked for while the box runs, done by the next start before it opens the store, since nothing may use the old log then.
The journal makes the steps one: a start after a power cut goes on where it was. The member counts as filling from then
on, so it decides nothing before it has what is committed.
"""

import errno
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from appliance.group.member_files import save_terms
from storage_driver.consensus.effects import TermTable
from storage_driver.consensus.members import Members, MembersAt
from storage_driver.consensus.vote_file import VoteFile
from storage_driver.errors import StateDamaged, StoreRefused, VoteFileDamaged
from storage_driver.files.disk import Disk, RealDisk
from storage_driver.files.state_file import StateFile
from storage_driver.files.unreadable import ZeroingDisk
from storage_driver.named_tuple import NamedTuple

log = logging.getLogger("appliance.group")
FOLDERS: Final = ("commitlog", "consumequeue", "index", "config")
FILES: Final = ("checkpoint", "abort")
STAYS: Final = frozenset(  # of rocketbox/: promises, the journal, what was lost or taken back before
    (
        "vote",
        *(
            f"{name}.json{end}"
            for name in ("resync", "cuts", "cuts-seen", "losses", "losses-seen")
            for end in ("", ".bak", ".tmp")
        ),
    )
)
REPLACED: Final = "replaced-"
ROOM_PERCENT: Final = 80  # of the disk, with both copies


class Replacement(NamedTuple):
    """The old copy's new folder beside the store's, "" when it is deleted; the members as they are now."""

    kept_in: str
    members: Members


class CopyReplacing:
    """Gives one member's copy up. All methods block."""

    def __init__(self, disk: Disk, root: Path) -> None:
        self._disk, self._root = disk, root
        self._journal = StateFile(disk, root / "rocketbox" / "resync.json")

    def begin(self, members: Members, *, discard: bool, now_ms: int) -> None:
        """Have the next start do it. Raises OSError, ENOSPC where both copies would fill the disk."""
        if not discard:
            self._check_room()
        kept_in = "" if discard else f"{REPLACED}{now_ms}"
        self._journal.save({"kept_in": kept_in, "members": [list(names) for names in members]})

    def _check_room(self) -> None:
        usage = self._disk.usage(self._root)
        size = sum(facts.size for facts in self._disk.list(self._root / "commitlog"))
        most = (usage.used + usage.available) * ROOM_PERCENT // 100
        if usage.used + size > most:
            raise OSError(errno.ENOSPC, f"this copy has {size} bytes: with another one the disk is too full")
        if (self._root / "commitlog").is_symlink() or (self._root / "commitlog").is_mount():
            raise OSError(errno.EXDEV, "the log is on a disk of its own, where it cannot be moved aside")

    def finish(self) -> Replacement | None:
        """Do what was begun, None when nothing was. Raises OSError, VoteFileDamaged."""
        found: Any = None
        try:
            found = self._journal.load()
        except StateDamaged:  # it was never whole, so nothing has been given up
            pass
        if found is None:
            return None
        lock = self._disk.lock(self._root / "lock")
        try:
            return self._give_up(found)
        finally:
            lock.release()

    def _give_up(self, found: Mapping[str, Any]) -> Replacement:
        wanted = Replacement(found["kept_in"], Members(*(tuple(map(str, names)) for names in found["members"])))
        vote = VoteFile(ZeroingDisk(self._disk, self._root), self._root / "rocketbox" / "vote")
        vote.save(vote.load()._replace(filling=True))
        if wanted.kept_in:
            self._move(self._root / wanted.kept_in)
        else:
            self._delete()
        self._disk.sync_folder(self._root)
        self._disk.sync_folder(self._root / "rocketbox")
        save_terms(
            StateFile(self._disk, self._root / "rocketbox" / "terms.json"),
            TermTable((), (MembersAt(-1, wanted.members),)),
        )
        self._journal.remove()
        log.error("event=copy_given_up kept_in=%r next_step=wait_until_this_box_has_everything", wanted.kept_in)
        return wanted

    def _tables(self) -> list[str]:
        """Return what is to go of rocketbox/."""
        return [facts.name for facts in self._disk.list(self._root / "rocketbox") if facts.name not in STAYS]

    def _move(self, target: Path) -> None:
        disk, root = self._disk, self._root
        disk.make_folder(target / "rocketbox")
        for name in (*FOLDERS, *FILES, *(f"rocketbox/{each}" for each in self._tables())):
            if not disk.exists(root / name):
                continue
            if disk.exists(target / name):  # a start went so far before, and this one is newer
                disk.remove_folder(root / name)
            else:
                disk.rename(root / name, target / name)
        disk.sync_folder(target / "rocketbox")
        disk.sync_folder(target)

    def _delete(self) -> None:
        disk, root = self._disk, self._root
        delete_log(disk, root)
        for name in FOLDERS[1:]:
            disk.remove_folder(root / name)
        for name in (*FILES, *(f"rocketbox/{each}" for each in self._tables())):
            disk.remove_folder(root / name)


def delete_log(disk: Disk, root: Path) -> None:
    """Delete the files of a store's log; the folder may be a disk of its own. Blocks. Raises OSError."""
    for facts in disk.list(root / "commitlog"):
        disk.remove(root / "commitlog" / facts.name)
    if disk.exists(root / "commitlog"):
        disk.sync_folder(root / "commitlog")


def give_up_begun(root: Path) -> None:
    """Do what `replica resync` has asked for, if it has. Blocks. Raises StoreRefused, OSError."""
    try:
        CopyReplacing(RealDisk(), root).finish()
    except (BlockingIOError, VoteFileDamaged) as exc:
        raise StoreRefused(f"{root}: the copy cannot be given up: {exc}") from exc
