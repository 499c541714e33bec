"""trio is imported without a search for the C library, and names its threads all the same."""

import subprocess
import sys

import pytest

IMPORTED = """
import sys
from appliance.thread_names import no_search
with no_search():
    import trio

async def main():
    return await trio.to_thread.run_sync(lambda: open("/proc/thread-self/comm").read().strip(), thread_name="a name")

print(trio.run(main), [name for name in ("ctypes.util", "shutil", "tempfile") if name in sys.modules])
import ctypes.util
print(ctypes.util.find_library.__module__)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="threads have other names elsewhere")
def test_threads_have_names_and_the_standard_library_is_as_before() -> None:
    done = subprocess.run([sys.executable, "-c", IMPORTED], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n") == ["a name []", "ctypes.util", ""]
