"""A box that holds nothing of clients becomes a member with an empty log.

A box runs alone before it is set up as a member, if only for its self-test, and a log of its own cannot be continued by
another's: all members but one would be refused. What is let go is the self-test's messages.
"""

import logging
from pathlib import Path
from typing import Any, Final

from appliance.broker.tables.topics import INHERIT, PROBE_TOPIC, is_reserved
from appliance.group.replacing import FILES, FOLDERS, delete_log
from storage_driver.errors import StateDamaged
from storage_driver.files.disk import Disk, RealDisk
from storage_driver.files.state_file import StateFile

log = logging.getLogger("appliance.group")
GOES: Final = (*FOLDERS[1:], "rocketbox", *FILES)  # before the log


def begin_empty(root: Path, disk: Disk | None = None) -> bool:
    """Empty the store of a box that was no member yet and holds nothing of clients; return whether it was emptied.

    A start after a power cut in between goes on with it: the log goes last. Blocks. Raises BlockingIOError when the
    store is in use, OSError.
    """
    disk = disk if disk is not None else RealDisk()
    if disk.exists(root / "rocketbox" / "vote") or not disk.list(root / "commitlog"):
        return False
    lock = disk.lock(root / "lock")
    try:
        if _holds_messages(disk, root) or _has_topics(disk, root):
            return False
        for name in GOES:
            disk.remove_folder(root / name)
        disk.sync_folder(root)
        delete_log(disk, root)
    finally:
        lock.release()
    log.warning("event=log_emptied reason='it had messages of self-tests alone' next_step=none")
    return True


def _holds_messages(disk: Disk, root: Path) -> bool:
    """Return whether the log has, or had, anything but messages of self-tests; damage counts as something."""
    from storage_driver import fsck  # once in the life of a box

    report = fsck.Report()
    segments = fsck.open_segments(disk, root, report)
    found = fsck.records(segments, report, lambda done, total: None)
    return report.first > 0 or any(entry.topic != PROBE_TOPIC for _, entry in found) or bool(report.findings)


def _has_topics(disk: Disk, root: Path) -> bool:
    """Return whether somebody made a topic; a table that cannot be read counts as one."""
    try:
        table: Any = StateFile(disk, root / "config" / "topics.json").load() or {}
        topics = table.get("topicConfigTable", {})
        return any(_is_made(str(name), int(topic["perm"])) for name, topic in topics.items())
    except (StateDamaged, AttributeError, KeyError, TypeError, ValueError):
        return True


def _is_made(name: str, perm: int) -> bool:
    ours = is_reserved(name) or name == PROBE_TOPIC or name.endswith("_REPLY_TOPIC")
    return not ours and not perm & INHERIT  # which topics named as box and cluster have
