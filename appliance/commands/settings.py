"""Which configuration and which data folder a command works on."""

import argparse
import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from appliance.configuration.config import Config, HostFacts, load_config
from appliance.errors import ConfigError, ConfigProblem
from uplink_spark.bounds import whole

INSTALLED = Path("/etc/rocketbox/rocketbox.toml")
INSTALLED_DATA = Path("/var/lib/rocketbox")
MOST_CHARACTERS = 1 << 20  # of a configuration
FACTORY = Path("/var/lib/rocketbox-factory/serial")


def add_config_arguments(parser: argparse.ArgumentParser) -> None:
    """Add --config and --data."""
    parser.add_argument("--config", type=Path, metavar="FILE", help=f"TOML file (default: {INSTALLED} if it is there)")
    parser.add_argument(
        "--data", type=Path, metavar="DIR", help=f"state (default: {INSTALLED_DATA} on a box, else ./var)"
    )


def add_serial_arguments(parser: argparse.ArgumentParser) -> None:
    """Add --over-serial, and which box that is."""
    text = "ask the box at a serial port; the cable is enough, no owner's secret is needed"
    parser.add_argument("--over-serial", action="store_true", help=text)
    parser.add_argument("--port", metavar="PORT", help="serial device or socket://host:port (default: detected)")
    parser.add_argument("--serial", default="", metavar="S", help="only the box with this serial number")
    parser.add_argument("--baud", type=whole(50), default=115200, help="speed of the line")


def config_file(arguments: argparse.Namespace, environ: Mapping[str, str] = os.environ) -> Path | None:
    """Return the file named, else that of the unit, else the installed one if there is one."""
    if getattr(arguments, "config", None) is not None:
        return Path(arguments.config)
    folder = environ.get("CONFIGURATION_DIRECTORY")  # systemd sets it for the service
    file = Path(folder) / INSTALLED.name if folder else INSTALLED
    return file if file.exists() else None


def data_folder(arguments: argparse.Namespace, environ: Mapping[str, str] = os.environ) -> Path:
    """Return the folder named, else that of the unit, else the box's own, else ./var."""
    if arguments.data is not None:
        return Path(arguments.data)
    if environ.get("STATE_DIRECTORY"):  # systemd sets it for the service
        return Path(environ["STATE_DIRECTORY"])
    return INSTALLED_DATA if config_file(arguments, environ) == INSTALLED else Path("var")


def no_folder(data: Path) -> str:
    """Return why a data folder is none, "" where it is one."""
    return "" if data.is_dir() else f"{data} is not a folder; --data DIR names the box's folder"


@contextmanager
def as_owner_of(folder: Path) -> Iterator[None]:
    """What root does in the block is done as the user who owns the folder, so that links planted there lead nowhere.

    For commands of one thread: the change is the process's.
    """
    there = next(each for each in (folder, *folder.absolute().parents) if each.exists())
    owner = there.stat()
    if os.geteuid() != 0 or owner.st_uid == 0:
        yield
        return
    groups = os.getgroups()
    os.setgroups([])
    os.setegid(owner.st_gid)
    os.seteuid(owner.st_uid)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)
        os.setgroups(groups)


def chosen_config(arguments: argparse.Namespace, data: Path, given: Mapping[str, object] | None = None) -> Config:
    """Return the configuration for a command; `given` is what its line says. Raises ConfigError."""
    file = config_file(arguments)
    text = read_config(file) if file else ""
    source = str(file) if file else "configuration"
    return load_config(text, source=source, facts=machine_facts(data), environ=os.environ, command_line=given)


def read_config(file: Path) -> str:
    """Return the text of a file. Raises ConfigError."""
    try:
        with file.open(encoding="utf-8") as lines:
            text = lines.read(MOST_CHARACTERS + 1)
    except FileNotFoundError as exc:
        raise ConfigError(str(file), [ConfigProblem("", None, "there is no such file", None)]) from exc
    except (OSError, UnicodeDecodeError) as exc:
        raise ConfigError(str(file), [ConfigProblem("", None, f"cannot be read: {exc}", None)]) from exc
    if len(text) > MOST_CHARACTERS:
        raise ConfigError(str(file), [ConfigProblem("", None, f"has more than {MOST_CHARACTERS} characters", None)])
    return text


def machine_facts(data: Path) -> HostFacts:
    """Return what defaults depend on; a data folder that does not exist yet is on its nearest parent's disk."""
    there = next((folder for folder in (data, *data.absolute().parents) if folder.exists()), Path("/"))
    try:
        serial_number = FACTORY.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        serial_number = ""
    system = os.statvfs(there)
    return HostFacts(system.f_blocks * system.f_frsize, serial_number, socket.gethostname())
