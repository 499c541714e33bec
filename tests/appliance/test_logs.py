"""Logging must not hold up the box: neither while it serves nor when it ends."""

import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CUT_SHORT = """
import time
from appliance.commands.box.serve import cut_short
from appliance.logs import start_logging
start_logging()
cut_short()
"""


BUG = """
from appliance.logs import start_logging
start_logging()
raise RuntimeError("a bug")
"""


@contextmanager
def full_pipe() -> Iterator[tuple[int, int]]:
    """Yield both ends of a pipe that takes no byte more."""
    reader, writer = os.pipe()
    try:
        fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
        os.set_blocking(writer, False)
        try:
            while os.write(writer, b"x" * 4096):
                pass
        except BlockingIOError:
            pass
        os.set_blocking(writer, True)
        yield reader, writer
    finally:
        os.close(reader)
        os.close(writer)


def python(*words: str, stderr: int) -> "subprocess.Popen[str]":
    return subprocess.Popen([sys.executable, *words], cwd=ROOT, stdout=subprocess.PIPE, stderr=stderr, text=True)


@pytest.mark.slow
def test_the_box_starts_and_ends_although_nobody_reads_its_stderr(tmp_path: Path) -> None:
    words = ("-m", "appliance", "serve", "--data", str(tmp_path), "--namesrv-port", "0", "--broker-port", "0")
    with full_pipe() as (_, writer), python(*words, stderr=writer) as box:
        assert box.stdout is not None
        try:
            assert "ready" in box.stdout.readline()
            box.send_signal(signal.SIGTERM)
            assert box.wait(30) == 0
        finally:
            box.kill()


@pytest.mark.slow
def test_a_stop_that_is_cut_short_ends_although_nobody_reads_stderr_and_says_so_where_one_does() -> None:
    with full_pipe() as (_, writer), python("-c", CUT_SHORT, stderr=writer) as child:
        assert child.wait(30) == 0
    with python("-c", CUT_SHORT, stderr=subprocess.PIPE) as child:
        assert child.stderr is not None
        assert "event=stop_cut_short" in child.stderr.read()
        assert child.wait(30) == 0


@pytest.mark.slow
def test_an_end_by_a_bug_is_an_end_although_nobody_reads_stderr_and_says_why_where_one_does() -> None:
    with full_pipe() as (_, writer), python("-c", BUG, stderr=writer) as child:
        try:
            assert child.wait(60) == 1
        finally:
            child.kill()
    with python("-c", BUG, stderr=subprocess.PIPE) as child:
        assert child.stderr is not None
        lines = child.stderr.read().splitlines()
        assert child.wait(30) == 1
    assert lines[0] == "<2>logger=appliance event=ended_by_error next_step=report_this"
    assert (lines[1], lines[-1]) == ("<2>Traceback (most recent call last):", "<2>RuntimeError: a bug")


@pytest.mark.slow
def test_a_line_that_does_not_fit_its_arguments_ends_nothing_and_shows_itself() -> None:
    code = """
import logging
from appliance.logs import start_logging
start_logging()
logging.info("event=one number=%d", "x")
logging.info("event=two\\n %s %s", "x")
logging.info("event=three")
"""
    with python("-c", code, stderr=subprocess.PIPE) as child:
        assert child.stderr is not None
        lines = child.stderr.read().splitlines()
        assert child.wait(30) == 0
    assert [line.partition(" reason=")[0] for line in lines] == [
        "<3>logger=root event=line_damaged line='event=one number=%d'",
        "<3>logger=root event=line_damaged line='event=two\\n %s %s'",
        "<6>logger=root event=three",
    ]


@pytest.mark.slow
def test_lines_that_found_no_room_are_counted(tmp_path: Path) -> None:
    code = """
import logging
from appliance.logs import start_logging
handler = start_logging()
for number in range(3000):
    logging.info("event=line number=%d", number)
print("written", flush=True)
input()
logging.shutdown()
"""
    with full_pipe() as (reader, writer):
        command = [sys.executable, "-c", code]
        with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=writer) as child:
            assert child.stdout is not None
            assert child.stdout.readline() == b"written\n"
            text, until = b"", time.monotonic() + 30
            while b"number=999" not in text and time.monotonic() < until:
                text += os.read(reader, 1 << 16)
            child.communicate(b"\n", timeout=30)
    assert b"event=lines_left_out count=" in text
    assert text.index(b"number=1\n") < text.index(b"number=2\n") < text.index(b"number=999\n")
