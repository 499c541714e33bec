"""A fresh Debian and one file of a release: how long until the first message is sent and read, for docs/installing.md.

test_container.py measures the same of the image: `make test-packages ARGS="-k first_message"` prints all.
"""

import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.ports import free_port
from tests.systemd.debian import Debian, build_wheel, debian_root, needs_debian

pytestmark = [pytest.mark.soak, needs_debian, pytest.mark.parametrize("suite", ["bookworm", "trixie"])]
TRUST = Path("/etc/ssl/certs/ca-certificates.crt")
# How this machine reaches an index of packages, and whom it trusts for that.
PASSED = ("PIP_CERT", "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_PROXY", "http_proxy", "https_proxy", "no_proxy")
# The lines of docs/installing.md; PyPI's watchdog was there before, and is the same afterwards.
PIP = """set -eu
cd /root
python3 -m venv env
. env/bin/activate
pip install -q watchdog
{ pip show -f watchdog; sha256sum env/lib/python3*/site-packages/watchdog/*.py; } > before
began=$(date +%s%N)
pip install -q /shared/*.whl
rocketbox serve --data ./var --namesrv-port $NAMESRV --broker-port $BROKER > log 2>&1 &
trap "kill $!" EXIT
while ! grep -q '^ready ' log; do kill -0 $! || { cat log; exit 1; }; sleep 0.05; done
rocketbox send --namesrv 127.0.0.1:$NAMESRV T hello
rocketbox consume --namesrv 127.0.0.1:$NAMESRV --from first --max 1 --timeout 30 T
echo "took $((($(date +%s%N) - began) / 1000000)) ms"
{ pip show -f watchdog; sha256sum env/lib/python3*/site-packages/watchdog/*.py; } > after
cmp before after
cd /
/root/env/bin/python -c 'import watchdog.observers; print(watchdog.__file__)'
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture
def fresh(suite: str, tmp_path: Path) -> Iterator[Path]:
    """Return the root of a Debian that has Python's venv; it shares this machine's network."""
    root = debian_root(suite, tmp_path / "root", more=("python3-venv",))
    yield root
    shutil.rmtree(root)


def test_the_first_message_after_apt_install(suite: str, package: Path, tmp_path: Path) -> None:
    machine = Debian(tmp_path, suite)
    try:
        machine.start()
        shutil.copy(package, machine.shared)
        began = time.monotonic()
        machine.apt("install", f"/shared/{package.name}")
        machine.wait_for("rocketbox.service")
        assert "SEND_OK" in machine.done("rocketbox", "send", "T", "hello")
        assert "hello" in machine.done("rocketbox", "consume", "--from", "first", "--max", "1", "--timeout", "30", "T")
        print(f"first message, apt install, {suite}: {time.monotonic() - began:.1f} s")
    finally:
        machine.stop()
        shutil.rmtree(tmp_path / "root")


def test_the_first_message_after_pip_install_beside_watchdog(
    suite: str, wheel: Path, fresh: Path, tmp_path: Path
) -> None:
    words = ["systemd-nspawn", "--quiet", "--pipe", "--register=no", "--keep-unit", "-D", str(fresh)]
    words += [f"--bind-ro={wheel.parent}:/shared", "--resolv-conf=replace-host"]
    words += [f"--bind-ro={TRUST}"] if TRUST.exists() else []
    words += [f"--setenv={name}={os.environ[name]}" for name in PASSED if name in os.environ]
    words += [f"--setenv=NAMESRV={free_port()}", f"--setenv=BROKER={free_port()}"]
    done = subprocess.run([*words, "sh", "-c", PIP], capture_output=True, text=True, check=False, timeout=300)
    if "No matching distribution found for watchdog" in done.stderr:
        pytest.skip(f"no package index is reached: {done.stderr.strip()[-300:]}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "SEND_OK" in done.stdout
    assert "hello" in done.stdout
    assert "/site-packages/watchdog/__init__.py" in done.stdout
    took = re.search(r"^took (\d+) ms$", done.stdout, re.MULTILINE)
    assert took is not None
    print(f"first message, pip install beside watchdog, {suite}: {int(took[1]) / 1e3:.1f} s")
