import json
import socket
import subprocess
import sys
import threading
from datetime import UTC, datetime
from pathlib import Path

import pytest
import trio

from appliance.access.certificate import make_certificate
from appliance.configuration.config import load_config
from appliance.health.doctor import examine
from appliance.health.doctor_facts import (
    NO_ROUTE,
    answers,
    certificates,
    container,
    drop_ins,
    file_system,
    gather,
    life_years,
    ports,
    program,
    swap_bytes,
    sysctl,
    uplink,
    virtual,
    watchdog_driver,
)
from netstack.serving.peer import Peer
from netstack.serving.tls import TlsConfig, TlsDoor, TlsMode
from netstack.testing import serving
from netstack.wire.command import RemotingCommand
from netstack.wire.conversation import Reply
from tests.appliance.box import FACTS, running_box

ROOT = Path(__file__).parents[3]


@pytest.mark.slow
def test_the_facts_of_this_machine_can_be_gathered_kept_and_judged(tmp_path: Path) -> None:
    facts = gather(tmp_path / "data")
    assert facts["sync_ms"]["p50"] > 0
    assert facts["file_system"]["type"]
    assert json.loads(json.dumps(facts)) == facts
    assert {one.code for one in examine(facts)} >= {"D101", "D107"}


@pytest.mark.slow
def test_a_box_that_has_ended_is_told_first_whatever_its_last_word_was(tmp_path: Path) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    file = tmp_path / "health.json"
    file.write_text(json.dumps({"state": "ok", "since_s": 40, "pid": gone.pid, "reasons": []}))
    facts = gather(tmp_path, health=file)
    assert "since_s" not in facts["health"]
    assert examine(facts)[0].code == "D200"


def test_the_longest_mount_wins(tmp_path: Path) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text("/dev/a / ext4 rw 0 0\n/dev/b /var/lib/rocketbox ext4 rw,noatime 0 0\n/dev/c /var xfs rw 0 0\n")
    assert file_system(Path("/var/lib/rocketbox/store"), mounts)["device"] == "/dev/b"
    found = file_system(Path("/var/log"), mounts)
    assert (found["type"], found["folder"]) == ("xfs", "/var/log")
    assert file_system(Path("/var/log/../lib/rocketbox"), mounts)["device"] == "/dev/b"


def test_swap_in_compressed_memory_does_not_count(tmp_path: Path) -> None:
    swaps = tmp_path / "swaps"
    swaps.write_text("Filename Type Size Used Priority\n/dev/zram0 partition 100 0 5\n/swapfile file 2048 0 -2\n")
    assert swap_bytes(swaps) == 2048 * 1024


def test_kernel_settings_and_the_watchdog_are_read_from_the_kernels_files(tmp_path: Path) -> None:
    (tmp_path / "vm").mkdir()
    (tmp_path / "vm/swappiness").write_text("60\n")
    assert sysctl(tmp_path) == {"vm.swappiness": 60}
    assert watchdog_driver(tmp_path) is None
    (tmp_path / "watchdog0").mkdir()
    (tmp_path / "watchdog0/identity").write_text("iTCO_wdt\n")
    assert watchdog_driver(tmp_path) == "iTCO_wdt"


@pytest.mark.slow
def test_a_port_taken_by_another_program_is_told_from_a_closed_one() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

        def greet() -> None:
            line, _ = listener.accept()
            with line:
                line.sendall(b"220 mail.example ESMTP\r\n")
                line.recv(100)

        thread = threading.Thread(target=greet)
        thread.start()
        assert answers("127.0.0.1", port, NO_ROUTE) == "foreign"
        thread.join()
    assert answers("127.0.0.1", port, NO_ROUTE) == "refused"


async def test_the_ports_of_a_box_that_takes_tls_alone_answer_whatever_configuration_is_looked_at(
    tmp_path: Path,
) -> None:
    cert, key = tmp_path / "box.crt", tmp_path / "box.key"
    make_certificate(cert, key, "box", [], now=datetime.now(UTC))
    door = TlsDoor(TlsConfig(cert, key, TlsMode.ENFORCING))
    async with serving(agree, tls=door) as broker, serving(agree, tls=door) as namesrv:
        for mode in ("enforcing", "permissive"):
            text = f'[tls]\nmode = "{mode}"\n[listen]\nbroker_port = {broker}\nnamesrv_port = {namesrv}\n'
            found = await trio.to_thread.run_sync(ports, load_config(text, source="test", facts=FACTS))
            assert [(row["reachable"], "taken_by" in row) for row in found] == [(True, False)] * 2, mode


