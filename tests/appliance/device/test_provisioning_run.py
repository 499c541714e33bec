"""The bench's commands as a technician types them, against a box that is a folder at a real pseudo terminal."""

import argparse
import json
import os
from pathlib import Path

import pytest

from appliance.commands.device import flash, fleet, provision
from appliance.device.provisioning_run import box_line, bundle_version, render_config
from provisioning.box import Box
from provisioning.errors import ProvisioningError
from provisioning.testing import signed_bundle
from tests.appliance.technician import Bench


@pytest.mark.slow
def test_a_box_is_provisioned_with_one_command_and_the_second_run_changes_nothing(bench: Bench) -> None:
    bundle = signed_bundle(bench.folder, Box(bench.box))
    words = ("provision", "--port", bench.port, "--name", "press-007", "--bundle", str(bundle), "--yes")
    first = bench.run(*words)
    assert first.returncode == 0, first.stderr
    for part in ("Box       RBX-0007, model x1", "Claim", "version - → 1.4.0", "100%", "Done      RBX-0007 runs 1.4.0"):
        assert part in first.stdout
    assert 'name = "press-007"' in (bench.box / "etc/rocketbox/rocketbox.toml").read_text()
    assert json.loads((bench.folder / "receipts/RBX-0007.json").read_text())["version"] == "1.4.0"
    assert (bench.folder / "home/.config/rocketbox/fleet-secret").stat().st_mode & 0o777 == 0o600
    again = bench.run(*words)
    assert "nothing changes" in again.stdout
    assert "100%" not in again.stdout


@pytest.mark.slow
def test_errors_have_their_code_and_their_exit_status(bench: Bench) -> None:
    assert bench.run("provision", "--port", bench.port, "--name", "one", "--yes").returncode == 0
    other = bench.folder / "other"
    other.write_text("ff" * 32)
    for words, code, text in (
        (("--port", bench.port, "--name", "x", "--secret", str(other), "--yes"), 4, "E202"),
        (("--port", bench.port, "--serial", "RBX-9999"), 3, "E101"),
    ):
        done = bench.run("provision", *words)
        assert (done.returncode, text in done.stderr) == (code, True), (words, done.stdout, done.stderr)


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (("provision", "--port", "/dev/ttyNOPE", "--set", "store.segment_mib=9999"), 6, "E401"),
        (("provision", "--port", "/dev/ttyNOPE", "--set", "store.nonsense=1"), 6, "E401"),
        (("provision", "--port", "/dev/ttyNOPE"), 3, "E101"),
        (("provision", "--port", "/dev/ttyNOPE", "--bundle", "no.rbx"), 5, "E303"),
        (("flash", "disk", "app.rbx", "--to", "new.img"), 5, "not a disk image"),
        (("flash", "disk", "box.img", "--to", "new.img", "--serial", "a b"), 5, "not a valid serial"),
        (("flash", "disk", "none.img", "--to", "new.img"), 5, "none.img"),
        (("fleet", "apply", "boxes.csv", "--port", "/dev/ttyNOPE", "--yes"), 6, "E401"),
    ],
)
def test_what_is_refused_before_a_port_is_opened_has_its_exit_status_too(
    words: tuple[str, ...],
    code: int,
    text: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "boxes.csv").write_text("name,serial\nX,1\n")
    (tmp_path / "box.img").write_bytes(bytes(512) + b"EFI PART" + bytes(1000))
    (tmp_path / "app.rbx").write_bytes(b"RBX1" + bytes(5000))
    parser = argparse.ArgumentParser()
    command = {"provision": provision, "fleet": fleet, "flash": flash}[words[0]]
    command.add_arguments(parser)
    assert command.run(parser.parse_args(words[1:])) == code
    assert text in capsys.readouterr().err
    assert not (tmp_path / "new.img").exists()


