"""Gathers the facts that `doctor.py` judges: reads /sys, /proc, the store's disk and the product's own files."""

from __future__ import annotations

import os
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from importlib.metadata import packages_distributions
from ipaddress import IPv4Address, ip_address
from pathlib import Path
from typing import Any

from appliance.clock import clock_trusted
from appliance.configuration.settings import Config
from appliance.health.disk_wear import wear, whole_disk
from appliance.health.doctor import SHIPPED_SYSCTL
from appliance.health.duplicate_address import duplicates
from appliance.health.health_file import read_health
from appliance.interfaces import everywhere, read_interfaces
from netstack.serving.addresses import split_host_port
from netstack.serving.tls import client_context
from provisioning.factory import sync_latency
from watchdog.notes import read_json, read_lines
from watchdog.vitals import listener_of

PACKAGES = ("appliance", "storage_driver", "netstack", "watchdog", "provisioning", "uplink_spark")
ASK_S = 3.0
Question = tuple[int, bytes]  # request code and fields: one that needs no right, changes nothing and is no news
NO_ROUTE: Question = (105, b'{"topic":"RBX_PROBE"}')  # GET_ROUTEINFO_BY_TOPIC, to a NameServer
NOBODY_LEAVES: Question = (35, b'{"clientID":"RBX_PROBE"}')  # UNREGISTER_CLIENT, to a broker
HOURS_A_YEAR = 8766
INSTALLED = ("/usr/", "/opt/slots/", "/opt/appliance/")  # of a package, and of slots: the command is in /usr/bin
SHIPPED_DROP_IN = "usr/lib/rocketbox/floating-address.conf"
DROP_INS = ("etc/systemd/system/rocketbox.service.d", "run/systemd/system/rocketbox.service.d")


def gather(
    data: Path, config: Config | None = None, *, root: Path = Path("/"), health: Path | None = None
) -> dict[str, Any]:
    """Return what can be found out within some seconds, `health` from that file; what cannot be read is left out."""
    there = next(folder for folder in (data, *data.absolute().parents) if folder.exists())
    sources: dict[str, Callable[[], Any]] = {
        "sync_ms": lambda: sync_ms(there),
        "file_system": lambda: file_system(there, root / "proc/mounts"),
        "disk": lambda: disk(there, root / "sys"),
        "wear": lambda: wear(there, root / "sys"),
        "sysctl": lambda: sysctl(root / "proc/sys"),
        "swap_bytes": lambda: swap_bytes(root / "proc/swaps"),
        "space": lambda: space(there),
        "clock": clock,
        "watchdog": lambda: watchdog_driver(root / "sys/class/watchdog"),
        "virtual": lambda: virtual(root),
        "container": lambda: container(root, os.environ),
        "slots": lambda: read_json(root / "opt/slots/state.json"),
        "images": lambda: read_json(root / "var/lib/rocketbox-images/state.json"),
        "boots_24h": lambda: boots_24h(data / "watchdog/boots.jsonl"),
        "drop_ins": lambda: drop_ins(root),
        "program": program,
        "addresses": addresses,
        "duplicate_addresses": duplicate_addresses,
        "foreign_names": foreign_names,
        "health": lambda: read_health(health or root / "run/rocketbox/health.json"),
    }
    if config is not None:
        sources |= {
            "access_mode": lambda: config.access.mode,
            "access_open_to": lambda: everywhere(config.access.allow) if config.access.mode == "subnet" else [],
            "ports": lambda: ports(config),
            "certificates": lambda: certificates(
                [data / "tls", root / "etc/rocketbox/tls", *certificate_folders(config)]
            ),
            "uplink": lambda: uplink(config.uplink.gateway, data),
        }
    facts = _read(sources)
    facts["life_years"] = life_years(facts.get("wear"))
    return facts


def _read(sources: Mapping[str, Callable[[], Any]]) -> dict[str, Any]:
    facts: dict[str, Any] = {}
    for name, source in sources.items():
        try:
            facts[name] = source()
        except (OSError, ValueError, KeyError, IndexError, subprocess.SubprocessError) as exc:
            facts.setdefault("unread", []).append(f"{name}: {exc}")
    return facts


def sync_ms(folder: Path) -> dict[str, float]:
    """Time 200 small syncs on the store's disk."""
    seen = sync_latency(folder, lambda stage, done, total: None)
    return {"p50": seen["p50_ms"], "p99": seen["p99_ms"]}


def file_system(folder: Path, mounts: Path) -> dict[str, str]:
    """Return the folder and the mount that it is on."""
    best: list[str] = []
    folder = folder.resolve()
    for line in mounts.read_text().splitlines():
        words = line.split()
        if folder.is_relative_to(words[1]) and (not best or len(words[1]) >= len(best[1])):
            best = words
    there = {"folder": str(folder)}
    return there | {"device": best[0], "mount": best[1], "type": best[2], "options": best[3]}


