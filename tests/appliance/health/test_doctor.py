"""Each cause is put into the facts and must be named, with its code, and nothing else may complain."""

import re
from typing import Any

import pytest

from appliance.health.doctor import SHIPPED_SYSCTL, examine, exit_status

WELL: dict[str, Any] = {
    "sync_ms": {"p50": 0.4, "p99": 3.0},
    "disk": {"name": "nvme0n1", "kind": "nvme", "write_cache": "write back", "scheduler": "none"},
    "file_system": {"device": "/dev/nvme0n1p4", "mount": "/var/lib/rocketbox", "type": "ext4", "options": "rw,noatime"},
    "wear": {"used_percent": 3, "media_errors": 0},
    "life_years": 12.0,
    "sysctl": dict(SHIPPED_SYSCTL),
    "swap_bytes": 0,
    "space": {"used": 0.4, "free_bytes": 1 << 36, "inodes": 0.01},
    "clock": {"wall": "2026-03-02T10:11:12Z", "year": 2026, "synchronised": True},
    "watchdog": "iTCO_wdt",
    "slots": {"active": "a", "trial": None, "rolled_back": None},
    "boots_24h": {"count": 1, "reason": "planned"},
    "drop_ins": [],
    "addresses": ["10.0.0.2"],
    "ports": [{"address": "10.0.0.2", "port": 10911, "reachable": True}],
    "access_mode": "subnet",
    "certificates": [{"path": "box.crt", "days": 3000}],
    "uplink": {"gateway": "centre:7000", "resolved": True, "connected": True, "receipt_age_s": 4.0},
    "foreign_names": {},
    "health": {"state": "ok", "reasons": []},
}

CAUSES: list[tuple[str, dict[str, Any], str, str]] = [
    ("flushes ignored", {"sync_ms": {"p50": 0.01, "p99": 0.1}}, "D101", "error"),
    ("slow disk", {"sync_ms": {"p50": 3.0, "p99": 45.0}}, "D101", "warning"),
    ("dying disk", {"sync_ms": {"p50": 3.0, "p99": 2000.0}}, "D101", "error"),
    (
        "write cache without flushes",
        {"disk": {"name": "sda", "write_cache": "write through", "has_volatile_cache": True}},
        "D102",
        "error",
    ),
    ("no barriers", {"file_system": WELL["file_system"] | {"options": "rw,noatime,nobarrier"}}, "D103", "error"),
    ("tmpfs", {"file_system": WELL["file_system"] | {"type": "tmpfs"}}, "D103", "error"),
    ("read-only", {"file_system": WELL["file_system"] | {"options": "ro,noatime"}}, "D103", "error"),
    ("emergency", {"file_system": WELL["file_system"] | {"options": "rw,noatime,emergency_ro"}}, "D103", "error"),
    ("online discard", {"file_system": WELL["file_system"] | {"options": "rw,noatime,discard"}}, "D103", "warning"),
    ("shared root", {"file_system": WELL["file_system"] | {"mount": "/"}}, "D103", "warning"),
    ("worn", {"wear": {"used_percent": 85}}, "D104", "warning"),
    ("worn out", {"wear": {"used_percent": 97}}, "D104", "error"),
    ("media errors", {"wear": {"used_percent": 1, "media_errors": 4}}, "D104", "error"),
    ("two years left", {"life_years": 2.0}, "D105", "warning"),
    ("months left", {"life_years": 0.5}, "D105", "error"),
    ("swap", {"swap_bytes": 1 << 30}, "D106", "warning"),
    ("dirty limits", {"sysctl": SHIPPED_SYSCTL | {"vm.dirty_bytes": 0}}, "D106", "warning"),
    ("scheduler", {"disk": WELL["disk"] | {"scheduler": "bfq"}}, "D106", "warning"),
    ("disk filling", {"space": {"used": 0.8, "free_bytes": 1 << 30}}, "D107", "warning"),
    ("disk full", {"space": {"used": 0.93, "free_bytes": 1 << 28}}, "D107", "error"),
    ("no inodes", {"space": {"used": 0.3, "free_bytes": 1 << 30, "inodes": 0.99}}, "D107", "error"),
    ("clock of 1970", {"clock": {"wall": "1970-01-01", "year": 1970, "synchronised": False}}, "D201", "error"),
    ("clock free running", {"clock": {"year": 2026, "synchronised": False}}, "D201", "warning"),
    ("no watchdog", {"watchdog": None}, "D202", "error"),
    ("no watchdog in a virtual machine", {"watchdog": None, "virtual": True}, "D202", "warning"),
    ("softdog", {"watchdog": "Software Watchdog"}, "D202", "warning"),
    ("on trial", {"slots": {"active": "a", "trial": "b", "tries": 2}}, "D203", "warning"),
    (
        "rolled back",
        {"slots": {"active": "a", "trial": None, "rolled_back": {"version": "1.5.0", "reason": "no try left"}}},
        "D203",
        "warning",
    ),
    (
        "image rolled back",
        {"images": {"trial": None, "rolled_back": {"version": "1.5.0", "reason": "does not stay up"}}},
        "D203",
        "warning",
    ),
    ("image on trial", {"images": {"trial": "1.5.0"}}, "D203", "warning"),
    ("boot loop", {"boots_24h": {"count": 6, "reason": "power"}}, "D204", "warning"),
    ("hung", {"boots_24h": {"count": 1, "reason": "watchdog"}}, "D204", "warning"),
    ("drop-in", {"drop_ins": ["/etc/systemd/system/rocketbox.service.d/x.conf"]}, "D204", "warning"),
    ("no network", {"addresses": []}, "D301", "error"),
    ("same address twice", {"duplicate_addresses": ["10.0.0.2"]}, "D301", "error"),
    ("wrong address", {"ports": [{"address": "192.168.9.9", "port": 10911, "reachable": False}]}, "D302", "error"),
    ("port taken", {"ports": [{"address": "127.0.0.1", "port": 10911, "taken_by": "java"}]}, "D302", "error"),
    ("open to all", {"access_mode": "open"}, "D303", "warning"),
    ("a network of everybody", {"access_open_to": ["0.0.0.0/0"]}, "D303", "warning"),
    ("certificate expiring", {"certificates": [{"path": "box.crt", "days": 12}]}, "D303", "warning"),
    ("certificate expired", {"certificates": [{"path": "box.crt", "days": -1}]}, "D303", "error"),
    ("unknown gateway", {"uplink": {"gateway": "nowhere:1", "resolved": False}}, "D310", "error"),
    ("gateway down", {"uplink": {"gateway": "c:1", "connected": False, "error": "refused"}}, "D310", "error"),
    ("no receipts", {"uplink": WELL["uplink"] | {"receipt_age_s": 7800.0}}, "D310", "warning"),
    ("foreign package", {"foreign_names": {"watchdog": "watchdog-pypi"}}, "D401", "error"),
    (
        "ended",
        {
            "health": {"state": "failing", "reasons": [{"code": "D200", "text": "ended", "next": "start it"}]},
            "ports": [{"address": "127.0.0.1", "port": 10911, "reachable": False}],
        },
        "D200",
        "error",
    ),
    (
        "reads only",
        {"health": {"state": "read_only", "reasons": [{"code": "D501", "text": "t", "next": "n"}]}},
        "D501",
        "error",
    ),
    (
        "the product's own word",
        {"health": {"state": "failing", "reasons": [{"code": "D501", "text": "t", "next": "n"}]}},
        "D501",
        "error",
    ),
]


