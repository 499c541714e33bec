"""A program on a foreign client that sends until it is told to end and consumes all of it, with what it was told."""

import json
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, TextIO

from tests.interop.box import until
from tests.interop.client import unique
from tests.interop.programs import Program

Row = dict[str, Any]
CONSUMED_S = 90.0  # a pull that was under way when its leader was lost waits for half a minute
BACK_S = 90.0  # until acknowledgements go on after a switch; the route of a client may be 30 s old


class Stream:
    """The program's subcommand `stream NAMESRV TOPIC GROUP`, which stops sending when its standard input ends."""

    def __init__(self, program: Program, namesrv: str, topic: str) -> None:
        self._command = [*program.command, "stream", namesrv, topic, unique("group")]
        self._lock = threading.Lock()
        self._rows: list[tuple[float, Row]] = []
        self._said: list[str] = []

    @contextmanager
    def running(self) -> Iterator[None]:
        """Run the program; when this returns it has consumed what was acknowledged to it."""
        pipe = subprocess.PIPE
        process = subprocess.Popen(self._command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
        assert process.stdin
        assert process.stdout
        assert process.stderr
        readers = [
            threading.Thread(target=self._read, args=(process.stdout,)),
            threading.Thread(target=self._said.extend, args=(process.stderr,)),
        ]
        for each in readers:
            each.start()
        self._process = process
        try:
            yield
            process.stdin.close()
            until(lambda: self._has_ended, seconds=60, what=lambda: f"it does not stop sending: {self._errors()}")
            until(lambda: not self._missing(), seconds=CONSUMED_S, what=self._missing_told)
        finally:
            process.kill()
            process.wait()
            for each in readers:
                each.join()

    @property
    def _has_ended(self) -> bool:
        with self._lock:
            return any("ended" in row for _, row in self._rows)

    def _seen(self) -> list[Row]:
        with self._lock:
            return [row for _, row in self._rows if "seen" in row]

    def _missing(self) -> set[str]:
        return self._acknowledged() - {row["seen"] for row in self._seen()}

    def _missing_told(self) -> str:
        missing = sorted(self._missing())
        return f"{len(missing)} acknowledged messages were not consumed: {missing[:10]}"

    def _errors(self) -> str:
        return "".join(self._said)[-2000:]

    def _read(self, lines: TextIO) -> None:
        for line in lines:
            if line.startswith("{"):
                with self._lock:
                    self._rows.append((time.monotonic(), json.loads(line)))

    def _told(self, how: str) -> list[tuple[float, Row]]:
        with self._lock:
            return [(at, row) for at, row in self._rows if row.get("how") == how]

    def _acknowledged(self, how: str = "sync") -> set[str]:
        return {f"{how}/{row['number']}" for _, row in self._told(how) if "failed" not in row}

    def more(self, number: int) -> None:
        """Return once so many further messages were acknowledged."""
        enough = len(self._acknowledged()) + number

        def came() -> bool:
            assert self._process.poll() is None, f"the program ended: {self._errors()}"
            return len(self._acknowledged()) >= enough

        until(came, seconds=BACK_S, what=lambda: f"it did not come back: {self._told('sync')[-3:]} {self._errors()}")

    def since(self, began: float) -> tuple[float, int]:
        """Return the longest time without an acknowledgement since a moment, and how many sends failed."""
        times = [began, *(at for at, row in self._told("sync") if at >= began and "failed" not in row)]
        return max((after - before for before, after in pairwise(times)), default=0.0), len(self.failures(began))

    def failures(self, began: float = 0.0) -> list[str]:
        """Return why sends failed."""
        return [str(row["failed"]) for at, row in self._told("sync") if at >= began and "failed" in row]

    def check(self) -> None:
        """A queue has what the synchronous sender sent in its order."""
        seen, in_order = self._seen(), self._acknowledged()
        bodies = {row["seen"] for row in seen}
        newest, first = dict[int, int](), set[str]()
        for row in sorted(seen, key=lambda row: (row["queue_id"], row["queue_offset"])):
            if row["seen"] in first or row["seen"] not in in_order:
                continue  # it may come twice, or be stored although its sender was told nothing
            first.add(row["seen"])
            number = int(row["seen"].partition("/")[2])
            assert newest.get(row["queue_id"], 0) < number, "stored out of order"
            newest[row["queue_id"]] = number
        oneway = self._acknowledged("oneway")
        told = f"{len(in_order)} acknowledged, {len(bodies)} consumed"
        print(f"{told}, {len(seen) - len(bodies)} twice; of {len(oneway)} one-way {len(oneway - bodies)} lost")
