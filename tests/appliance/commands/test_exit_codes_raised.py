"""Every command really ends with every exit code of its row: against a running box, a played one, or files."""

import ast
import importlib
import inspect
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import trio

from appliance.__main__ import COMMANDS, main
from appliance.commands.exit_codes import COMMON, OWN
from provisioning.box import DeviceActions
from provisioning.device import serve_device
from provisioning.errors import ProvisioningError
from provisioning.port import StreamLine, serve_socket
from provisioning.testing import folder_box, signed_bundle
from storage_driver.files.disk import RealDisk
from storage_driver.recovery.losses import Loss, Losses
from tests.appliance.group.certificates import certificates, needs_openssl
from tests.import_path import import_path
from tests.interop.box import Box
from tests.ports import free_port

pytestmark = pytest.mark.slow
FAULTS = (ProvisioningError("E301", "no space for the support file"), ValueError("a fault of the box"))
SERVERS = {"serve": "--data data --namesrv-port 0 --broker-port 0", "device": "--listen 0 --root played"}
NOT_HERE = {  # why, or where it is run
    ("safe", 0): "tests/systemd/test_machine.py, under systemd",
    ("request", 0): "tests/appliance/commands/messaging/test_request.py, with a consumer that replies",
    ("trace", 0): "tests/appliance/test_admin_commands.py, with clients that trace",
    ("completion", 1): "it only prints",
    ("backup", 1): "2: the folder cannot be used",
    ("restore", 1): "2: the folder cannot be used",
}
AT_A_BOX = {  # of the common codes: words that end with 0, words that end with 1 where no box is
    "conditions": ("list --data DATA", "mute D101 --data NONE"),
    "send": ("T hello --keys K", "T hello"),
    "consume": ("T --from first --max 1 --timeout 20 --group exits", "T --timeout 1"),
    "tail": ("T", "T"),
    "topics": ("list", "list"),
    "groups": ("list", "list"),
    "offsets": ("show exits", "show exits"),
    "clients": ("", ""),
    "messages": ("find T --key K", "find T --key K"),
    "brokers": ("", ""),
    "top": ("--every 0.1 --count 1", "--every 0.1 --count 1"),
    "bench": ("--messages 10", "--messages 10"),
    "request": ("", "Ask anybody? --timeout 0.3"),
    "trace": ("", "0123456789ABCDEF0123456789ABCDEF"),
    "context": ("list", "use none"),
    "completion": ("bash", ""),
    "access": ("list --data DATA", "revoke none --data DATA --yes"),
    "tls": ("make --data SPARE --yes", "show --data DATA --config BAD"),
    "metrics": ("--data DATA", "--data NONE"),
    "page": ("--data DATA", "--data DATA --config BAD"),
    "backup": ("NEW --data DATA", ""),
    "restore": ("NEW --data SPARE", ""),
    "safe": ("", "leave"),
}
NOTHING = {
    "consume": "Empty --timeout 0.3 --group nothing",
    "tail": "Empty",
    "request": "Asked anybody? --timeout 0.3",
    "messages": "find T --key none",
    "trace": "0123456789ABCDEF0123456789ABCDEF",
    "tls": "show --data NONE",
}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home and working folder of its own, no box of this machine in sight."""
    for name in ("RUNTIME_DIRECTORY", "NAMESRV_ADDR", "ROCKETBOX_CONTEXT", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "BAD").write_text("[listen")
    return tmp_path


def code_of(name: str, words: str, **places: object) -> int:
    """Run a command in this process, return its exit code."""
    given = [str(places.get(word, word)) for word in words.split()]
    try:
        return main([name, *given])
    except SystemExit as end:
        return int(end.code or 0)


@pytest.mark.parametrize("name", COMMANDS)
def test_help_is_0_and_a_wrong_command_line_2(name: str) -> None:
    assert code_of(name, "--help") == 0
    assert code_of(name, "--no-such-option") == 2
    assert 2 in OWN.get(name, COMMON)


def test_the_common_commands_end_with_0_at_a_box_with_1_without_one_with_3_where_nothing_is(
    box: Box, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert AT_A_BOX.keys() == COMMANDS.keys() - OWN.keys()
    spare, nowhere = home / "spare", f"127.0.0.1:{free_port()}"
    spare.mkdir()
    places = {"DATA": box.data, "SPARE": spare, "NONE": home / "none", "NEW": home / "new"}
    found: dict[tuple[str, int], int] = {}
    for name, (good, bad) in AT_A_BOX.items():
        for code, words in ((0, good), (1, bad)):
            if words or name in ("clients", "brokers"):
                monkeypatch.setenv(
                    "NAMESRV_ADDR", nowhere if code and "messaging" in COMMANDS[name].module else box.namesrv
                )
                found[name, code] = code_of(name, words, **places)
    monkeypatch.setenv("NAMESRV_ADDR", box.namesrv)
    assert code_of("topics", "create Empty") == 0
    for name, words in NOTHING.items():
        found[name, 3] = code_of(name, words, **places)
    assert {case: code for case, code in found.items() if case[1] != code} == {}
    assert {(name, code) for name in AT_A_BOX for code in (0, 1)} - found.keys() == NOT_HERE.keys()
    assert code_of("backup", "TO --data NONE", **places) == code_of("restore", "FROM --data SPARE", **places) == 2
    assert code_of("selftest", "--data DATA", **places) == 0  # has a row of its own and wants the same box


@pytest.mark.parametrize(("state", "code"), [("ok", 0), ("degraded", 1), ("starting", 1), ("failing", 2), ("", 2)])
def test_status_ends_with_the_state(state: str, code: int, home: Path) -> None:
    if state:
        (home / "data/run").mkdir(parents=True)
        health = {"state": state, "version": "1", "reasons": [], "written_ms": 1 << 50}
        (home / "data/run/health.json").write_text(json.dumps(health))
    assert code_of("status", "--data data") == code
    assert code in OWN["status"]


@pytest.mark.parametrize(("facts", "code"), [({}, 0), ({"swap_bytes": 1 << 30}, 1), ({"watchdog": None}, 2)])
def test_doctor_ends_with_the_worst_finding(facts: dict[str, Any], code: int, home: Path) -> None:
    (home / "facts.json").write_text(json.dumps(facts))
    assert code_of("doctor", "--facts facts.json") == code
    assert code in OWN["doctor"]


def test_the_commands_that_read_files_end_with_every_code_of_their_rows(box: Box, home: Path) -> None:
    losses = Losses(RealDisk(), home / "lossy/store")
    (home / "lossy/store/rocketbox").mkdir(parents=True)
    losses.note(Loss(1, 1, [(400, 900)], ["cut"], {}, 5, [("T", 0, 5)]))
    whole = Box(home / "whole", config="[store]\nsegment_mib = 8\n", uplink=f"127.0.0.1:{free_port()}")
    whole.start()
    codes = [code_of("uplink", words) for words in ("test --data whole", "pause --data whole", "pause --data none")]
    assert {*codes, 2} == {10, 0, 1, 2} == OWN["uplink"].keys()
    assert code_of("send", f"T hello --namesrv {whole.namesrv}") == 0
    assert whole.stop() == 0
    shutil.copytree(whole.data / "store", home / "broken/store")
    segment = next((home / "broken/store/commitlog").iterdir())
    segment.write_bytes(b"\xff" * 200 + segment.read_bytes()[200:])
    (home / "bad.rbx").write_text("no bundle")
    folder_box(home / "box")
    raised = [
        ("selftest", "--config BAD --data none", 7),
        ("config", "template", 0), ("config", "check BAD", 78),
        ("namesrv", "-p", 0), ("namesrv", "-c none", 255), ("namesrv", "-c DATA", 78),
        ("fsck", "whole", 0), ("fsck", "broken", 1), ("fsck", "none", 2),
        ("loss", "--data whole", 0), ("loss", "--data lossy", 1), ("loss", "--data BAD", 2),
        ("support", "--data whole --to s.tar.gz", 0), ("support", f"--data whole --to {'x' * 300}", 1),
        ("support", "--over-serial --port /dev/ttyNOPE", 3),
        ("support", "--over-serial --port /dev/ttyNOPE --secret none", 4),
        ("factory", "make RBX-1 --model x1 --root made --seconds 0.1", 0),
        ("factory", "make RBX-2 --model x1 --root made --seconds 0.1", 6),
        ("factory", "make RBX-1 --model x1 --root BAD", 7),
        ("device", "--port /dev/ttyNOPE --root played", 3), ("device", "--pty --root BAD", 2),
        ("update", f"{signed_bundle(home, folder_box(home / 'good'))} --root good", 0),
        ("update", "bad.rbx --root box", 5),
        ("flash", "disk bad.rbx --to out", 5), ("flash", "disk none --to out", 5),
    ]  # fmt: skip
    assert [case for case in raised if code_of(case[0], case[1], DATA=box.data) != case[2]] == []
    assert [case for case in raised if case[2] not in OWN[case[0]]] == []


@pytest.fixture
def played(home: Path) -> Iterator[str]:
    """The port of a played box whose self-test and support fail."""
    made = folder_box(home / "played")
    faults = iter(FAULTS)

    def support(path: Path) -> Path:
        raise next(faults)

    failed = {"ok": False, "failed": "send"}
    made.hands = DeviceActions(activate=made.hands.activate, selftest=lambda: failed, support=support)
    ports: list[str] = []
    ready = threading.Event()

    async def serve() -> None:
        listener, name = await serve_socket(port=0)
        ports.extend((name, trio.lowlevel.current_trio_token()))  # type: ignore[arg-type]
        ready.set()
        with trio.CancelScope() as scope:
            ports.append(scope)  # type: ignore[arg-type]
            while True:
                await serve_device(StreamLine(await listener.accept(), name), made)

    thread = threading.Thread(target=trio.run, args=(serve,))
    thread.start()
    assert ready.wait(20)
    yield ports[0]
    ports[1].run_sync_soon(ports[2].cancel)  # type: ignore[attr-defined]
    thread.join()


@pytest.mark.parametrize("name", ["provision", "fleet", "flash"])
def test_a_bench_command_ends_with_each_code_of_its_row(name: str, home: Path, played: str) -> None:
    bundle = signed_bundle(home)
    key = (home / "current.pem").read_bytes()
    (home / "played/usr/lib/rocketbox/keys/current.pem").write_bytes(key)
    (home / "boxes.csv").write_text("name\none\n")
    (home / "bad.csv").write_text("name\nX\n")
    at = f"--port {played}"
    verb = {"provision": "", "fleet": "apply boxes.csv", "flash": f"app {bundle}"}[name]
    wrong = {"provision": f"--set a.b=1 {at}", "fleet": f"apply bad.csv {at}", "flash": ""}[name]
    new = f"--bundle {bundle}" if name == "provision" else verb
    raised = [
        (f"{verb} {at} --dry-run", 0), (f"{verb} {at} --json", 2), (f"{verb} --port /dev/ttyNOPE --yes", 3),
        (f"{verb} {at} --secret none", 4), (f"{verb if name == 'fleet' else ''} {at} --bundle none.rbx", 5),
        (wrong, 6), (f"{new} {at} --yes", 7),
    ]  # fmt: skip
    if name == "flash":
        raised[4:6] = [("disk none --to out", 5)]
    assert [(words, code) for words, code in raised if code_of(name, words) != code] == []
    assert {code for _, code in raised} | {130} == OWN[name].keys()


def test_support_over_serial_ends_with_the_error_of_the_box(home: Path, played: str) -> None:
    assert code_of("support", f"--over-serial --port {played}") == 4  # unclaimed
    assert code_of("provision", f"--port {played} --yes") == 7  # claimed, and its self-test fails
    raised = [code_of("support", f"--over-serial --port {played}") for _ in FAULTS]
    assert raised == [5, 7]
    assert {0, 1, 2, 3, 4, *raised} == OWN["support"].keys()


@pytest.mark.parametrize(
    "words",
    ["provision", "fleet apply boxes.csv", "flash app {bundle}", "support --over-serial", "tail T", "serve", "device"],
)
def test_an_interrupted_command_ends_with_130_and_a_server_with_0(words: str, home: Path) -> None:
    (home / "boxes.csv").write_text("name\none\n")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        where = f"--port socket://127.0.0.1:{port}"
        if words == "tail T":
            where = f"--namesrv 127.0.0.1:{port}"
        where = SERVERS.get(words, where)
        given = f"{words.format(bundle=signed_bundle(home))} {where}".split()
        child = started(given, home)
        if words in SERVERS:
            assert child.stdout is not None
            assert child.stdout.readline().startswith("ready")
        else:
            silent.settimeout(60)
            accepted, _ = silent.accept()  # the command waits for an answer
            accepted.recv(1)
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=60)
    assert child.returncode == (0 if words in SERVERS else 130), err
    assert "Traceback" not in out + err


def started(words: list[str], home: Path, **environ: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "appliance", *words], cwd=home, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, "PYTHONPATH": import_path(), **environ},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # ignored by jobs in the background
    )  # fmt: skip


@needs_openssl
def test_a_witness_ends_with_each_code_of_its_row(box: Box, home: Path) -> None:
    (home / "FILE").write_text("no folder")
    certs = str(certificates() / "w")

    def words(port: int, *, data: str = "votes", name: str = "w") -> list[str]:
        members = ["a=127.0.0.1:1", "b=127.0.0.1:2", f"w=127.0.0.1:{port} witness"]
        listed = [word for member in members for word in ("--member", member)]
        return ["witness", "--group", "press", "--as", name, "--data", data, "--certs", certs, *listed]

    cases = {2: words(box.broker_port), 74: words(free_port(), data="FILE/votes"), 78: words(free_port(), name="x")}
    for code, given in cases.items():
        child = started(given, home)
        _, err = child.communicate(timeout=60)
        assert (child.returncode, "Traceback" in err) == (code, False), err
    child = started(words(free_port()), home)
    assert child.stdout is not None
    assert child.stdout.readline().startswith("ready")
    child.send_signal(signal.SIGINT)
    child.communicate(timeout=60)
    assert {*cases, child.returncode} == OWN["witness"].keys()


def test_serve_ends_with_each_code_of_its_row(box: Box, home: Path) -> None:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    row = {"boot": boot, "result": "signal", "code": "killed", "status": "KILL"}
    up = float(Path("/proc/uptime").read_text().split()[0])
    (home / "tired/watchdog").mkdir(parents=True)
    (home / "tired/watchdog/exits.jsonl").write_text((json.dumps(row | {"uptime_s": up - 1}) + "\n") * 10)
    free = "--namesrv-port 0 --broker-port 0"
    cases = {
        2: f"--data new --namesrv-port 0 --broker-port {box.broker_port}",
        74: f"--data BAD {free}",
        75: f"--data {box.data} {free}",
        78: "--config BAD --data new",
        79: f"--data tired {free}",
    }
    assert cases.keys() | {0} == OWN["serve"].keys()
    for code, words in cases.items():
        child = started(["serve", *words.split()], home, NOTIFY_SOCKET=str(home / "notify") if code == 79 else "")
        _, err = child.communicate(timeout=60)
        assert child.returncode == code, (code, err)
        assert "Traceback" not in err


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_returns_no_code_that_its_row_lacks(name: str) -> None:
    assert returned(importlib.import_module(COMMANDS[name].module)) <= OWN.get(name, COMMON).keys()


def returned(module: ModuleType) -> set[int]:
    """Return the numbers that the functions of a module return: constants, and names of constants."""
    found: set[int] = set()
    for function in ast.walk(ast.parse(inspect.getsource(module))):
        if (
            isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
            and ast.unparse(function.returns or ast.Pass()) == "int"
        ):
            ends = (node.value for node in ast.walk(function) if isinstance(node, ast.Return))
            found |= {code for end in ends for code in codes_in(end, module)}
    return found


def _is_int(annotation: ast.expr | None) -> bool:
    return isinstance(annotation, ast.Name) and annotation.id == "int"


def codes_in(value: ast.expr | None, module: ModuleType) -> Iterator[int]:
    """Yield what an expression may be, where it can be told without running it."""
    if isinstance(value, ast.IfExp):
        yield from codes_in(value.body, module)
        yield from codes_in(value.orelse, module)
    elif isinstance(value, ast.Constant) and type(value.value) is int:
        yield value.value
    elif isinstance(value, ast.Name | ast.Attribute):
        what: object = module
        for part in ast.unparse(value).split("."):
            what = getattr(what, part, None)
        if type(what) is int:
            yield what
