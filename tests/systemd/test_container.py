"""The container images: small, the same bytes twice, a box on a read-only root that keeps what it acknowledged."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.ports import free_port
from tests.systemd.podman import TOP, Podman, reason_to_skip

pytestmark = [
    pytest.mark.soak,
    pytest.mark.skipif(bool(reason_to_skip()), reason=reason_to_skip()),
    pytest.mark.xdist_group("packages"),
]
WORK = TOP / ".build/test-container"
CHECK = ("/usr/bin/rocketbox", "status", "--serving")
AT_ONCE = (f"--health-cmd={json.dumps(CHECK)}", "--health-retries=1", "--health-start-period=0s")  # the image: 60 s
EPOCH = {"SOURCE_DATE_EPOCH": "1700000000"}


def make(podman: Podman, *options: str) -> Path:
    words = [str(TOP / "systemd/container/make-container.sh"), str(WORK), str(next((WORK / "wheel").glob("*.whl")))]
    subprocess.run([*words, sys.executable, *options], env=podman.environ | EPOCH, check=True, capture_output=True)
    return max(WORK.glob("*.tar.xz"), key=lambda path: path.stat().st_mtime)


@pytest.fixture(scope="module")
def podman(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Podman]:
    made = Podman(tmp_path_factory.mktemp("podman"))
    words = [sys.executable, "systemd/wheel/rocketbox_wheel.py", str(WORK / "wheel")]
    subprocess.run(words, cwd=TOP, env={**os.environ, **EPOCH}, check=True, capture_output=True)
    try:
        yield made
    finally:
        made.close()


@pytest.fixture(scope="module")
def archive(podman: Podman) -> Path:
    return make(podman)


@pytest.fixture(scope="module")
def image(podman: Podman, archive: Path) -> str:
    """Return the name of the image, loaded from its archive; skips where no container runs."""
    podman("rmi", "--all", "--force")
    name = podman("load", "-q", "-i", str(archive)).stdout.strip().removeprefix("Loaded image: ")
    if reason := podman.find_a_way(name):
        pytest.skip(f"no container runs here: {reason}")
    return name


@pytest.fixture
def name(podman: Podman, request: pytest.FixtureRequest) -> Iterator[str]:
    """Return a name for a container and its volume, both removed at the end."""
    yield "box"
    podman("rm", "-f", "-t", "0", "box", check=False)
    podman("volume", "rm", "-f", "box", check=False)


def test_the_image_is_small_and_the_same_inputs_give_the_same_bytes(podman: Podman, archive: Path, image: str) -> None:
    size = int(podman.inspect(image)["Size"])
    first = archive.read_bytes()
    print(f"image {size / 1e6:.1f} MB, archive {len(first) / 1e6:.1f} MB")
    assert size < 100e6
    assert make(podman).read_bytes() == first
    config = podman.inspect(image)["Config"]
    assert config["User"] == "10911:10911"
    assert podman.inspect(image)["HealthCheck" if "HealthCheck" in podman.inspect(image) else "Healthcheck"][
        "Test"
    ] == ["CMD", *CHECK]
    assert list(config["Volumes"]) == ["/var/lib/rocketbox"]


def test_the_first_message_is_sent_and_read_within_a_minute_of_the_archive(
    podman: Podman, archive: Path, image: str, name: str
) -> None:
    began = time.monotonic()
    podman("load", "-q", "-i", str(archive))
    podman.box(name, image)
    podman.wait_ready(name)
    assert "SEND_OK" in podman("exec", name, "rocketbox", "send", "T", "hello").stdout
    read = podman("exec", name, "rocketbox", "consume", "T", "--from", "first", "--max", "1", "--timeout", "20").stdout
    print(f"from the archive to the message read: {time.monotonic() - began:.1f} s")
    assert "hello" in read


def test_a_client_outside_reaches_the_box_over_published_ports_and_the_advertised_address(
    podman: Podman, image: str, name: str
) -> None:
    namesrv, broker = free_port(), free_port()
    rules = f'[{{ from = "0.0.0.0/0", address = "127.0.0.1", port = {broker} }}]'
    ports = ("-p", f"127.0.0.1:{namesrv}:9876", "-p", f"127.0.0.1:{broker}:10911")
    podman.box(name, image, *ports, "-e", f"ROCKETBOX_ADVERTISE_RULES={rules}")
    podman.wait_ready(name)
    send = [sys.executable, "-m", "appliance", "send", "--namesrv", f"127.0.0.1:{namesrv}", "T", "hello"]
    done = subprocess.run(send, cwd=TOP, capture_output=True, text=True, check=False)
    assert "SEND_OK" in done.stdout, done.stderr


def test_a_killed_box_started_again_has_every_acknowledged_message_and_sigterm_stops_it_cleanly(
    podman: Podman, image: str, name: str
) -> None:
    podman.box(name, image)
    podman.wait_ready(name)
    for number in range(5):
        podman("exec", name, "rocketbox", "send", "T", f"number {number}")
    podman("kill", name)
    podman("start", name)
    podman.wait_ready(name, 2)
    podman("stop", "-t", "20", name)
    assert podman.inspect(name)["State"]["ExitCode"] == 0
    podman("rm", name)  # another container with the same volume
    podman.box(name, image)
    podman.wait_ready(name)
    read = podman("exec", name, "rocketbox", "consume", "T", "--from", "first", "--max", "5", "--timeout", "20").stdout
    assert all(f"number {number}" in read for number in range(5)), read


def test_the_health_check_tells_a_box_that_serves_from_one_that_does_not(podman: Podman, image: str, name: str) -> None:
    podman.box(name, image, "-e", "ROCKETBOX_ACCESS_MODE=open", *AT_ONCE)
    podman.wait_ready(name)
    podman.wait(lambda: podman.health(name) == "healthy", name)  # degraded: it serves, nobody is to restart it
    assert "degraded" in podman("exec", name, "rocketbox", "status", check=False).stdout
    podman("kill", "-s", "STOP", name)
    volume = Path(json.loads(podman("volume", "inspect", name).stdout)[0]["Mountpoint"])
    long_ago = time.time() - 60
    os.utime(volume / "run/health.json", (long_ago, long_ago))  # as after a minute without a sign of life
    assert podman.health(name) == "unhealthy"
    podman("kill", "-s", "CONT", name)
    podman.wait(lambda: podman.health(name) == "healthy", name)


def test_a_data_folder_that_takes_no_writes_is_one_sentence_and_an_exit_code(
    podman: Podman, image: str, name: str
) -> None:
    owned = ("-v", "box:/var/lib/rocketbox:ro")
    done = podman("run", "--name", name, *podman.extra, "--read-only", *owned, image, check=False)
    assert done.returncode == 74, done.stderr
    assert "must be writable for user 10911" in done.stdout + done.stderr


def compose(podman: Podman, folder: Path, environ: dict[str, str], *words: str) -> str:
    program = [sys.executable, "-m", "podman_compose", "--in-pod", "false", "--podman-run-args", " ".join(podman.extra)]
    inside = podman.words(program[0])[:-1]
    done = subprocess.run(
        [*inside, *program, "-f", str(folder / "compose.yaml"), *words],
        env=podman.environ | environ,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_compose_file_brings_up_a_box_whose_log_lands_at_its_gateway(
    podman: Podman, image: str, tmp_path: Path
) -> None:
    pytest.importorskip("podman_compose", reason="podman-compose is not installed: make setup")
    gateway = (
        podman("load", "-q", "-i", str(make(podman, "--kind", "gateway"))).stdout.strip().removeprefix("Loaded image: ")
    )
    for file in ("compose.yaml", "prometheus.yml"):
        (tmp_path / file).write_bytes((TOP / "systemd/container" / file).read_bytes())
    certs = tmp_path / "certs"
    certs.mkdir()
    os.chown(certs, 10911, 10911)
    tmp_path.chmod(0o755)
    ask = ("--dir", "/etc/rocketbox/certs", "--box", "press-17", "--folders", "--gateway", "gateway")
    podman("run", "--rm", *podman.extra, "-v", f"{certs}:/etc/rocketbox/certs", gateway, "certs", *ask)
    version = gateway.rpartition(":")[2]
    environ = {"ROCKETBOX_VERSION": version, "NAMESRV_PORT": str(free_port()), "BROKER_PORT": str(free_port())}
    assert "gateway:7000" in compose(
        podman, tmp_path, environ, "--profile", "spark", "--profile", "prometheus", "config"
    )
    compose(podman, tmp_path, environ, "up", "-d")
    try:
        (box,) = podman("ps", "--format", "{{.Names}}", "--filter", "name=box_1").stdout.split()
        podman.wait_ready(box)
        podman("exec", box, "rocketbox", "send", "T", "hello")
        podman("exec", box, "rocketbox", "uplink", "flush", check=False)
        landed = box.replace("box_1", "gateway_1")
        listed = ("exec", landed, "python3", "-m", "uplink_spark", "boxes", "--landing", "/srv/landing")
        podman.wait(lambda: "press-17" in podman(*listed, check=False).stdout, landed)
        assert podman.health(landed) == "healthy"
    finally:
        compose(podman, tmp_path, environ, "down", "-v")
