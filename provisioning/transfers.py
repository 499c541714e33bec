"""The transfers of one line: at most one towards the box and one towards the bench."""

from dataclasses import dataclass
from pathlib import Path

from provisioning.incoming import IncomingFile
from provisioning.transfer import FileSender, Receiver


@dataclass(slots=True)
class Upload:
    """A transfer towards the box."""

    number: int
    file: IncomingFile
    receiver: Receiver


@dataclass(slots=True)
class Download:
    """A transfer towards the bench."""

    number: int
    path: Path
    sender: FileSender


class Transfers:
    """Numbered from 1 on; pieces and acknowledgements carry the number."""

    def __init__(self) -> None:
        self.upload: Upload | None = None
        self.download: Download | None = None
        self._numbers = 0

    def receive(self, file: IncomingFile, size: int) -> Upload:
        """Begin to receive a file where what is there of it ends."""
        self._numbers += 1
        self.upload = Upload(self._numbers, file, Receiver(size, have=file.have))
        return self.upload

    def send(self, path: Path, sender: FileSender) -> Download:
        """Begin to send a file; one that is under way is given up."""
        self._numbers += 1
        self.download = Download(self._numbers, path, sender)
        return self.download

    def drop_upload(self) -> None:
        """Give up what is being received; its bytes stay."""
        if self.upload is not None:
            self.upload.file.close()
            self.upload = None
