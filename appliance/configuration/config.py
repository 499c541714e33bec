"""One TOML file, the environment and the command line become one frozen `Config`; every error is named at once.

Later sources win: default < file < environment (`ROCKETBOX_<TABLE>_<KEY>`) < command line. A key nobody knows is an
error, since a misspelt limit would silently not hold. No secrets belong in this file.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from appliance.configuration.config_rules import value_from_text
from appliance.configuration.group_settings import problems_of
from appliance.configuration.settings import MASTER_ROLE, MEMBER_ROLE, SLAVE_ROLE, Config, rules, tables
from appliance.errors import ConfigError, ConfigProblem
from netstack.serving.addresses import is_loopback
from storage_driver.named_tuple import NamedTuple

__all__ = ["Config", "HostFacts", "load_config", "nearest", "unknown_variables"]

VARIABLE = "ROCKETBOX_"
NO_SETTINGS = frozenset(("ROCKETBOX_CONTEXT", "ROCKETBOX_PURE"))
SERVICE_LINK = re.compile(r".*_(SERVICE_HOST|SERVICE_PORT(_.+)?|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)")
SMALL_DISK_BYTES = 64 << 30  # below it one segment of 1 GiB is too large a share to delete at once
SHIPPED_MIB = 7  # a whole record, properties included, fits into a piece of 8 MiB


class HostFacts(NamedTuple):
    """What defaults depend on."""

    disk_bytes: int
    serial_number: str
    host_name: str


class _Reader:
    """Values and problems gathered from one source after the other."""

    def __init__(self) -> None:
        self.rules = rules()
        self.values: dict[str, object] = {}
        self.origins = dict.fromkeys(self.rules, "default")
        self.problems: list[ConfigProblem] = []

    def take(self, name: str, value: object, origin: str, line: int | None = None) -> None:
        rule = self.rules.get(name)
        try:
            if rule is None:
                raise ValueError(f"unknown key{nearest(name, self.rules)}")
            self.values[name] = value_from_text(rule, value) if origin == "environment" else rule.read(value)  # type: ignore[arg-type]
            self.origins[name] = origin
        except ValueError as exc:
            where = "" if origin == "file" else f" (from the {origin})"
            self.problems.append(ConfigProblem(name, value if rule else None, f"{exc}{where}", line))


def nearest(name: str, known: Iterable[str]) -> str:
    """Return ", did you mean ...?" for the nearest known name, or nothing."""
    import difflib  # only an error needs it

    last = difflib.SequenceMatcher(b=name.rpartition(".")[2])
    alike = []
    for each in known:  # a table in common is no likeness of keys
        last.set_seq1(each.rpartition(".")[2])
        if last.ratio() >= 0.6:
            alike.append(each)
    found = difflib.get_close_matches(name, alike, n=1, cutoff=0.6)
    return f', did you mean "{found[0]}"?' if found else ""


def _parsed(text: str, source: str) -> dict[str, Any]:
    import tomllib  # a box without a file reads none

    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as exc:
        raise ConfigError(source, [ConfigProblem("", None, f"not TOML: {exc}", None)]) from exc


def load_config(
    text: str = "",
    *,
    source: str = "configuration",
    facts: HostFacts,
    environ: Mapping[str, str] | None = None,
    command_line: Mapping[str, object] | None = None,
) -> Config:
    """Return the configuration of all sources. Raises ConfigError that lists every problem."""
    reader = _Reader()
    if text:
        _take_file(reader, _parsed(text, source), text)
    _take_environment(reader, environ or {})
    for name, value in (command_line or {}).items():
        reader.take(name, value, "command line")
    if reader.problems:
        raise ConfigError(source, reader.problems)
    config = _built(reader)
    if problems := list(_together(config)):
        raise ConfigError(source, problems)
    return _settle(config, facts, dict(reader.origins))


def _take_file(reader: _Reader, parsed: Mapping[str, Any], text: str) -> None:
    known = tables()
    for table, content in parsed.items():
        line = line_of(text, table)
        if table not in known:
            reader.problems.append(ConfigProblem(table, None, f"unknown table{nearest(table, known)}", line))
        elif not isinstance(content, dict):
            reader.problems.append(ConfigProblem(table, content, f"is a table: write [{table}]", line))
        else:
            for name, value in content.items():
                reader.take(f"{table}.{name}", value, "file", line_of(text, table, name))


def _take_environment(reader: _Reader, environ: Mapping[str, str]) -> None:
    spelled = _variables(reader.rules)
    for variable, value in sorted(environ.items()):
        if variable in spelled and not _is_service_link(variable, value):
            reader.take(spelled[variable], value, "environment")


def _variables(names: Iterable[str]) -> dict[str, str]:
    return {VARIABLE + name.replace(".", "_").upper(): name for name in names}


def _is_service_link(variable: str, value: str) -> bool:
    """Whether Kubernetes made it of the name of a service: of `rocketbox-grpc` ROCKETBOX_GRPC_PORT=tcp://10.0.0.1:8081."""
    return (variable.endswith("_PORT") and "://" in value) or SERVICE_LINK.fullmatch(variable) is not None


