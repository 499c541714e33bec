"""Errors of the store. Each has its facts as attributes; the text names the next step if there is one."""

import errno

ENDED = "this box stops or changes its role: the change may be on disk or not, try again"


class StorageError(Exception):
    """Root of all errors that storage_driver raises on purpose."""


class RecordDamaged(StorageError):
    """The bytes at `at` are not a whole, intact record."""

    def __init__(self, at: int, reason: str) -> None:
        super().__init__(f"no intact record at {at}: {reason}")
        self.at, self.reason = at, reason


class UnreadableRecord(OSError):
    """The disk gives back an error in place of one record, EIO, and not wrong bytes."""

    def __init__(self, log_offset: int, size: int, cause: OSError) -> None:
        super().__init__(errno.EIO, f"record at {log_offset}: {cause.strerror}")
        self.log_offset, self.size = log_offset, size


class MessageIllegal(StorageError):
    """This message cannot be stored, ever: too long, or not in the format."""


class PropertiesTooLong(MessageIllegal):
    """The properties do not fit the 16-bit length of a record."""

    def __init__(self, length: int) -> None:
        super().__init__(f"properties of {length} bytes, allowed 32767")
        self.length = length


class LogFailed(StorageError):
    """The log was sealed after a disk error: no more acknowledgements, reads continue, a restart re-reads the disk."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"the log is sealed after a disk error, restart to recover: {reason}")
        self.reason = reason


class TablesFailed(LogFailed):
    """Queue or index files cannot be written: senders are refused until a later try succeeds."""

    def __init__(self, reason: str) -> None:
        StorageError.__init__(self, f"queue files cannot be written, retried every second: {reason}")
        self.reason = reason


class Full(StorageError):
    """The disk is above its full mark; appends resume automatically once space is free."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"the disk is full: {reason}; free space or lower the retention")
        self.reason = reason


class Busy(StorageError):
    """The oldest record that is not yet on disk has waited too long; try again."""

    def __init__(self, waited_ms: int) -> None:
        super().__init__(f"the disk is slow: the oldest unwritten message waits {waited_ms} ms; try again")
        self.waited_ms = waited_ms


class NotNext(StorageError):
    """Records of another log do not follow the end of this one."""

    def __init__(self, log_offset: int, end: int) -> None:
        super().__init__(f"records for {log_offset}, this log ends at {end}: request the records from there")
        self.log_offset, self.end = log_offset, end


class QueueRestarted(StorageError):
    """A record restarts a queue: its topic was deleted where the record comes from; restart it here, then continue."""

    def __init__(self, topic: str, queue_id: int, log_offset: int) -> None:
        super().__init__(f"the record at {log_offset} begins queue {queue_id} of {topic} again: restart it first")
        self.topic, self.queue_id, self.log_offset = topic, queue_id, log_offset


class StoreRefused(StorageError):
    """The store cannot be opened: locked, wrongly configured, too new a layout, or a disk that cannot be read."""


class StoreUnwritable(StoreRefused):
    """A file of the store is write-protected, by its flags or its owner; over a MemoryLayer it can be read."""

    def __init__(self, cause: OSError) -> None:
        names = " → ".join(str(name) for name in (cause.filename, cause.filename2) if name)
        super().__init__(f"{names or 'a file of the log'} cannot be written: {cause.strerror}")


class StateDamaged(StorageError):
    """Neither a state file nor its `.bak` can be parsed."""


class VoteFileDamaged(StorageError):
    """A member of a group cannot know what it voted: it must not vote, nor acknowledge, under its id again."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}; this member may have voted: remove it, let it join under a new id")
        self.path, self.reason = path, reason


class ConsensusRefused(StorageError):
    """The group cannot do what was asked: the text says why and what to do."""