@pytest.mark.parametrize(("cause", "code", "severity"), [row[1:] for row in CAUSES], ids=[row[0] for row in CAUSES])
def test_each_cause_is_named_with_a_reason_and_a_next_step(cause: dict[str, Any], code: str, severity: str) -> None:
    found = [one for one in examine(WELL | cause) if one.severity != "ok"]
    assert [(one.code, one.severity) for one in found] == [(code, severity)]
    assert found[0].value
    assert found[0].reason
    assert found[0].next


def test_a_box_that_is_well_has_only_good_findings_and_exit_0() -> None:
    findings = examine(WELL)
    assert {one.severity for one in findings} == {"ok"}
    assert exit_status(findings) == 0
    assert exit_status(examine(WELL | {"access_mode": "open"})) == 1
    assert exit_status(examine(WELL | {"watchdog": None})) == 2


@pytest.mark.parametrize(("count", "words"), [(1, "1 boot in 24 h"), (2, "2 boots in 24 h")])
def test_boots_are_counted(count: int, words: str) -> None:
    (found,) = examine({"boots_24h": {"count": count, "reason": "power"}})
    assert found.value.startswith(words)


def test_missing_facts_find_nothing() -> None:
    assert examine({}) == []


def test_the_file_system_is_to_be_changed_under_the_folder_that_was_looked_at() -> None:
    there = WELL["file_system"] | {"mount": "/", "folder": "/srv/rocketbox"}
    (found,) = [finding for finding in examine(WELL | {"file_system": there}) if finding.code == "D103"]
    assert "/srv/rocketbox" in found.next


def test_the_kernel_settings_are_set_with_the_program_that_root_finds() -> None:
    differ = WELL | {"sysctl": SHIPPED_SYSCTL | {"vm.dirty_bytes": 0}}
    (found,) = [one for one in examine(differ) if one.severity != "ok"]
    assert found.next == "as root: `rocketbox doctor --fix`"
    (found,) = [one for one in examine(differ | {"program": "/env/bin/rocketbox"}) if one.severity != "ok"]
    assert found.next == "as root: `/env/bin/rocketbox doctor --fix`"


@pytest.mark.parametrize(("name", "facts", "code", "severity"), CAUSES, ids=[each[0] for each in CAUSES])
def test_in_a_container_no_step_is_one_of_a_machine(name: str, facts: dict[str, Any], code: str, severity: str) -> None:
    found = [one for one in examine(WELL | facts | {"container": True}) if one.severity != "ok"]
    assert [one.code for one in found] == ([] if code == "D202" else [code])
    for one in found:
        tool = re.search(
            r"as root|swapoff|du -xh|nft|ip address|resolvectl|timedatectl|fstab|mount with|^echo", one.next
        )
        assert tool is None or one.next.startswith("on the host: ")
