"""Logging to stderr, one line per event with the journal's priority in front; no files.

A thread of its own writes: a reader that rests (a full pipe, a journal that hangs) stops neither the loop nor the exit.
"""

import logging
import os
import sys
import threading
import time
from collections import deque
from types import TracebackType

from uplink_spark.console import JournalFormatter

STDERR = 2
MOST_WAITING = 1000
LAST_WORDS_S = 0.5


class PatientHandler(logging.Handler):
    """Writes from a thread, in order; what does not fit among a thousand waiting texts is left out and counted."""

    def __init__(self) -> None:
        super().__init__()
        self._waiting: deque[str] = deque()
        self._left_out, self._writing, self._changed = 0, False, threading.Condition()
        threading.Thread(target=self._write, name="log", daemon=True).start()

    def emit(self, record: logging.LogRecord) -> None:
        """Queue one text; never blocks, and a line that cannot be made harms nobody but itself."""
        try:
            text = self.format(record)
        except (TypeError, ValueError, LookupError) as exc:  # the line and its arguments do not fit
            text = f"<3>logger={record.name} event=line_damaged line={record.msg!r} reason={str(exc)!r}"
        self.say(text)

    def say(self, text: str) -> None:
        """Queue a text as it is; never blocks."""
        with self._changed:
            if len(self._waiting) < MOST_WAITING:
                self._waiting.append(text)
                self._changed.notify_all()
            else:
                self._left_out += 1

    def flush(self) -> None:
        """Wait for what is queued, half a second at most: this runs when the process ends."""
        with self._changed:
            self._changed.wait_for(lambda: not (self._waiting or self._writing), LAST_WORDS_S)

    def _write(self) -> None:
        while True:
            with self._changed:
                self._writing = False
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._waiting)
                self._writing = True
                texts = [self._waiting.popleft()]
                if self._left_out:
                    texts.append(f"<4>logger=log event=lines_left_out count={self._left_out} reason=stderr_blocked")
                    self._left_out = 0
            _write_all("".join(f"{text}\n" for text in texts).encode("utf-8", "replace"))


def _write_all(raw: bytes) -> None:
    while raw:
        try:
            raw = raw[os.write(STDERR, raw) :]
        except BlockingIOError:  # who shares this stderr made it so
            time.sleep(0.01)
        except OSError:
            return  # nobody reads it any more


def _ended(kind: type[BaseException], exc: BaseException, trace: TracebackType | None) -> None:
    """Log what ends the process: Python itself would write it where nobody may read."""
    if not issubclass(kind, KeyboardInterrupt):
        logging.getLogger("appliance").critical(
            "event=ended_by_error next_step=report_this", exc_info=(kind, exc, trace)
        )


def start_logging(level: int = logging.INFO) -> PatientHandler:
    """Send what the parts log to stderr, and what ends the process."""
    handler = PatientHandler()
    handler.setFormatter(JournalFormatter("logger={}"))
    logging.basicConfig(level=level, handlers=[handler], force=True)
    sys.excepthook = _ended
    return handler
