"""The box's own socket for commands on the same machine: <runtime>/admin.sock, mode 0600, one question per connection.

Question: a line of JSON {"do": NAME, "with": {...}}, at most one folder as SCM_RIGHTS.
Answer: a line {"answer": ...} or {"refused": TEXT}. Whoever may open the file may ask anything: root, and the
user the box runs as.
"""

import array
import json
import logging
import os
import socket
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import trio

from appliance.errors import ApplianceError
from netstack.errors import told_of
from storage_driver.named_tuple import NamedTuple

log = logging.getLogger("appliance")
LINE_BYTES, ASK_S, CONNECTIONS = 1 << 16, 10.0, 8
NAME = "admin.sock"
LISTEN_BACKLOG = 8

OFF = {  # why a running box has none of these actions
    "uplink": "uplink is disabled; set uplink.gateway",
    "group": 'the box is in no group; set replication.role = "member" (docs/replication.md)',
    "": "the running box does not have it; compare the versions",
}


class AdminRefused(ApplianceError):
    """The box understood the question and says no; the text is its reason."""


class AdminSilent(ApplianceError):
    """Nobody answers at the socket."""


class AdminRequest(NamedTuple):
    """What a command wants; `folder` is good while the question is answered."""

    values: Mapping[str, Any]
    folder: Path | None


Action = Callable[[AdminRequest], Awaitable[object]]


@contextmanager
def short_path(path: Path) -> Iterator[str]:
    """Yield a name for path that fits into the 108 bytes of sockaddr_un however deep the folder is."""
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


async def serve_admin(
    path: Path, actions: Mapping[str, Action], *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    """Answer until cancelled; a socket that cannot be opened is logged, the box serves without it."""
    try:
        opened = open_socket(path, mode=0o600, backlog=LISTEN_BACKLOG)
    except OSError as exc:
        log.error("event=no_admin_socket path=%s reason=%r next_step=check_the_folder", path, str(exc))
        task_status.started()
        return
    limit = trio.CapacityLimiter(CONNECTIONS)
    with trio.socket.from_stdlib_socket(opened) as listener:
        async with trio.open_nursery() as nursery:
            task_status.started()
            while True:
                stream, _ = await listener.accept()
                nursery.start_soon(_converse, stream, actions, limit)


def open_socket(path: Path, *, mode: int, backlog: int) -> socket.socket:
    """Return a listening unix socket in place of what was left there; `mode` says who may ask. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)  # the store's lock says that no other box uses this folder
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with short_path(path) as name:
            listener.bind(name)
        path.chmod(mode)  # before listen: nobody was let in until here
        listener.listen(backlog)
    except OSError:
        listener.close()
        raise
    return listener


async def _converse(stream: trio.socket.SocketType, actions: Mapping[str, Action], limit: trio.CapacityLimiter) -> None:
    folders: list[int] = []
    with stream:
        try:
            async with limit:
                with trio.fail_after(ASK_S):
                    line = await _read_line(stream, folders)
                reply = await _answer(line, actions, folders)
                await trio.SocketStream(stream).send_all(json.dumps(reply).encode() + b"\n")
        except (OSError, trio.BrokenResourceError, trio.TooSlowError) as exc:
            log.info("event=admin_connection_ended reason=%r", str(exc))
        finally:
            for folder in folders:
                os.close(folder)


async def _read_line(stream: trio.socket.SocketType, folders: list[int]) -> bytes:
    """Return what was asked; descriptors that came along are appended to folders, the caller closes them."""
    line = b""
    while not line.endswith(b"\n") and len(line) < LINE_BYTES:
        part, ancillary, _, _ = await stream.recvmsg(LINE_BYTES, socket.CMSG_SPACE(4))
        for level, kind, payload in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                folders += array.array("i", payload[: len(payload) - len(payload) % 4])
        if not part:
            break
        line += part
    return line


def _why_absent(name: str, actions: Mapping[str, Action]) -> str:
    part = name.partition(".")[0]
    known = any(each.partition(".")[0] == part for each in actions)
    return OFF[""] if known else OFF.get(part, OFF[""])


async def _answer(line: bytes, actions: Mapping[str, Action], folders: list[int]) -> dict[str, object]:
    try:
        asked = json.loads(line)
        name, values = asked["do"], asked.get("with", {})
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {"refused": "expected a request of one JSON line"}
    action = actions.get(name) if isinstance(name, str) else None
    if action is None or not isinstance(values, dict):
        return {"refused": f"{name!r} is not available: {_why_absent(str(name), actions)}"}
    folder = Path(f"/proc/self/fd/{folders[0]}") if folders else None
    try:
        return {"answer": await action(AdminRequest(values, folder))}
    except AdminRefused as exc:
        return {"refused": str(exc)}
    except Exception as exc:  # of one question: the box serves on
        reason, traced = told_of(exc)
        log.error("event=admin_failed action=%s reason=%r next_step=report_this", name, reason, exc_info=traced)
        return {"refused": f"{name} failed: {reason}; see the log of the box"}


def ask(
    path: Path,
    do: str,
    values: Mapping[str, object] | None = None,
    *,
    folder: Path | None = None,
    timeout_s: float | None = None,
) -> Any:
    """Return the running box's answer. Blocks. Raises AdminRefused, AdminSilent."""
    question = json.dumps({"do": do, "with": dict(values or {})}).encode() + b"\n"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as stream:
        stream.settimeout(timeout_s)
        try:
            with short_path(path) as name:
                stream.connect(name)
            _send(stream, question, folder)
            with stream.makefile("rb") as answers:
                line = answers.readline()
        except PermissionError as exc:
            raise AdminSilent(f"{path}: {exc.strerror}; run this as root or as the user the box runs as") from exc
        except OSError as exc:
            text = f"{path}: {exc.strerror}; is the box running? (systemctl status rocketbox; --data DIR names another)"
            raise AdminSilent(text) from exc
    if not line:
        raise AdminSilent(f"{path}: the box closed the connection; see journalctl -u rocketbox")
    reply = json.loads(line)
    if "refused" in reply:
        raise AdminRefused(reply["refused"])
    return reply["answer"]


def _send(stream: socket.socket, question: bytes, folder: Path | None) -> None:
    if folder is None:
        stream.sendall(question)
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        socket.send_fds(stream, [question], [descriptor])
    finally:
        os.close(descriptor)
