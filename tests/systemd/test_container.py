"""The container images: small, the same bytes twice, a box on a read-only root that keeps what it acknowledged."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from tests.ports import free_port
from tests.systemd.debian import build_wheel
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
    return max(WORK.glob("*.tar.zst"), key=lambda path: path.stat().st_mtime)


@pytest.fixture(scope="module")
def podman(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Podman]:
    made = Podman(tmp_path_factory.mktemp("podman"))
    build_wheel(WORK / "wheel")
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
    assert podman("images", "--quiet", "--filter", "dangling=true").stdout == ""  # all that lost its name is removed
    config = podman.inspect(image)["Config"]
    assert config["User"] == "10911:10911"
    assert podman.inspect(image)["HealthCheck" if "HealthCheck" in podman.inspect(image) else "Healthcheck"][
        "Test"
    ] == ["CMD", *CHECK]
    assert list(config["Volumes"]) == ["/var/lib/rocketbox"]


@pytest.mark.skipif(shutil.which("qemu-aarch64-static") is None, reason="apt-get install qemu-user-static")
def test_an_archive_for_another_processor_loads_under_the_name_that_the_page_runs(podman: Podman, image: str) -> None:
    archive = make(podman, "--arch", "arm64")
    words = f"zstd -dc {archive} | tar -xO manifest.json"
    (entry,) = json.loads(subprocess.run(words, shell=True, check=True, capture_output=True).stdout)
    assert image in entry["RepoTags"]
    assert podman.inspect(image)["Architecture"] == "amd64"  # here it stays that of this machine
    archive.unlink()


LOOKED_UP = """from pathlib import Path
print([str(each) for each in Path("/usr/lib").rglob("*.pyc") if each.read_bytes()[4] != 1])"""  # flags, PEP 552


def test_no_start_compiles_a_module_and_no_byte_code_depends_on_the_folder_of_the_build(
    podman: Podman, image: str
) -> None:
    words = ("run", "--rm", *podman.extra, "--read-only", "--entrypoint", "python3", image, "-IB", "-c", LOOKED_UP)
    assert podman(*words).stdout.strip() == "[]"  # the others have the time of a source, and this folder's name


def test_the_first_message_is_sent_and_read_within_a_minute_of_the_archive(
    podman: Podman, archive: Path, image: str, name: str
) -> None:
    began = time.monotonic()
    podman("load", "-q", "-i", str(archive))
    podman.box(name, image)
    podman.wait_ready(name)
    assert "SEND_OK" in podman("exec", name, "rocketbox", "send", "T", "hello").stdout
    read = podman("exec", name, "rocketbox", "consume", "T", "--from", "first", "--max", "1", "--timeout", "20").stdout
    print(f"first message, podman load and run: {time.monotonic() - began:.1f} s")
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


def test_sigterm_ends_a_process_that_has_no_handler_yet(podman: Podman, image: str, name: str) -> None:
    text = "print('up', flush=True); import time; time.sleep(60)"  # as a box that starts, or a job of Spark
    podman("run", "-d", "--name", name, *podman.extra, "--entrypoint", "python3", image, "-I", "-c", text)
    podman.wait(lambda: "up" in podman("logs", name).stdout, name)
    podman("stop", "-t", "20", name)
    assert podman.inspect(name)["State"]["ExitCode"] == 0


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


@pytest.mark.parametrize(
    ("mount", "told"),
    [
        ("box:/var/lib/rocketbox:ro", "its file system takes no writes"),
        ("{tmp}:/var/lib/rocketbox", "it must be writable for user 10911"),  # a bind mount without :U
    ],
)
def test_a_data_folder_that_takes_no_writes_is_one_sentence_and_an_exit_code(
    podman: Podman, image: str, name: str, mount: str, told: str, tmp_path: Path
) -> None:
    tmp_path.chmod(0o755)
    owned = ("-v", mount.format(tmp=tmp_path))
    done = podman("run", "--name", name, *podman.extra, "--read-only", *owned, image, check=False)
    assert done.returncode == 74, done.stderr
    assert told in done.stdout + done.stderr


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


PROMETHEUS = """FROM {base}
COPY prometheus /bin/prometheus
COPY --chown=65534:65534 data /prometheus
USER 65534:65534
WORKDIR /prometheus
ENTRYPOINT ["/bin/prometheus"]
CMD ["--config.file=/etc/prometheus/prometheus.yml", "--storage.tsdb.path=/prometheus"]
"""
ROWS = """from deltalake import DeltaTable
print(DeltaTable("/srv/bronze").to_pyarrow_table(columns=["topic"]).column("topic").to_pylist())"""


def prometheus_image(podman: Podman, base: str, folder: Path) -> str:
    """Return an image with Debian's Prometheus, laid out as the project's own image is."""
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip("needs Debian packages: apt-get install prometheus")
    (folder / "data").mkdir(parents=True)
    shutil.copy(program, folder)
    (folder / "Containerfile").write_text(PROMETHEUS.format(base=base))
    words = ["buildah", "build", "--quiet", "--tag", "localhost/prometheus:debian", str(folder)]
    subprocess.run(words, env=podman.environ, check=True, capture_output=True)
    return "localhost/prometheus:debian"


def loaded(podman: Podman, kind: str) -> str:
    """Make an image, return its name; that of Spark has no archive."""
    archive = make(podman, "--kind", kind)
    if kind in archive.name:
        podman("load", "-q", "-i", str(archive))
    (name,) = {
        one
        for image in json.loads(podman("images", "--format", "json").stdout)
        for one in image.get("Names") or []
        if one.startswith(f"localhost/rocketbox-{kind}:") and not one.endswith(":latest")
    }
    return str(name)


@pytest.fixture
def site(podman: Podman, image: str, tmp_path: Path) -> Iterator[Path]:
    """Return a folder with the compose file and the certificates of a box and its gateway; all goes down at the end."""
    pytest.importorskip("podman_compose", reason="podman-compose is not installed: make setup")
    if reason := podman.reason_without_names():
        pytest.skip(f"the box finds its gateway by name: {reason}")
    gateway = loaded(podman, "gateway")
    for file in (
        "systemd/container/compose.yaml",
        "systemd/container/prometheus.yml",
        "docs/alerts.yml",
        "docs/alerts-centre.yml",
    ):
        shutil.copy(TOP / file, tmp_path)
    certs = tmp_path / "certs"
    certs.mkdir()
    os.chown(certs, 10911, 10911)
    tmp_path.chmod(0o755)
    ask = ("--dir", "/etc/rocketbox/certs", "--box", "press-17", "--folders", "--gateway", "gateway")
    podman("run", "--rm", *podman.extra, "-v", f"{certs}:/etc/rocketbox/certs", gateway, "certs", *ask)
    ports = {name: str(free_port()) for name in ("NAMESRV_PORT", "BROKER_PORT", "PROMETHEUS_PORT")}
    (tmp_path / ".env").write_text("".join(f"{key}={value}\n" for key, value in ports.items()))
    try:
        yield tmp_path
    finally:
        compose(podman, tmp_path, {}, "--profile", "spark", "--profile", "prometheus", "down", "-v")


def test_the_compose_file_brings_up_box_gateway_spark_and_prometheus(
    podman: Podman, image: str, site: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    environ = {"ROCKETBOX_VERSION": image.rpartition(":")[2]}
    assert loaded(podman, "spark").endswith(image.rpartition(":")[2])
    environ["PROMETHEUS_IMAGE"] = prometheus_image(podman, image, tmp_path_factory.mktemp("prometheus"))
    compose(podman, site, environ, "up", "-d")
    (box,) = podman("ps", "--format", "{{.Names}}", "--filter", "name=box_1").stdout.split()
    podman.wait_ready(box)
    podman("exec", box, "rocketbox", "send", "T", "hello")
    podman("exec", box, "rocketbox", "uplink", "ship-now")
    gateway = box.replace("box_1", "gateway_1")
    listed = ("exec", gateway, "python3", "-m", "uplink_spark", "boxes", "--landing", "/srv/landing")
    podman.wait(lambda: "press-17" in podman(*listed, check=False).stdout, gateway)
    assert podman.health(gateway) == "healthy"
    (site / "box.token").write_text(podman("exec", box, "rocketbox", "page", "--token").stdout.rpartition("token ")[2])
    compose(podman, site, environ, "--profile", "spark", "--profile", "prometheus", "up", "-d")
    spark, prometheus = box.replace("box_1", "spark_1"), box.replace("box_1", "prometheus_1")
    rows = ("exec", spark, "python3", "-c", ROWS)
    podman.wait(lambda: "'T'" in podman(*rows, check=False).stdout, spark, 180)
    port = dict(line.split("=") for line in (site / ".env").read_text().splitlines())["PROMETHEUS_PORT"]
    podman.wait(lambda: scraped(port) == {"rocketbox": "up", "rocketbox-gateway": "up"}, prometheus)
    groups = ask(port, "rules")["groups"]
    assert {Path(group["file"]).name for group in groups} == {"alerts.yml", "alerts-centre.yml"}
    assert {rule["health"] for group in groups for rule in group["rules"]} <= {"ok", "unknown"}
    for name in (box, gateway, spark, prometheus):
        host = podman.inspect(name)["HostConfig"]
        assert (host["ReadonlyRootfs"], host["CapDrop"] != []) == (True, True), name
        assert podman("exec", name, "python3", "-c", "import os; print(os.getuid())").stdout.strip() != "0"


def ask(port: str, what: str) -> Any:
    with urlopen(f"http://127.0.0.1:{port}/api/v1/{what}", timeout=5) as answer:
        return json.load(answer)["data"]


def scraped(port: str) -> dict[str, str]:
    """Return Prometheus's jobs and whether the last scrape of each succeeded; empty while it does not answer."""
    try:
        return {each["labels"]["job"]: each["health"] for each in ask(port, "targets")["activeTargets"]}
    except OSError:
        return {}
