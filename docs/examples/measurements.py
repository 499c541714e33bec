"""This machine's vitals by psutil: one Measurement per core, disk, network interface, sensor, and for memory."""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import psutil

VIRTUAL = ("lo", "veth", "docker", "br-")  # interfaces whose traffic says nothing about the machine's own
UNITS = {
    "vitals_start": "",
    "vitals_cpu": "%",
    "vitals_memory": "%",
    "vitals_disk": "kB/s",
    "vitals_network": "kB/s",
    "vitals_temperature": "°C",
}


@dataclass(frozen=True, slots=True)
class Measurement:
    """`value` is the vital of its topic, in UNITS; `of` names the core, disk, interface or sensor."""

    topic: str
    of: str
    value: float
    more: dict[str, float | int | str] = field(default_factory=dict)


class Meter:
    """Reads everything at once; rates are since the last reading."""

    def __init__(self) -> None:
        self._at = time.monotonic()
        self._disks, self._nics = _disk_bytes(), _network_bytes()
        psutil.cpu_percent(percpu=True)

    def read(self) -> list[Measurement]:
        """Return all measurements of this moment."""
        now = time.monotonic()
        seconds, self._at = max(now - self._at, 1e-3), now
        disks, nics = _disk_bytes(), _network_bytes()
        found = [*_cores(), _memory(), *_temperatures()]
        found += _rates("vitals_disk", self._disks, disks, seconds)
        found += _rates("vitals_network", self._nics, nics, seconds)
        self._disks, self._nics = disks, nics
        return found


def _cores() -> Iterator[Measurement]:
    load = psutil.getloadavg()[0]
    for number, percent in enumerate(psutil.cpu_percent(percpu=True)):
        yield Measurement("vitals_cpu", f"cpu{number}", percent, {"load1": round(load, 2)})


def _memory() -> Measurement:
    memory = psutil.virtual_memory()
    more = {"available_mb": memory.available // 2**20, "total_mb": memory.total // 2**20}
    return Measurement("vitals_memory", "ram", memory.percent, more)


def _temperatures() -> Iterator[Measurement]:
    sensors = psutil.sensors_temperatures() if hasattr(psutil, "sensors_temperatures") else {}
    for name, readings in sensors.items():
        for number, reading in enumerate(readings):
            yield Measurement("vitals_temperature", reading.label or f"{name}{number}", reading.current)


def _disk_bytes() -> dict[str, int]:
    counters = psutil.disk_io_counters(perdisk=True) or {}
    whole = {name: c for name, c in counters.items() if not name.startswith(("loop", "ram", "zram"))}
    return {name: c.read_bytes + c.write_bytes for name, c in whole.items()}


def _network_bytes() -> dict[str, int]:
    counters = psutil.net_io_counters(pernic=True)
    return {name: c.bytes_sent + c.bytes_recv for name, c in counters.items() if not name.startswith(VIRTUAL)}


def _rates(topic: str, before: dict[str, int], now: dict[str, int], seconds: float) -> Iterator[Measurement]:
    for name in sorted(now.keys() & before.keys()):
        yield Measurement(
            topic, name, round((now[name] - before[name]) / seconds / 1000, 3), {"total_bytes": now[name]}
        )
