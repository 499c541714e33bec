"""What a bench learns over a cable without the owner's secret: health and findings; where it puts a support bundle."""

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from appliance.__main__ import main
from appliance.device.device_actions import health_that_fits, rows_that_fit
from appliance.device.over_serial import _ask
from provisioning.box import DeviceActions
from provisioning.errors import ProvisioningError
from provisioning.frame import RESULT, SerialFrameDecoder, encode_frame
from provisioning.testing import Cable, folder_box, run_box

SAFE = {"state": "safe", "reasons": [{"code": "D302", "text": "port 9876 is taken", "next": "stop it"}]}
FOUND = {"findings": [{"code": "D302", "severity": "error", "value": "9876", "reason": "taken", "next": "stop it"}]}


async def test_the_box_at_the_cable_is_asked_by_whoever_has_the_cable(tmp_path: Path) -> None:
    cable, box = Cable(tmp_path), folder_box(tmp_path / "box")
    box.hands = DeviceActions(status=lambda: SAFE, doctor=lambda: FOUND)
    arguments = argparse.Namespace(port=cable.name, serial="", baud=115200, json=False)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(run_box, cable, box)
        for operation, expected in (("status", SAFE), ("doctor", FOUND)):
            answer: dict[str, Any] = {}
            await _ask(arguments, operation, answer)
            assert answer == expected
        arguments.serial = "RBX-0008"
        with pytest.raises(ProvisioningError, match=r"RBX-0007 at .* answers, not RBX-0008"):
            await _ask(arguments, "status", {})
        nursery.cancel_scope.cancel()


@contextmanager
def answering(monkeypatch: pytest.MonkeyPatch, **replies: dict[str, Any]) -> Iterator[None]:
    with monkeypatch.context() as patch:
        patch.setattr("appliance.device.over_serial.ask_over_serial", lambda arguments, operation: replies[operation])
        yield


def test_the_commands_tell_that_box_and_exit_by_its_state(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with answering(monkeypatch, status=SAFE, doctor=FOUND):
        assert main(["status", "--over-serial"]) == 2
        assert capsys.readouterr().out.splitlines()[:2] == ["State     safe", "  ! D302  port 9876 is taken"]
        assert main(["doctor", "--over-serial"]) == 2
        assert capsys.readouterr().out.splitlines()[0] == "✗ D302  9876"
        assert main(["doctor", "--over-serial", "--fix"]) == 2
        assert "for the box itself" in capsys.readouterr().err
    with answering(monkeypatch, status={"state": "ok"}, doctor={"findings": []}):
        assert main(["status", "--over-serial"]) == 0
        assert main(["doctor", "--over-serial"]) == 0
        assert capsys.readouterr().out == "State     ok\nnothing wrong\n"


def test_a_port_without_a_box_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("status", "doctor"):
        assert main([command, "--over-serial", "--port", "/dev/nowhere"]) == 2
        assert capsys.readouterr().err.startswith("rocketbox: E101 there is no /dev/nowhere")


def test_a_box_with_a_hundred_conditions_fits_into_a_frame_and_says_how_many_are_left_out() -> None:
    row = {"code": "D601", "state": "degraded", "text": "ü" * 2000, "next": "start it", "id": "group_without_member:b"}
    told = health_that_fits({"state": "degraded", "reasons": [row] * 100, "muted": [row] * 100})
    assert SerialFrameDecoder().feed(encode_frame([RESULT, 1, told]))
    assert told["reasons"][-1]["text"] == f"{101 - len(told['reasons'])} more reasons are not sent over this line"
    assert health_that_fits(SAFE) == SAFE
    findings = {"findings": rows_that_fit([row] * 40)}
    assert SerialFrameDecoder().feed(encode_frame([RESULT, 1, findings]))


async def bundled(arguments: argparse.Namespace, wanted: Path, bench: object, console: object) -> int:
    await trio.Path(wanted).write_bytes(b"the bundle")
    return 0


def test_a_support_bundle_for_standard_output_is_all_that_is_written_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    monkeypatch.setattr("appliance.commands.box.support._over_serial", bundled)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert main(["support", "--over-serial", "--to", "-"]) == 0
    assert capfdbinary.readouterr().out == b"the bundle"
    assert list(tmp_path.iterdir()) == []
    assert main(["support", "--over-serial", "--to", "b.tar.gz"]) == 0
    assert Path("b.tar.gz").read_bytes() == b"the bundle"
