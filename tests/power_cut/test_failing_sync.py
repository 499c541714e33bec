"""A real process whose n-th fdatasync of the log fails: what it acknowledged is there, nothing is after the error."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import trio

from storage_driver.config import StoreConfig
from storage_driver.errors import LogFailed
from storage_driver.record import Message, MessageQueue, decode_record, encode_host
from storage_driver.store import open_store

HOST = encode_host("127.0.0.1", 10911)
MESSAGES = 20
SHIM = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int fdatasync(int fd) {
    static int (*real)(int);
    static int seen;
    char name[64], path[4096];
    if (!real) real = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(name, path, sizeof path - 1);
    if (length > 0) {
        path[length] = 0;
        if (strstr(path, "/commitlog/") && ++seen == atoi(getenv("FAIL_AT"))) { errno = EIO; return -1; }
    }
    return real(fd);
}
"""


def config(root: Path) -> StoreConfig:
    return StoreConfig(root, HOST, segment_bytes=1 << 20, max_message_bytes=64 * 1024)


def body(number: int) -> bytes:
    return b"%d " % number * 50


async def send(root: Path) -> None:
    """Send one message after the other, also behind an error; print each number that was acknowledged."""
    async with open_store(config(root), now_ms=lambda: 1) as store:
        for number in range(MESSAGES):
            try:
                placed = store.put(Message("T", 0, body(number), b"", 0, 0, 1, HOST))
                await store.wait_committed(placed.end)
                print("ack", number, flush=True)
            except LogFailed as exc:
                print("failed", number, exc, flush=True)


@pytest.fixture(scope="module")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler here: as root, apt-get install gcc")
    folder = tmp_path_factory.mktemp("shim")
    (folder / "shim.c").write_text(SHIM)
    made = subprocess.run(
        [compiler, "-shared", "-fPIC", "-o", folder / "shim.so", folder / "shim.c", "-ldl"],
        capture_output=True,
        text=True,
    )
    if made.returncode:
        pytest.skip(f"{compiler} cannot build a shared library: {made.stderr.strip()[-200:]}")
    return folder / "shim.so"


@pytest.mark.slow
@pytest.mark.parametrize("fail_at", [1, 2, 7, MESSAGES])
async def test_the_nth_sync_of_the_log_fails(tmp_path: Path, shim: Path, fail_at: int) -> None:
    root = tmp_path / "store"
    ran = await trio.run_process(
        [sys.executable, "-m", "tests.power_cut.test_failing_sync", str(root)],
        env=os.environ | {"LD_PRELOAD": str(shim), "FAIL_AT": str(fail_at), "PYTHONPATH": "."},
        cwd=Path(__file__).parents[2],
        capture_stdout=True,
    )
    lines = [line.split(maxsplit=2) for line in ran.stdout.decode().splitlines()]
    assert len(lines) == MESSAGES
    acknowledged = [int(line[1]) for line in lines if line[0] == "ack"]
    failed = [int(line[1]) for line in lines if line[0] == "failed"]
    assert failed, "the sync did not fail: the shim was not used"
    assert acknowledged == list(range(failed[0])), "acknowledged after a failed sync"
    assert "Input/output error" in next(line[2] for line in lines if line[0] == "failed")
    async with open_store(config(root), now_ms=lambda: 1) as store:
        queue = MessageQueue("T", 0)
        assert store.max_offset(queue) >= len(acknowledged)
        found = await store.read(queue, 0, max_count=MESSAGES, max_bytes=1 << 20) if store.committed else None
        raw = b"".join(found.chunks) if found is not None else b""
        at, bodies = 0, []
        while at < len(raw):
            record = decode_record(raw, at)
            bodies.append(bytes(record.body))
            at += record.size
        assert bodies[: len(acknowledged)] == [body(number) for number in acknowledged]
        placed = store.put(Message("T", 0, b"goes on", b"", 0, 0, 1, HOST))
        await store.wait_committed(placed.end)


if __name__ == "__main__":
    trio.run(send, Path(sys.argv[1]))
