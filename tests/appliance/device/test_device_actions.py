import time
from pathlib import Path

import pytest

from appliance.device import device_actions
from appliance.device.device_actions import RestartProgress, check_config, real_hands, run, why_failed
from provisioning.testing import folder_box


def test_a_wrong_configuration_is_told_as_serve_would_tell_it() -> None:
    assert check_config("[store]\nsegment_mib = 64\n") == []
    (*_, last) = check_config("[store]\nsegment_mb = 64\nqueues_default = 0\n")
    found = " ".join(check_config("[store]\nsegment_mb = 64\nqueues_default = 0\n"))
    assert "segment_mb" in found
    assert "queues_default" in found
    assert last


def test_a_host_that_is_no_address_is_told_and_one_that_may_come_is_not() -> None:
    (told,) = check_config('[listen]\nhost = "300.1.2.3"\n')
    assert told.startswith("listen.host = '300.1.2.3': no such address")
    assert check_config('[listen]\nhost = "192.0.2.7"\n') == []


def test_a_port_that_is_not_the_one_of_the_unit_is_told() -> None:
    (*_, told) = check_config("[listen]\nbroker_port = 20911\n", ports=lambda: {"broker": 10911})
    assert "port 10911 is opened by rocketbox-broker.socket" in told
    assert check_config("[listen]\nbroker_port = 20911\n", ports=dict) == []


def test_a_box_that_is_a_folder_never_touches_this_machine(tmp_path: Path) -> None:
    box = folder_box(tmp_path / "box")
    hands = real_hands(box)
    assert hands.reboot("x") is None
    assert hands.set_time(0) is None
    assert hands.selftest()["ok"]


def test_why_a_self_test_failed_is_read_from_the_one_that_ran(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = tmp_path / "selftest.json"
    monkeypatch.setattr(device_actions, "selftest", lambda: {"ok": False, "failed": "asked again"})
    assert why_failed(1000.5, kept) == "asked again"
    kept.write_text('{"wall_s": 999, "ok": false, "failed": "an earlier one"}\n')
    assert why_failed(1000.5, kept) == "asked again"
    kept.write_text('{"wall_s": 1000, "ok": false, "failed": "route: no answer"}\n')
    assert why_failed(1000.5, kept) == "route: no answer"


def test_a_program_that_is_missing_prints_nothing() -> None:
    assert run("/no/such/program") == ""


def test_a_restart_and_the_self_test_behind_it_tell_their_own_progress() -> None:
    told: list[tuple[str, int, int]] = []
    watched = RestartProgress(lambda *step: told.append(step))
    began_s = time.monotonic()
    for after_s, testing in ((1, False), (15, False), (16, True), (46, True), (200, True), (201, False)):
        watched.tell(began_s + after_s, testing=testing)
    assert [(stage, total) for stage, _, total in told] == [("restart", 10)] * 2 + [("self-test", 120)] * 4
    assert [done for _, done, _ in told] == [1, 10, 0, 30, 120, 120]


@pytest.mark.parametrize(
    ("said", "works"),
    [
        ({"is-active": "active\n", "is-enabled": "enabled\n"}, True),
        ({"is-active": "inactive\n", "is-enabled": "enabled\n"}, True),
        ({"is-active": "inactive\n", "is-enabled": "disabled\n"}, False),
        ({"is-active": "inactive\n", "is-enabled": ""}, False),
    ],
)
def test_an_address_that_no_service_of_this_box_would_read_is_refused(
    said: dict[str, str], works: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_actions, "run", lambda program, verb, unit: said[verb])
    assert (device_actions.network_problem() == "") == works
