"""One transfer each way at a time, with a number of its own; what is given up keeps its bytes."""

import hashlib
from pathlib import Path

from provisioning.incoming import IncomingFile
from provisioning.transfer import FileSender
from provisioning.transfers import Transfers

DATA = bytes(range(256))


def test_a_new_transfer_takes_the_place_of_the_one_before_under_a_new_number(tmp_path: Path) -> None:
    transfers = Transfers()
    first = transfers.send(tmp_path / "a", FileSender(10, chunk=5, baud=115_200, have=0))
    second = transfers.send(tmp_path / "b", FileSender(10, chunk=5, baud=115_200, have=0))
    upload = transfers.receive(IncomingFile(tmp_path, hashlib.sha256(DATA).hexdigest(), len(DATA)), len(DATA))
    assert (first.number, second.number, upload.number) == (1, 2, 3)
    assert (transfers.download, transfers.upload) == (second, upload)


def test_an_upload_that_was_given_up_goes_on_where_it_was(tmp_path: Path) -> None:
    transfers, sha256 = Transfers(), hashlib.sha256(DATA).hexdigest()
    transfers.drop_upload()
    upload = transfers.receive(IncomingFile(tmp_path, sha256, len(DATA)), len(DATA))
    upload.file.write(DATA[:100])
    transfers.drop_upload()
    assert transfers.upload is None
    again = transfers.receive(IncomingFile(tmp_path, sha256, len(DATA)), len(DATA))
    assert (again.number, again.receiver.next) == (2, 100)