def disk(folder: Path, sys: Path) -> dict[str, Any]:
    """Return what the kernel says about the disk under a folder."""
    whole = whole_disk(folder, sys)
    queue = whole / "queue"
    scheduler = (queue / "scheduler").read_text()
    rotational = (queue / "rotational").read_text().strip() == "1"
    cache = (queue / "write_cache").read_text().strip()
    kind = "nvme" if whole.name.startswith("nvme") else "disk" if rotational else "ssd"
    return {
        "name": whole.name,
        "kind": kind if not whole.name.startswith(("loop", "vd", "zram")) else "virtual",
        "write_cache": cache,
        "scheduler": scheduler.partition("[")[2].partition("]")[0] or scheduler.strip(),
        "has_volatile_cache": cache == "write back",
    }


def life_years(worn: Mapping[str, Any] | None) -> float | None:
    """Return how long the disk lasts if it continues like this, None while nothing of it is used up or known."""
    if not worn or not worn.get("used_percent") or not worn.get("hours"):
        return None
    used, hours = float(worn["used_percent"]), float(worn["hours"])
    return hours * max(0.0, 100 - used) / used / HOURS_A_YEAR


def sysctl(proc_sys: Path) -> dict[str, int]:
    """Return the present values of what is shipped."""
    found = {}
    for key in SHIPPED_SYSCTL:
        try:
            found[key] = int((proc_sys / key.replace(".", "/")).read_text())
        except (OSError, ValueError):
            continue
    return found


def swap_bytes(swaps: Path) -> int:
    return sum(int(line.split()[2]) * 1024 for line in swaps.read_text().splitlines()[1:] if "zram" not in line)


def space(folder: Path) -> dict[str, float]:
    """Return shares as `df` counts."""
    seen = os.statvfs(folder)
    used, free = seen.f_blocks - seen.f_bfree, seen.f_bavail
    inodes = (seen.f_files - seen.f_ffree) / seen.f_files if seen.f_files else 0.0
    return {"used": used / (used + free), "free_bytes": free * seen.f_frsize, "inodes": inodes}


def clock() -> dict[str, Any]:
    now = time.gmtime()
    return {"wall": time.strftime("%Y-%m-%dT%H:%M:%SZ", now), "year": now.tm_year, "synchronised": clock_trusted()}


def virtual(root: Path) -> bool:
    """Return whether this is a virtual machine (the processor's flag `hypervisor`, x86; Xen) or a container."""
    if (root / "sys/hypervisor/type").exists() or container(root, os.environ):
        return True
    flags = [line for line in (root / "proc/cpuinfo").read_text().splitlines() if line.startswith("flags")]
    return any("hypervisor" in line.split() for line in flags)


def container(root: Path, environ: Mapping[str, str]) -> bool:
    """Return whether this is a container of Podman, Docker or, whatever runs it there, Kubernetes."""
    if "container" in environ or "KUBERNETES_SERVICE_HOST" in environ:
        return True  # the first is Podman's, whose file a read-only root hides
    return any((root / name).exists() for name in ("run/.containerenv", ".dockerenv"))


def watchdog_driver(folder: Path) -> str | None:
    """Return the identity of the first watchdog device, None without any."""
    for device in sorted(folder.glob("watchdog*")):
        try:
            return (device / "identity").read_text().strip()
        except OSError:
            return device.name
    return None


def boots_24h(path: Path) -> dict[str, Any] | None:
    rows = read_lines(path)
    if not rows:
        return None
    recent = [row for row in rows if time.time() - float(row.get("wall_s", 0)) < 86400]
    return {"count": len(recent), "reason": rows[-1].get("reason", "power")}


def program() -> str:
    """Return what root types for this program: a path where the command is not on root's own."""
    own = Path(sys.prefix, "bin/rocketbox")
    return str(own) if own.exists() and not sys.prefix.startswith(INSTALLED) else "rocketbox"


def drop_ins(root: Path) -> list[str]:
    """Return what changes the shipped unit, but for the copy that a group with an address has. Raises OSError."""
    shipped = root / SHIPPED_DROP_IN
    known = shipped.read_bytes() if shipped.exists() else None
    found = [path for name in DROP_INS for path in sorted((root / name).glob("*.conf"))]
    return [str(path) for path in found if path.read_bytes() != known]


def addresses() -> list[str]:
    """Return the addresses others can reach this machine at."""
    found = [text for name, texts in read_interfaces().items() if name != "lo" for text in texts]
    return [text for text in found if not text.startswith(("127.", "169.254.", "fe80:", "::1"))]


