import socket
from pathlib import Path

from watchdog.notify import Notifier


def listener(path: Path) -> socket.socket:
    heard = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    heard.bind(str(path))
    heard.settimeout(1)
    return heard


def test_every_message_is_one_datagram_of_key_value_lines(tmp_path: Path) -> None:
    with listener(tmp_path / "notify") as heard:
        notifier = Notifier(str(tmp_path / "notify"))
        notifier.ready()
        notifier.alive()
        notifier.trigger()
        notifier.stopping()
        notifier.extend(10)
        notifier.status("ok, 214 msg/s, disk 41 %, slot a 1.4.0")
        got = [heard.recv(8192) for _ in range(6)]
    assert got == [
        b"READY=1\n",
        b"WATCHDOG=1\n",
        b"WATCHDOG=trigger\n",
        b"STOPPING=1\n",
        b"EXTEND_TIMEOUT_USEC=10000000\n",
        b"STATUS=ok, 214 msg/s, disk 41 %, slot a 1.4.0\n",
    ]
    assert (notifier.sent, notifier.failed) == (6, 0)


def test_an_at_sign_means_the_abstract_name_space() -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as heard:
        heard.bind("")  # the kernel picks an abstract name
        heard.settimeout(1)
        Notifier("@" + heard.getsockname()[1:].decode()).ready()
        assert heard.recv(100) == b"READY=1\n"


def test_without_a_socket_nothing_is_sent_and_a_dead_one_is_counted(tmp_path: Path) -> None:
    silent, dead = Notifier(None), Notifier(str(tmp_path / "gone"))
    silent.ready()
    dead.ready()
    assert (silent.sent, silent.failed, dead.sent, dead.failed) == (0, 0, 0, 1)


def test_a_full_socket_never_blocks(tmp_path: Path) -> None:
    with listener(tmp_path / "notify"):
        notifier = Notifier(str(tmp_path / "notify"))
        for _ in range(2000):
            notifier.alive()
        assert notifier.failed > 0


def test_a_status_is_one_line_of_at_most_120_bytes_cut_between_characters(tmp_path: Path) -> None:
    with listener(tmp_path / "notify") as heard:
        Notifier(str(tmp_path / "notify")).status("x" * 119 + "é\nmore")
        assert heard.recv(8192) == b"STATUS=" + b"x" * 119 + b"\n"


def test_the_watchdog_counts_only_for_the_process_it_was_meant_for() -> None:
    environ = {"NOTIFY_SOCKET": "/n", "WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "7"}
    assert Notifier.from_environment(environ, pid=7).watchdog_s == 30
    assert Notifier.from_environment(environ, pid=8).watchdog_s == 0
    assert Notifier.from_environment({"WATCHDOG_USEC": "3000000"}, pid=8).watchdog_s == 3
    assert Notifier.from_environment({}).address is None