async def test_looking_at_the_ports_of_a_box_leaves_nothing_in_its_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running_box(tmp_path / "box") as box:
        text = f"[listen]\nbroker_port = {box.broker_port}\nnamesrv_port = {box.namesrv_port}\n"
        found = await trio.to_thread.run_sync(ports, load_config(text, source="test", facts=FACTS))
        assert [row["reachable"] for row in found] == [True, True]
    assert "request_refused" not in caplog.text


def agree(command: RemotingCommand, peer: Peer) -> Reply:
    return Reply(command.reply(0))


def test_a_certificate_tells_its_days(tmp_path: Path) -> None:
    words = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "12"]
    more = ["-subj", "/CN=x", "-keyout", str(tmp_path / "k"), "-out", str(tmp_path / "box.crt")]
    subprocess.run([*words, *more], check=True, capture_output=True)
    (found,) = certificates([tmp_path, ""])
    assert found["days"] in (11, 12)


def test_an_uplink_that_cannot_be_reached_says_why(tmp_path: Path) -> None:
    assert uplink("", tmp_path) == {}
    assert uplink("no.such.host.invalid:7000", tmp_path)["resolved"] is False
    found = uplink("127.0.0.1:1", tmp_path)
    assert (found["connected"], "refused" in found["error"].lower()) == (False, True)


@pytest.mark.parametrize(
    ("flags", "file", "expected"),
    [("fpu sse2", None, False), ("fpu hypervisor", None, True), ("fpu", ".dockerenv", True)],
)
def test_a_virtual_machine_and_a_container_are_known(
    tmp_path: Path, flags: str, file: str | None, expected: bool
) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cpuinfo").write_text(f"model name\t: x\nflags\t\t: {flags}\n")
    if file:
        (tmp_path / file).touch()
    assert virtual(tmp_path) is expected


def test_a_container_is_known_by_what_its_engine_leaves_there(tmp_path: Path) -> None:
    assert not container(tmp_path, {})
    assert container(tmp_path, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"})  # containerd leaves no file
    assert container(tmp_path, {"container": "podman"})  # nor does Podman 4.3 where the root is read-only
    (tmp_path / "run").mkdir()
    (tmp_path / "run/.containerenv").touch()
    assert container(tmp_path, {})


@pytest.mark.slow
def test_the_command_judges_a_file_of_facts_and_exits_by_the_worst(tmp_path: Path) -> None:
    file = tmp_path / "facts.json"
    file.write_text(json.dumps({"watchdog": None, "access_mode": "open"}))
    done = subprocess.run(
        [sys.executable, "-m", "appliance", "doctor", "--facts", str(file), "--json"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    assert done.returncode == 2
    assert [json.loads(line)["code"] for line in done.stdout.splitlines()] == ["D202", "D303"]


@pytest.mark.parametrize(
    ("worn", "years"),
    [
        ({"used_percent": 10, "hours": 8766}, 9.0),
        ({"used_percent": 100, "hours": 8766}, 0.0),
        ({"used_percent": 0, "hours": 8766}, None),
        ({"used_percent": 10, "hours": None}, None),
        (None, None),
    ],
)
def test_the_life_of_a_disk_is_what_is_left_at_the_rate_so_far(
    worn: dict[str, int | None] | None, years: float | None
) -> None:
    assert life_years(worn) == years


def test_the_program_of_an_environment_is_named_by_its_path_and_that_of_a_package_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.prefix", str(tmp_path))
    assert program() == "rocketbox"  # where there is no such command
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/rocketbox").touch()
    assert program() == f"{tmp_path}/bin/rocketbox"
    monkeypatch.setattr("appliance.health.doctor_facts.INSTALLED", (str(tmp_path),))
    assert program() == "rocketbox"


def test_a_drop_in_is_told_unless_it_is_the_one_that_a_group_with_an_address_copies(tmp_path: Path) -> None:
    text = (ROOT / "systemd/drop-ins/floating-address.conf").read_text()
    folder = tmp_path / "etc/systemd/system/rocketbox.service.d"
    folder.mkdir(parents=True)
    (folder / "floating-address.conf").write_text(text)
    assert drop_ins(tmp_path) == [str(folder / "floating-address.conf")], "nothing is shipped here"
    shipped = tmp_path / "usr/lib/rocketbox/floating-address.conf"
    shipped.parent.mkdir(parents=True)
    shipped.write_text(text)
    (folder / "weaker.conf").write_text("[Service]\nProtectSystem=no\n")
    assert drop_ins(tmp_path) == [str(folder / "weaker.conf")]
