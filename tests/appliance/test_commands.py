"""`rocketbox serve` and `rocketbox config` as processes and as functions: what they print and how they exit."""

import argparse
import errno
import os
import re
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from appliance.__main__ import COMMANDS, main
from appliance.commands import settings
from appliance.commands.box import config as box_config
from appliance.commands.box.config import with_value
from appliance.commands.box.serve import announce
from appliance.serve import Ready
from netstack.serving.channel import open_channel
from storage_driver.testing import V1
from tests.appliance.box import messages_of, pull, send

ROOT = Path(__file__).parent.parent.parent
READY = re.compile(r"ready namesrv=(\S+):(\d+) broker=(\S+):(\d+) data=(\S+) recovered=(\w+) in (\d+) ms\n")


def start(*arguments: str, **environ: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "appliance", *arguments],
        cwd=ROOT,
        env={**os.environ, **environ},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def serve(data: Path, *more: str) -> subprocess.Popen[str]:
    return start("serve", "--data", str(data), "--namesrv-port", "0", "--broker-port", "0", *more)


def first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_serve_says_one_line_and_ends_with_0_soon_after_a_signal(tmp_path: Path, number: signal.Signals) -> None:
    process = serve(tmp_path)
    found = READY.fullmatch(first_line(process))
    assert found
    assert (found[1], found[3], found[5], found[6]) == ("127.0.0.1", "127.0.0.1", str(tmp_path), "clean")
    process.send_signal(number)
    out, _ = process.communicate(timeout=60)
    assert (process.returncode, out) == (0, "")


@pytest.mark.slow
def test_more_connections_than_the_user_may_have_open_files_end_nothing(tmp_path: Path) -> None:
    few = 60
    command = [
        sys.executable,
        "-m",
        "appliance",
        "serve",
        "--data",
        str(tmp_path),
        "--namesrv-port=0",
        "--broker-port=0",
    ]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen(["prlimit", f"--nofile={few // 2}:{few}", *command], cwd=ROOT, **pipes)  # type: ignore[call-overload]
    found = READY.fullmatch(first_line(process))
    assert found
    with ExitStack() as crowd:
        ends = [crowd.enter_context(socket.create_connection(("127.0.0.1", int(found[4])))) for _ in range(few)]
        ends[-1].settimeout(30)
        assert ends[-1].recv(1) == b""  # closed at once, and the store has files left
        assert few // 2 < len(os.listdir(f"/proc/{process.pid}/fd")) < few  # a shell's lower limit was raised
    process.terminate()
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    assert f"of {few} open files are in use" in errors


@pytest.mark.slow
async def test_a_kill_right_after_an_answer_loses_neither_the_message_nor_its_new_topic(tmp_path: Path) -> None:
    for number in range(3):
        process = serve(tmp_path)
        found = READY.fullmatch(first_line(process))
        assert found
        async with open_channel("127.0.0.1", int(found[4])) as channel:
            assert (await channel.ask(send(f"T{number}", b"kept", queue_id=3))).code == 0
            process.kill()
        process.communicate(timeout=60)
    process = serve(tmp_path)
    found = READY.fullmatch(first_line(process))
    assert found
    async with open_channel("127.0.0.1", int(found[4])) as channel:
        for number in range(3):
            kept = messages_of(await channel.ask(pull(f"T{number}", queue_id=3)))
            assert [message.body for message in kept] == [b"kept"]
    process.terminate()
    process.communicate(timeout=60)


