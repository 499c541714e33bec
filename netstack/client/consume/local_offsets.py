"""Offsets of a broadcasting group in a file of its machine. Source: RocketMQ 4.9.8 LocalFileOffsetStore.

`<folder>/<client id>/<group>/offsets.json` with a `.bak` copy: {"offsetTable":{{"brokerName":…}:n,…}}
"""

import logging
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import trio

from netstack.client.consume.offsets import KnownOffsets
from netstack.client.errors import ClientError
from netstack.errors import Refused
from netstack.wire.bodies import ResetOffset
from netstack.wire.json_body import MessageQueue

_log = logging.getLogger("netstack.client")


class LocalOffsets(KnownOffsets):
    """Loaded once at start, written whole on every persist."""

    def __init__(self, folder: Path | None, client_id: str, group: str) -> None:
        super().__init__()
        base = folder or Path.home() / ".rocketmq_offsets"
        self.path = base / client_id / group / "offsets.json"
        self._one_thread = trio.CapacityLimiter(1)  # what is persisted last is written last

    async def load(self) -> None:
        """Read the file, or its copy when it is damaged. Raises ClientError when both are."""
        self._offsets = await trio.to_thread.run_sync(self._read)

    def _read(self) -> dict[MessageQueue, int]:
        faults = []
        for path in (self.path, self.path.with_suffix(".json.bak")):
            try:
                text = path.read_bytes()
                if text.strip():
                    return dict(ResetOffset.from_server(text).offset_table)
            except FileNotFoundError:
                continue
            except (OSError, Refused) as error:
                faults.append(f"{path}: {error}")
        if faults:
            raise ClientError(f"offsets are not readable: {'; '.join(faults)}; delete or repair the file")
        return {}

    def forget(self, queue: MessageQueue) -> None:
        """Nothing: the file is the only place that remembers."""

    async def read(self, queue: MessageQueue) -> int:
        return self.get(queue)

    async def persist(self, queues: Iterable[MessageQueue]) -> None:
        """Write the file atomically; the one before stays as the copy. A failure is only logged."""
        body = ResetOffset(dict(self._offsets)).to_bytes()
        with trio.CancelScope(shield=True):
            try:
                await trio.to_thread.run_sync(self._write, body, limiter=self._one_thread)
            except ClientError as error:
                _log.warning("event=offset_not_persisted reason=%s", error)

    def _write(self, body: bytes) -> None:
        # Another program, or another client in this one, may have the same group and id, hence the same file.
        fresh = self.path.with_suffix(f".json.{os.getpid()}-{id(self):x}.tmp")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with fresh.open("wb") as file:
                file.write(body)
                file.flush()
                os.fsync(file.fileno())
            with suppress(FileNotFoundError):
                self.path.replace(self.path.with_suffix(".json.bak"))
            fresh.replace(self.path)
        except OSError as error:
            raise ClientError(f"offsets not written: {error}; give offsets_folder a writable place") from error
