"""`rocketbox device`: the box's end of the serial line; with --root, a box that is only a folder."""

import argparse
import errno
import sys
from pathlib import Path

import trio

from appliance.device.device_actions import real_hands
from appliance.errors import PortTaken
from provisioning.box import Box
from provisioning.device import serve_device
from provisioning.errors import ProvisioningError
from provisioning.host import SERIAL
from provisioning.port import StreamLine, open_line, pty_pair, serve_socket
from uplink_spark.bounds import PORT, whole


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command line."""
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--port", metavar="DEVICE", help="serial device")
    where.add_argument("--pty", action="store_true", help="a new pseudo terminal; its name is printed")
    where.add_argument("--listen", type=PORT, metavar="TCP_PORT", help="socket://127.0.0.1:PORT, 0: any free one")
    parser.add_argument("--baud", type=whole(50), default=115200)
    parser.add_argument("--root", type=Path, default=Path("/"), metavar="DIR", help="simulate a box in this folder")
    parser.add_argument(
        "--serial", type=_serial, default="RBX-0000", help="serial number of the simulated box in a new folder"
    )
    parser.add_argument("--model", default="x1", help="model of the simulated box")


def run(arguments: argparse.Namespace) -> int:
    """Serve benches until the line is gone or Ctrl-C; return the exit code."""
    try:
        if arguments.root != Path("/"):
            prepare(arguments.root, arguments.serial, arguments.model)
        box = Box(arguments.root)
        box.hands = real_hands(box)
        trio.run(_serve, arguments, box)
    except ProvisioningError as exc:
        print(f"rocketbox: {exc}", file=sys.stderr)
        return exc.exit_status
    except (OSError, PortTaken) as exc:  # --root is no folder, or the port of --listen is taken
        print(f"rocketbox: {exc}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 0
    return 0


def prepare(root: Path, serial: str, model: str) -> None:
    """Make the few files a box has when it leaves the factory, unless they are there."""
    factory = root / "var/lib/rocketbox-factory"
    factory.mkdir(parents=True, exist_ok=True)
    for name, text in (("serial", serial), ("model", model)):
        if not (factory / name).exists():
            (factory / name).write_text(text + "\n")
    for name in ("opt/slots", "etc/rocketbox", "usr/lib/rocketbox/keys", "var/lib/rocketbox", "run/rocketbox"):
        (root / name).mkdir(parents=True, exist_ok=True)


def _serial(text: str) -> str:
    """Return a serial number that benches take. Raises ArgumentTypeError."""
    if not SERIAL.fullmatch(text):
        rule = "letters, digits, dots, dashes and underscores, up to 64 of them, a letter or a digit first"
        raise argparse.ArgumentTypeError(f"{text!r} is not a serial number: {rule}")
    return text


async def _serve(arguments: argparse.Namespace, box: Box) -> None:
    if arguments.listen is not None:
        listener, name = await _listener(arguments.listen)
        print(f"ready port={name} serial={box.serial}", flush=True)
        while True:
            await serve_device(StreamLine(await listener.accept(), name), box)
    elif arguments.pty:
        line, name = pty_pair()
        print(f"ready port={name} serial={box.serial}", flush=True)
        await serve_device(line, box)
    else:
        await serve_device(await open_line(arguments.port, baud=arguments.baud), box)


async def _listener(port: int) -> tuple[trio.SocketListener, str]:
    """Return a listener on loopback and its name. Raises OSError, or PortTaken."""
    try:
        return await serve_socket(port=port)
    except OSError as exc:
        if exc.errno == errno.EADDRINUSE:
            raise PortTaken("--listen", "127.0.0.1", port) from exc
        raise