@pytest.mark.slow
def test_a_taken_port_is_one_sentence_and_2(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        process = start("serve", "--data", str(tmp_path), "--namesrv-port", "0", "--broker-port", str(port))
        out, error = process.communicate(timeout=60)
    assert (process.returncode, out) == (2, "")
    assert error.splitlines()[-1].startswith(f"rocketbox: port {port} on 127.0.0.1 is taken by another process")


@pytest.mark.slow
def test_a_data_folder_in_use_is_75(tmp_path: Path) -> None:
    first = serve(tmp_path)
    assert READY.fullmatch(first_line(first))
    second = serve(tmp_path)
    _, error = second.communicate(timeout=60)
    assert second.returncode == 75
    assert "in use by another broker" in error
    first.terminate()
    first.communicate(timeout=60)


@pytest.mark.slow
def test_an_apache_store_is_75_as_data_folder_and_told_when_it_is_taken_over(tmp_path: Path) -> None:
    log = tmp_path / "store" / "commitlog"
    log.mkdir(parents=True)
    (log / f"{0:020d}").write_bytes(V1.ljust(1 << 20, b"\0"))
    refused = serve(tmp_path / "store")
    _, error = refused.communicate(timeout=60)
    assert refused.returncode == 75
    assert "is the store of an Apache broker" in error
    assert os.listdir(tmp_path / "store") == ["commitlog"]
    taken = serve(tmp_path)
    assert READY.fullmatch(first_line(taken))
    taken.terminate()
    _, error = taken.communicate(timeout=60)
    assert "event=store_taken_over" in error


@pytest.mark.slow
def test_a_wrong_configuration_is_78_and_nothing_is_touched(tmp_path: Path) -> None:
    file = tmp_path / "box.toml"
    file.write_text("[store]\nsegment_mb = 5\n[limits]\nidle_s = 0\n")
    process = serve(tmp_path / "data", "--config", str(file))
    _, error = process.communicate(timeout=60)
    assert process.returncode == 78
    assert 'line 2: store.segment_mb: unknown key, did you mean "store.segment_mib"?' in error
    assert "line 4: limits.idle_s = 0: must be 1 to 86400" in error
    assert not (tmp_path / "data" / "store").exists()


@pytest.mark.slow
def test_a_data_folder_that_cannot_be_is_74_with_the_next_step(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    process = serve(tmp_path / "file")
    out, errors = process.communicate(timeout=60)
    assert (process.returncode, out, errors.count("\n")) == (74, "", 1)
    assert "Not a directory" in errors
    assert "--data DIR" in errors


def test_a_wrong_option_shows_the_usage_of_its_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["serve", "--prot", "1"])
    errors = capsys.readouterr().err
    assert "rocketbox serve: error: unrecognized arguments: --prot 1" in errors
    assert "[--namesrv-port N]" in errors


@pytest.mark.slow
def test_sockets_handed_over_by_systemd_are_served(tmp_path: Path) -> None:
    listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
    ports = [listener.getsockname()[1] for listener in listeners]
    script = (
        "import os, sys\n"
        "os.environ['LISTEN_PID'] = str(os.getpid())\n"
        "os.execv(sys.executable, [sys.executable, '-m', 'appliance', 'serve', *sys.argv[1:]])\n"
    )

    def arrange() -> None:
        for at, listener in enumerate(listeners):
            os.dup2(listener.fileno(), 100 + at)
        for at in range(2):
            os.dup2(100 + at, 3 + at)

    process = subprocess.Popen(
        [
            sys.executable,
            "-c",
            script,
            "--data",
            str(tmp_path),
            "--namesrv-port",
            str(ports[0]),
            "--broker-port",
            str(ports[1]),
        ],
        cwd=ROOT,
        env={**os.environ, "LISTEN_FDS": "2", "LISTEN_FDNAMES": "namesrv:broker"},
        stdout=subprocess.PIPE,
        text=True,
        close_fds=False,
        preexec_fn=arrange,
    )
    found = READY.fullmatch(first_line(process))
    assert found
    assert (int(found[2]), int(found[4])) == (ports[0], ports[1])
    with socket.create_connection(("127.0.0.1", ports[1]), timeout=60):
        pass
    process.terminate()
    process.communicate(timeout=60)
    assert process.returncode == 0


@pytest.mark.slow
def test_importing_the_service_brings_nothing_of_spark() -> None:
    never = "('numpy', 'pyarrow', 'pyspark')"
    script = f"import appliance.commands.box.serve, sys; print([m for m in {never} if m in sys.modules])"
    found = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n"


def test_every_command_has_a_module_of_its_own() -> None:
    for command in COMMANDS.values():
        assert (ROOT / (command.module.replace(".", "/") + ".py")).exists()


def test_config_check_names_everything_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "box.toml"
    file.write_text("[listen]\nvip = 1\n")
    assert main(["config", "check", str(file)]) == 78
    assert "line 2: listen.vip = 1: must be true or false" in capsys.readouterr().err
    file.write_text("[listen]\nvip = true\n")
    assert main(["config", "check", str(file)]) == 0
    assert capsys.readouterr().out == f"{file}: no problems\n"


def test_config_check_warns_of_networks_that_are_everybodys(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "box.toml"
    file.write_text('[access]\nallow = ["10.0.0.0/8", "0.0.0.0/0"]\n')
    assert main(["config", "check", str(file)]) == 0
    assert "warning: access.allow has 0.0.0.0/0: anybody who reaches the port" in capsys.readouterr().out
    file.write_text('[access]\nmode = "keys"\nallow = ["0.0.0.0/0"]\n')
    assert main(["config", "check", str(file)]) == 0
    assert "warning" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("host", "problem"),
    [
        ("999.1.1.1", "no such address: "),
        ("a..b", "no such address: "),
        ("192.0.2.1", "this machine has no such address (Cannot assign requested address)"),
    ],
)
def test_config_check_refuses_a_host_that_serve_refuses(
    host: str, problem: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "box.toml"
    file.write_text(f'[listen]\nhost = "{host}"\n')
    assert main(["config", "check", str(file)]) == 78
    assert f"line 2: listen.host = '{host}': {problem}" in capsys.readouterr().err
    assert main(["config", "set", f"listen.host={host}", "--config", str(tmp_path / "new.toml")]) == 78
    assert main(["serve", "--config", str(file), "--data", str(tmp_path / "data")]) == 78
    assert problem in capsys.readouterr().err
    file.write_text('[listen]\nhost = "::"\n')
    assert main(["config", "check", str(file)]) == 0


def test_the_box_refuses_a_port_that_is_not_the_one_of_its_unit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "rocketbox.toml"
    for module in (settings, box_config):
        monkeypatch.setattr(module, "INSTALLED", file)
    monkeypatch.setattr(box_config, "unit_ports", lambda: {"broker": 10911})
    file.write_text("")
    assert main(["config", "set", "listen.broker_port=20911", "--data", str(tmp_path)]) == 78
    assert "opened by rocketbox-broker.socket: change ListenStream= there, or `listen.broker_port` to 10911" in (
        capsys.readouterr().err
    )
    assert file.read_text() == ""
    file.write_text("[listen]\nbroker_port = 20911\n")
    assert main(["config", "check", "--data", str(tmp_path)]) == 78
    (tmp_path / "other.toml").write_text(file.read_text())
    assert main(["config", "check", str(tmp_path / "other.toml")]) == 0, "it may be meant for another machine"


def test_config_check_refuses_a_certificate_that_serve_refuses(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, cert = tmp_path / "box.toml", tmp_path / "box.crt"
    file.write_text(f'[tls]\ncert = "{cert}"\nprivate_key = "{cert}"\n')
    assert main(["config", "check", str(file)]) == 0, "it may be meant for another machine"
    cert.write_text("garbage")
    assert main(["config", "check", str(file)]) == 78
    assert f"{cert}: holds no certificate" in capsys.readouterr().err
    assert main(["serve", "--config", str(file), "--data", str(tmp_path / "data")]) == 78


def test_config_check_refuses_the_own_certificate_that_serve_refuses(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, own = tmp_path / "box.toml", tmp_path / "data" / "tls" / "box.crt"
    file.write_text('[tls]\nmode = "enforcing"\n')
    check = ["config", "check", str(file), "--data", str(tmp_path / "data")]
    assert main(check) == 0, "it is made at the first start"
    assert not own.exists()
    own.parent.mkdir(parents=True)
    own.write_text("garbage")
    assert main(check) == 78
    assert f"{own}: holds no certificate in PEM form; `rocketbox tls make`" in capsys.readouterr().err


def test_config_show_prints_values_that_the_file_could_hold_and_their_origin(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "box.toml"
    file.write_text('[uplink]\ngateway = "gate:1"\nwindows = [{ days = "mon", hours = "07:00-08:00" }]\n')
    assert main(["config", "show", "--origin", "--config", str(file), "--data", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(re.fullmatch(r'uplink\.gateway = "gate:1" +# file', line) for line in lines)
    assert any(re.fullmatch(r"listen\.broker_port = 10911 +# default", line) for line in lines)
    assert any('uplink.windows = [{ days = "mon", hours = "07:00-08:00", kbit_s = 0 }]' in line for line in lines)
    again = tmp_path / "again.toml"
    again.write_text("\n".join(line.partition("#")[0] for line in lines))
    assert main(["config", "check", str(again)]) == 0


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["grpc.port", "1"], "write TABLE.KEY=VALUE in one word, as grpc.port=1"),
        (["grpc.port", "=", "1"], "write TABLE.KEY=VALUE in one word, as grpc.port=1"),
        (["grpc.port"], "write TABLE.KEY=VALUE in one word\n"),
        (["grpc.port=8081"], "there is no folder FOLDER; name the configuration of the box with --config FILE"),
    ],
)
def test_config_set_tells_how_it_is_written_and_where(
    words: list[str], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["config", "set", *words, "--config", str(tmp_path / "none/box.toml")]) == 78
    assert told.replace("FOLDER", str(tmp_path / "none")) in capsys.readouterr().err


def test_config_set_without_permission_names_who_may(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused(path: Path, target: Path) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    monkeypatch.setattr(Path, "replace", refused)
    assert main(["config", "set", "listen.vip=true", "--config", str(tmp_path / "box.toml")]) == 78
    assert "cannot be written: Permission denied; run this as root" in capsys.readouterr().err


def test_config_set_changes_one_value_and_keeps_the_rest(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "box.toml"
    file.write_text("# mine\n[store]\nsegment_mib = 64  # small\n\n[box]\nname = 'a'\n")
    base = ["--config", str(file)]
    assert main(["config", "set", "store.segment_mib=128", *base]) == 0
    assert main(["config", "set", "listen.vip=true", *base]) == 0
    assert main(["config", "set", "box.site=hall 3", *base]) == 0
    text = file.read_text()
    assert (
        text == "# mine\n[store]\nsegment_mib = 128\n\n[box]\nname = 'a'\nsite = \"hall 3\"\n\n[listen]\nvip = true\n"
    )
    assert main(["config", "set", "store.segment_mib=2000", *base]) == 78
    assert main(["config", "set", "store.segment=1", *base]) == 78
    assert file.read_text() == text
    capsys.readouterr()


def test_a_value_goes_into_its_table_wherever_that_is() -> None:
    assert with_value("", "a.b", "1") == "[a]\nb = 1\n"
    assert with_value("[a]\nx = 1\n[c]\n", "a.b", "1") == "[a]\nx = 1\nb = 1\n[c]\n"
    assert with_value("a.b = 0\n[c]\nb = 5\n", "a.b", "1") == "a.b = 1\n[c]\nb = 5\n"


def test_keys_are_found_under_apaches_word_too(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["acl", "list", "--data", str(tmp_path), "--json"]) == main(["access", "list", "--data", str(tmp_path)])
    with pytest.raises(SystemExit):
        main(["acl", "--help"])
    assert "rocketbox access add ops-team --admin" in capsys.readouterr().out


def test_ctrl_c_ends_a_command_without_a_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(arguments: argparse.Namespace) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("appliance.commands.box.doctor.run", interrupted)
    assert main(["doctor"]) == 130


@pytest.mark.slow
@pytest.mark.parametrize(
    "command", [["config", "show", "--origin"], ["completion", "bash"], ["--help"], ["send", "--help"]]
)
def test_output_that_nobody_reads_to_its_end_is_no_error(command: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "appliance", *command], cwd=ROOT, stdout=writer, stderr=subprocess.PIPE, timeout=60
        )
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (0, b"")


def test_after_a_change_of_leader_the_line_says_how_long_that_took(capsys: pytest.CaptureFixture[str]) -> None:
    ready = Ready("127.0.0.1:1", "127.0.0.1:2", Path("d"), "clean", took_ms=-1)
    announce(ready, again=False)
    announce(ready, again=True)
    first, second = (line.rpartition(" in ")[2] for line in capsys.readouterr().out.splitlines())
    assert int(first.removesuffix(" ms")) > 0
    assert second == "-1 ms"
