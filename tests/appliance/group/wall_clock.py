"""A wall clock that jumps for one process: a library loaded before all others adds what a file says."""

import shutil
import subprocess
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import pytest

SOURCE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>

static volatile int64_t *ahead_s;
static int (*real)(clockid_t, struct timespec *);

__attribute__((constructor)) static void begin(void) {
    real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int fd = open(getenv("CLOCK_AHEAD"), O_RDONLY);
    void *at = mmap(0, sizeof *ahead_s, PROT_READ, MAP_SHARED, fd, 0);
    if (at != MAP_FAILED) ahead_s = at;
}

int clock_gettime(clockid_t id, struct timespec *told) {
    int failed = real(id, told);
    if (!failed && id == CLOCK_REALTIME && ahead_s) told->tv_sec += *ahead_s;
    return failed;
}

int gettimeofday(struct timeval *restrict told, void *restrict zone) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    told->tv_sec = now.tv_sec;
    told->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *told) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (told) *told = now.tv_sec;
    return now.tv_sec;
}
"""


class WallClock:
    """The wall clock of one process, which is started with `environment`."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.jump(0)
        self.environment = {"LD_PRELOAD": str(_library()), "CLOCK_AHEAD": str(file)}

    def jump(self, ahead_s: int) -> None:
        """Let it go before that of the machine by so much from now on."""
        with self._file.open("r+b" if self._file.exists() else "wb") as file:
            file.write(ahead_s.to_bytes(8, "little", signed=True))


@cache
def _library() -> Path:
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler here: as root, apt-get install gcc")
    folder = Path(mkdtemp(prefix="wall-clock-"))
    (folder / "clock.c").write_text(SOURCE)
    words = [compiler, "-shared", "-fPIC", "-O1", "-o", str(folder / "clock.so"), str(folder / "clock.c"), "-ldl"]
    subprocess.run(words, check=True, capture_output=True)
    return folder / "clock.so"