def duplicate_addresses() -> list[str]:
    """Ask the wire whether somebody else has one of this machine's addresses. Raises OSError without root."""
    seen = read_interfaces().items()
    known = [(name, ip_address(text)) for name, texts in seen if name != "lo" for text in texts]
    return duplicates([(name, one) for name, one in known if isinstance(one, IPv4Address) and not one.is_link_local])


def foreign_names() -> dict[str, str]:
    """Return which of the six package names another distribution has taken."""
    owners = packages_distributions()
    found = {}
    for name in PACKAGES:
        others = [owner for owner in owners.get(name, []) if owner != "rocketbox"]
        if others:
            found[name] = others[0]
    return found


def ports(config: Config) -> list[dict[str, Any]]:
    """Ask at every advertised address whether the broker's and the name server's port answer."""
    host = config.listen.host
    local = "127.0.0.1" if host in ("0.0.0.0", "::", "") else host
    asked = [(local, config.listen.broker_port, "listen.broker_port")]
    asked += [(local, config.listen.namesrv_port, "listen.namesrv_port")]
    rules = [
        (rule.address, rule.port or config.listen.broker_port, "advertise.rules") for rule in config.advertise.rules
    ]
    found = []
    for address, port, key in asked + rules:
        secured, question = config.tls.mode == "enforcing", NO_ROUTE if key == "listen.namesrv_port" else NOBODY_LEAVES
        speaks = answers(address, port, question, secured=secured)
        if speaks != "rocketmq" and answers(address, port, question, secured=not secured) == "rocketmq":
            speaks = "rocketmq"  # the box runs by another configuration than the one that is looked at
        row: dict[str, Any] = {"address": address, "port": port, "key": key, "reachable": speaks != "refused"}
        if speaks == "foreign":
            row["taken_by"] = listener_of(port) or "another program"
        found.append(row)
    return found


def answers(address: str, port: int, question: Question, *, secured: bool = False) -> str:
    """Return `rocketmq` when the port speaks the protocol, `foreign` when something else has it, else `refused`."""
    code, fields = question
    header = b'{"code":%d,"flag":0,"language":"PYTHON","opaque":1,"version":409,"extFields":%b}' % (code, fields)
    frame = (4 + len(header)).to_bytes(4, "big") + len(header).to_bytes(4, "big") + header
    try:
        with socket.create_connection((address, port), ASK_S) as plain, _spoken(plain, address, secured) as line:
            line.settimeout(ASK_S)
            line.sendall(frame)
            return "rocketmq" if b'"opaque":1' in line.recv(4096) else "foreign"
    except ConnectionRefusedError:
        return "refused"
    except (TimeoutError, ssl.SSLError):
        return "foreign"
    except OSError:
        return "refused"


def _spoken(plain: socket.socket, address: str, secured: bool) -> socket.socket:
    """Return the connection to speak over: TLS where the box takes nothing else."""
    return client_context().wrap_socket(plain, server_hostname=address) if secured else plain


def certificate_folders(config: Config) -> list[Path | str]:
    """Return where the certificates are that others made for this box."""
    return [config.uplink.certs, config.group.certs if config.replication.role == "member" else ""]


def certificates(folders: Iterable[Path | str]) -> list[dict[str, Any]]:
    """Return the days every certificate in these folders still has."""
    found = []
    for folder in folders:
        for path in sorted(Path(folder).glob("*.crt")) if str(folder) else []:
            words = ["openssl", "x509", "-enddate", "-noout", "-in", str(path)]
            said = subprocess.run(words, capture_output=True, text=True, timeout=10, check=False).stdout
            if said.startswith("notAfter="):
                until = time.mktime(time.strptime(said.strip()[9:], "%b %d %H:%M:%S %Y %Z")) - time.timezone
                found.append({"path": str(path), "days": int((until - time.time()) // 86400)})
    return found


def uplink(gateway: str, data: Path) -> dict[str, Any]:
    """Try to reach the gateway: name, then connection; the newest receipt is the ledger's time."""
    if not gateway:
        return {}
    host, port = split_host_port(gateway)
    found: dict[str, Any] = {"gateway": gateway}
    try:
        socket.getaddrinfo(host, port)
    except (OSError, UnicodeError):
        return found | {"resolved": False}
    try:
        socket.create_connection((host, port), ASK_S).close()
        found["connected"] = True
    except OSError as exc:
        found |= {"connected": False, "error": exc.strerror or "no answer within 3 s"}
    files = [path.stat().st_mtime for path in (data / "uplink").glob("*") if path.is_file()]
    if files:
        found["receipt_age_s"] = max(0.0, time.time() - max(files))
    return found