@pytest.mark.slow
def test_json_is_one_object_a_line_and_nobody_to_ask_means_no_change(bench: Bench) -> None:
    done = bench.run("provision", "--port", bench.port, "--name", "one", "--json")
    events = [json.loads(line)["event"] for line in done.stdout.splitlines()]
    assert (done.returncode, events[:3], events[-1]) == (2, ["port", "box", "plan"], "warning")
    assert Box(bench.box).identity()["claimed"] is None
    assert not (bench.box / "etc/rocketbox/rocketbox.toml").exists()
    dry = bench.run("provision", "--port", bench.port, "--name", "one", "--dry-run")
    assert (dry.returncode, "set box.name = 'one'" in dry.stdout) == (0, True)


@pytest.mark.slow
def test_a_fleet_file_is_applied_labelled_and_skipped_the_second_time(bench: Bench) -> None:
    (bench.folder / "boxes.csv").write_bytes("\ufeffname;serial;site\r\npress-{n:03d};;Hall 3\r\n".encode())
    words = ("fleet", "apply", "boxes.csv", "--port", bench.port, "--yes")
    asked = bench.run(*words[:-1])
    assert (asked.returncode, "Plan      press-001: RBX-0007" in asked.stdout) == (2, True)
    assert Box(bench.box).identity()["claimed"] is None
    assert "Done      press-001            RBX-0007" in bench.run(*words).stdout
    again = bench.run(*words)
    assert "Total     0 done, 1 skipped, 0 failed" in again.stdout
    assert "RBX-0007,press-001,Hall 3,dhcp" in (bench.folder / "labels.csv").read_text()
    assert "<svg" in (bench.folder / "labels.html").read_text()


@pytest.mark.slow
def test_an_image_is_flashed_into_a_file(bench: Bench) -> None:
    (bench.folder / "box.img").write_bytes(bytes(512) + b"EFI PART" + os.urandom(100_000))
    done = bench.run("flash", "disk", "box.img", "--to", "out.img")
    assert (done.returncode, "read back equal" in done.stdout) == (0, True)
    assert (bench.folder / "out.img").read_bytes() == (bench.folder / "box.img").read_bytes()


def test_a_boxs_configuration_is_the_template_with_its_own_values(tmp_path: Path) -> None:
    template = tmp_path / "t.toml"
    template.write_text("# kept\n[store]\nsegment_mib = 64\n")
    made = render_config(template, name="press-007", site="Hall", settings={"store.segment_mib": "128"})
    assert made is not None
    text = made.decode()
    assert "# kept" in text
    assert "segment_mib = 128" in text
    assert 'name = "press-007"' in text
    assert render_config(None, name="", site="", settings={}) is None
    with pytest.raises(ProvisioningError, match="not a setting: `rocketbox config show`"):
        render_config(None, name="", site="", settings={"a.b": "1"})
    with pytest.raises(ProvisioningError, match=r'not a setting, did you mean "listen\.host"'):
        render_config(None, name="", site="", settings={"listen.hots": "1"})


def test_a_file_that_is_no_bundle_is_refused_before_any_port_is_opened(tmp_path: Path) -> None:
    (tmp_path / "x.rbx").write_bytes(b"hello world, this is no bundle")
    with pytest.raises(ProvisioningError, match="not a rocketbox bundle"):
        bundle_version(tmp_path / "x.rbx")
    whole = signed_bundle(tmp_path)
    assert bundle_version(whole) == "1.4.0"
    data = whole.read_bytes()
    for spoilt in (data[:-100], data[:-3] + b"???"):
        whole.write_bytes(spoilt)
        with pytest.raises(ProvisioningError, match="fetch it again"):
            bundle_version(whole)
    assert bundle_version(None) == ""


def test_a_box_describes_itself_in_one_line() -> None:
    identity = {"serial": "R", "name": "n", "model": "x1", "version": "1", "slot": "a", "claimed": None, "state": "ok"}
    assert box_line(identity) == "R n, model x1, version 1 in slot a, unclaimed, state ok"
