"""What the serial line may do to the real box: systemd, clock, self-test, support archive."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from appliance.clock import SET_BY_BENCH
from appliance.configuration.config import load_config
from appliance.errors import ConfigError
from appliance.health.health_file import read_health
from appliance.ports import activated
from appliance.sockets import check_opened, host_problem, unit_ports
from appliance.support.bundle import NowhereToWrite, make_bundle, write_bundle
from appliance.support.sources import BoxFolders
from provisioning.box import Box, DeviceActions, Progress
from provisioning.errors import ProvisioningError
from watchdog.notes import read_json

HELPER = ("/usr/bin/python3", "-I", "/usr/lib/rocketbox/escalate.py")
RESTART_S = 10  # what it takes on a board, for whoever watches
SELFTEST, SELFTEST_S = "rocketbox-selftest.service", 120  # the unit's own limit
NETWORKD = "systemd-networkd.service"
UNITS = ("rocketbox-slot.service", "rocketbox.service", SELFTEST, "rocketbox-commit.service")
RUNTIME, CONFIG = Path("/run/rocketbox"), Path("/etc/rocketbox/rocketbox.toml")
KEPT = Path("/var/lib/rocketbox/watchdog/selftest.json")
ROWS_BYTES, MUTED_BYTES, ROW_TEXT = 5000, 1000, 500  # a frame takes 8 KiB, a text in it 1 KiB
SERIAL_BYTES = 2 << 20  # three minutes at 115200 baud


def real_hands(box: Box) -> DeviceActions:
    """Return the hands of this machine, or of a box that is only a folder."""
    root = box.files.root
    if root != Path("/"):
        place = BoxFolders(box.files.state, root / "run/rocketbox", root / CONFIG.relative_to("/"), root, live=False)
        return DeviceActions(
            check_config=partial(check_config, ports=dict),
            activate=lambda progress: try_slot(box),
            support=lambda path: write_support(path, place),
        )
    return DeviceActions(
        check_config=check_config,
        status=lambda: health_that_fits(read_health(RUNTIME / "health.json")),
        doctor=doctor_facts,
        set_time=set_time,
        network_problem=network_problem,
        activate=activate,
        selftest=selftest,
        reboot=reboot,
        leave_safe=lambda: run(*HELPER, "leave"),
        support=lambda path: write_support(path, BoxFolders(box.files.state, RUNTIME, CONFIG)),
    )


def check_config(text: str, *, ports: Callable[[], Mapping[str, int]] = unit_ports) -> list[str]:
    """Return everything that is wrong with a configuration, as `serve` would say it.

    An address that is not here yet may come with the same plan, or by DHCP once the network is there.
    """
    from appliance.commands.settings import machine_facts

    try:
        config = load_config(text, source="rocketbox.toml", facts=machine_facts(Path("/var/lib/rocketbox")))
        check_opened(ports(), activated(config))
    except ConfigError as exc:
        return str(exc).splitlines()
    problem = host_problem(config.listen.host, here=False)
    return [f"listen.host = {config.listen.host!r}: {problem}"] if problem else []


def try_slot(box: Box) -> None:
    """Run a version on trial in a box that is only a folder: there is nothing to test, so it is kept."""
    if box.files.slots.load().trial is not None:
        box.files.slots.boot()
        box.files.slots.commit()


def activate(progress: Progress) -> None:
    """Restart into what was applied and wait for the self-test and the commit. Raises E501.

    How long that may take is said by the units' own limits, and by nothing here.
    """
    run("networkctl", "reload")
    run("systemctl", "daemon-reload")
    now_s, watched = time.time(), RestartProgress(progress)
    with subprocess.Popen(
        ["systemctl", "restart", *UNITS], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as jobs:
        while jobs.poll() is None:
            time.sleep(0.5)
            watched.tell(time.monotonic(), testing=run("systemctl", "is-active", SELFTEST).strip() == "activating")
    if run("systemctl", "is-active", "rocketbox-commit.service").strip() != "active":
        raise ProvisioningError("E501", f"self-test failed: {why_failed(now_s)}; run `rocketbox doctor`")


class RestartProgress:
    """Tells how long the restart takes, then the self-test, each against the time that it may take."""

    def __init__(self, progress: Progress) -> None:
        self._progress, self._began_s = progress, time.monotonic()
        self._test_began_s: float | None = None

    def tell(self, now_s: float, *, testing: bool) -> None:
        """Tell the step that runs now."""
        if testing and self._test_began_s is None:
            self._test_began_s = now_s
        if self._test_began_s is None:
            self._progress("restart", min(int(now_s - self._began_s), RESTART_S), RESTART_S)
        else:
            self._progress("self-test", min(int(now_s - self._test_began_s), SELFTEST_S), SELFTEST_S)


def why_failed(since_s: float, kept: Path = KEPT) -> str:
    """Return what the self-test said that ended since then; another one is run, two minutes, only where none did."""
    found = read_json(kept) or {}
    if found.get("wall_s", 0) < int(since_s):
        found = dict(selftest())
    return str(found.get("failed", "no result"))


def selftest() -> Mapping[str, Any]:
    """Send one message through the running box, return what every step took."""
    try:
        return dict(json.loads(run(sys.executable, "-I", "-m", "appliance", "selftest", "--json") or "{}"))
    except ValueError:
        return {"ok": False, "failed": "the self-test printed no result"}


def doctor_facts() -> Mapping[str, Any]:
    """Return the findings of `rocketbox doctor`, short enough for one frame."""
    from appliance.health.doctor import examine
    from appliance.health.doctor_facts import gather

    findings = [one.to_json() for one in examine(gather(Path("/var/lib/rocketbox")))]
    return {"findings": rows_that_fit([one for one in findings if one["severity"] != "ok"])}


def health_that_fits(health: dict[str, Any]) -> dict[str, Any]:
    """Return the health that one frame takes: the worst reasons, and how many more there are."""
    reasons, muted = health.get("reasons", []), health.get("muted", [])
    kept = rows_that_fit(reasons)
    if len(kept) < len(reasons):
        text = f"{len(reasons) - len(kept)} more reasons are not sent over this line"
        kept.append({"code": reasons[-1]["code"], "text": text, "next": "`rocketbox conditions` on the box"})
    return health | {"reasons": kept} | ({"muted": rows_that_fit(muted, MUTED_BYTES)} if muted else {})


def rows_that_fit(rows: list[dict[str, Any]], room: int = ROWS_BYTES) -> list[dict[str, Any]]:
    """Return the first rows that have room together; a frame takes no text of any length."""
    kept: list[dict[str, Any]] = []
    for row in rows:
        short = {name: value[:ROW_TEXT] if isinstance(value, str) else value for name, value in row.items()}
        room -= len(json.dumps(short, ensure_ascii=False).encode())
        if room < 0:
            break
        kept.append(short)
    return kept


def network_problem() -> str:
    """Return why this machine would not read a file of systemd-networkd, empty where it does."""
    if {run("systemctl", verb, NETWORKD).strip() for verb in ("is-active", "is-enabled")} & {"active", "enabled"}:
        return ""
    text = (
        "address, gateway and dns would have no effect: systemd-networkd does not run on this box; leave them out and"
    )
    return f"{text} set them where its network is, or run `systemctl enable --now systemd-networkd` there"


def set_time(time_s: int) -> None:
    """Set the clock and note that it may be trusted for this boot."""
    time.clock_settime(time.CLOCK_REALTIME, float(time_s))
    SET_BY_BENCH.touch()


def reboot(reason: str) -> None:
    """Reboot, announced, after the answer had time to leave."""
    run(*HELPER, "planned", reason, "serial")
    run("systemd-run", "--on-active=2s", "systemctl", "reboot")


def write_support(path: Path, place: BoxFolders) -> Path:
    """Write the support bundle where it is wanted, else into memory; return where. Raises E301."""
    try:
        return write_bundle(make_bundle(place, cap=SERIAL_BYTES).data, path)
    except NowhereToWrite as exc:
        raise ProvisioningError("E301", str(exc)) from exc


def run(*words: str) -> str:
    """Return what a program prints; one that fails or is missing prints nothing."""
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False, env={**os.environ, "LC_ALL": "C"})
    except OSError:
        return ""
    return done.stdout
