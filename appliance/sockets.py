"""The listening sockets of the two ports: handed over by systemd, or opened here.

Sockets that belong to systemd survive a restart, so that no client is refused meanwhile.
"""

import errno
import os
import re
import socket
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence

import trio

from appliance.errors import ConfigError, ConfigProblem, PortTaken
from netstack.serving.addresses import plain_address

FIRST_DESCRIPTOR = 3  # SD_LISTEN_FDS_START
BACKLOG = 1024
NO_ADDRESS = (OSError, UnicodeError)  # the second: no name at all, as "a..b"
NOT_HERE = "this machine has no such address ({})"
UNITS = {"broker": "rocketbox-broker.socket", "namesrv": "rocketbox-namesrv.socket"}


def take_over(environ: MutableMapping[str, str], pid: int) -> dict[str, list[trio.SocketListener]]:
    """Return the listeners systemd handed over, by name, and forget the variables. Source: sd_listen_fds(3)."""
    count, owner = environ.pop("LISTEN_FDS", ""), environ.pop("LISTEN_PID", "")
    names = environ.pop("LISTEN_FDNAMES", "").split(":")
    if not count.isdecimal() or owner != str(pid):
        return {}
    found: dict[str, list[trio.SocketListener]] = {}
    for descriptor, name in zip(range(FIRST_DESCRIPTOR, FIRST_DESCRIPTOR + int(count)), names, strict=False):
        os.set_inheritable(descriptor, False)
        made = socket.socket(fileno=descriptor)
        found.setdefault(name, []).append(trio.SocketListener(trio.socket.from_stdlib_socket(made)))
    return found


def check_ports(taken: dict[str, list[trio.SocketListener]], ports: dict[str, tuple[str, int]]) -> None:
    """Raise ConfigError when systemd opened another port than `ports` (name -> key, port) says."""
    check_opened({name: port_of(listeners) for name, listeners in taken.items()}, ports)


def check_opened(found: Mapping[str, int], ports: Mapping[str, tuple[str, int]]) -> None:
    """Raise ConfigError where systemd opens another port, by name, than `ports` says."""
    problems = []
    for name, opened in found.items():
        key, port = ports.get(name, ("", 0))
        if key and port and opened != port:
            text = f"port {opened} is opened by {UNITS[name]}: change ListenStream= there, or `{key}` to {opened}"
            problems.append(ConfigProblem(key, port, text, None))
    if problems:
        raise ConfigError("socket activation", problems)


def unit_ports() -> dict[str, int]:
    """Return the ports that systemd opens for the box of this machine, by name; none without its units. Blocks."""
    import subprocess

    found = {}
    for name, unit in UNITS.items():
        words = ["systemctl", "show", "--value", "--property=Listen", unit]
        try:
            said = subprocess.run(words, capture_output=True, text=True, check=False).stdout
        except OSError:  # no systemd here
            return {}
        if match := re.search(r":(\d+) \(Stream\)", said):
            found[name] = int(match[1])
    return found


async def open_port(host: str, port: int, key: str) -> list[trio.SocketListener]:
    """Return listeners on host and port; `::` takes IPv4 too. Raises PortTaken, ConfigError."""
    try:
        found = await trio.socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except NO_ADDRESS as exc:
        raise ConfigError("listen", [ConfigProblem("listen.host", host, f"no such address: {exc}", None)]) from exc
    listeners: list[trio.SocketListener] = []
    for family, kind, proto, _, address in dict.fromkeys(found):
        try:
            made = _listening(family, kind, proto, address)
            listeners.append(trio.SocketListener(trio.socket.from_stdlib_socket(made)))
        except OSError as exc:
            for listener in listeners:
                listener.socket.close()
            raise _refusal(exc, host, port, key) from exc
    return listeners


def host_problem(host: str, *, here: bool = True) -> str | None:
    """Return why this machine cannot listen at host, None when it can; a name is looked up. Blocks.

    Not `here`: an address that this machine has not yet is none.
    """
    try:
        found = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, kind, proto, _, address in dict.fromkeys(found) if here else ():
            _listening(family, kind, proto, address).close()
    except (socket.gaierror, UnicodeError) as exc:
        return f"no such address: {exc}"
    except OSError as exc:
        return NOT_HERE.format(exc.strerror)
    return None


def _listening(family: int, kind: int, proto: int, address: tuple[object, ...]) -> socket.socket:
    made = socket.socket(family, kind, proto)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, int(address[0] != "::"))
        made.bind(address)
        made.listen(BACKLOG)
    except OSError:
        made.close()
        raise
    return made


def _refusal(exc: OSError, host: str, port: int, key: str) -> PortTaken | ConfigError:
    if exc.errno == errno.EADDRINUSE:
        return PortTaken(key, host, port)
    if exc.errno == errno.EACCES:
        text = f"port {port} needs root: use 1024 or higher"
        return ConfigError("listen", [ConfigProblem(key, port, text, None)])
    return ConfigError("listen", [ConfigProblem("listen.host", host, NOT_HERE.format(exc.strerror), None)])


def port_of(listeners: Sequence[trio.SocketListener]) -> int:
    """Return the port that listeners are open on."""
    return int(listeners[0].socket.getsockname()[1])


async def serve_peer(
    stream: trio.SocketStream, serve: Callable[[trio.SocketStream, str, int], Awaitable[None]]
) -> None:
    """Serve one connection with the other side's address and port, and close it at once, whatever comes."""
    try:
        remote = stream.socket.getpeername()
    except OSError:  # gone already
        await trio.aclose_forcefully(stream)
        return
    try:
        await serve(stream, plain_address(remote[0]), remote[1])
    finally:
        await trio.aclose_forcefully(stream)