def unknown_variables(environ: Mapping[str, str]) -> list[str]:
    """Return what looks like a setting and is none, with the nearest; of service links those that are named as one."""
    spelled = _variables(rules())
    known = [each.removeprefix(VARIABLE) for each in spelled]
    unknown = []
    for each in sorted(environ):
        if _is_service_link(each, environ[each]):
            unknown += [f"{each}, a service link of Kubernetes"] if each in spelled else []
        elif each.startswith(VARIABLE) and each not in spelled and each not in NO_SETTINGS:
            unknown.append(f"{each}{nearest(each.removeprefix(VARIABLE), known)}")
    return unknown


def _built(reader: _Reader) -> Config:
    made: dict[str, Any] = {}
    for table, kind in tables().items():
        prefix = f"{table}."
        made[table] = kind(**{k[len(prefix) :]: v for k, v in reader.values.items() if k.startswith(prefix)})
    return Config(**made)


def _together(config: Config) -> Iterator[ConfigProblem]:
    """What each key allows alone and not beside another."""
    if (port := config.listen.broker_port) and port == config.listen.namesrv_port:
        yield ConfigProblem(
            "listen.broker_port", port, "listen.namesrv_port has the same value: each port must differ", None
        )
    for name in ("broker", "namesrv"):
        if config.grpc.port and config.grpc.port == getattr(config.listen, f"{name}_port"):
            text = f"listen.{name}_port has the same value: each port must differ"
            yield ConfigProblem("grpc.port", config.grpc.port, text, None)
    if config.uplink.gateway and (size := config.limits.message_mib) > SHIPPED_MIB:
        text = f"at most {SHIPPED_MIB} with uplink.gateway: a shipped piece holds 8 MiB"
        yield ConfigProblem("limits.message_mib", size, text, None)

    yield from _of_replication(config)


def _of_replication(config: Config) -> Iterator[ConfigProblem]:
    """Where a slave's master is, and that one log is shipped once."""
    said = config.replication
    if (said.role == SLAVE_ROLE) != bool(said.master):
        text = 'a slave has a master, others have none: set it with role = "slave" only'
        yield ConfigProblem("replication.master", said.master, text, None)
    if said.role == SLAVE_ROLE and config.uplink.gateway:
        text = "a slave ships nothing: its master ships the same log"
        yield ConfigProblem("uplink.gateway", config.uplink.gateway, text, None)
    if said.role == MASTER_ROLE and said.slaves and is_loopback(config.listen.host):
        text = 'no slave reaches this machine\'s own address: set listen.host, as to "0.0.0.0"'
        yield ConfigProblem("replication.slaves", said.slaves, text, None)
    if said.role == MEMBER_ROLE:
        if not config.box.name:
            text = "is the group's name, the same on each of its boxes: set it"
            yield ConfigProblem("box.name", config.box.name, text, None)
        yield from problems_of(config.group, config.uplink.certs)
        if config.group.address and config.listen.host not in ("0.0.0.0", "::"):
            text = 'clients reach it only where the ports are bound to every address: set listen.host = "0.0.0.0"'
            yield ConfigProblem("group.address", config.group.address, text, None)
    elif config.group.members:
        text = 'is for a member of a group: set replication.role = "member"'
        yield ConfigProblem("group.members", config.group.members, text, None)


def _settle(config: Config, facts: HostFacts, origins: dict[str, str]) -> Config:
    """Fill in the defaults that depend on the machine."""
    if not config.box.name:
        known = next((text for text in (facts.serial_number, facts.host_name) if text), "rocketbox")
        origins["box.name"] = "serial number" if known == facts.serial_number else "host name"
        config = config._replace(box=config.box.changed(name=as_box_name(known)))
    if not config.store.segment_mib:
        origins["store.segment_mib"] = "disk size"
        segment_mib = 256 if facts.disk_bytes < SMALL_DISK_BYTES else 1024
        config = config._replace(store=config.store.changed(segment_mib=segment_mib))
    return config._replace(origins=origins)


def as_box_name(text: str) -> str:
    """Return the nearest legal box name."""
    return re.sub(r"[^a-z0-9-]+", "-", text.lower()).strip("-")[:40] or "rocketbox"


def line_of(text: str, table: str, name: str | None = None) -> int | None:
    """Return the 1-based line of a table's head or of a key in it, if it is written in the usual way."""
    inside = table if name is None else ""
    for number, line in enumerate(text.splitlines(), 1):
        head = re.match(r"\s*\[+\s*([^\]\s]+)\s*\]+", line)
        if head:
            inside = head.group(1)
        if head and name is None and inside == table:
            return number
        if not head and _is_key(line, table if name is None else name if inside == table else f"{table}.{name}"):
            return number
    return None


def _is_key(line: str, name: str) -> bool:
    return re.match(rf"\s*[\"']?{re.escape(name)}[\"']?\s*[.=]", line) is not None
