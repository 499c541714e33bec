"""The Debian package: installed with apt under real systemd, serving, upgraded, removed, purged."""

import io
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from appliance.configuration.settings_docs import template
from tests.systemd.debian import NEWER, Debian, build_packages, debian_root, needs_debian

pytestmark = [pytest.mark.soak, needs_debian]
SUITES = ("bookworm", "trixie")
SETTING = 'name = "press-17"\n'
CONFIG = "/etc/rocketbox/rocketbox.toml"
NEWEST = "0.9.2"


@pytest.fixture(scope="module")
def newest(newer: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a package that brings another template of the configuration."""
    tree = tmp_path_factory.mktemp("newest")
    subprocess.run(["dpkg-deb", "-R", newer, tree / "root"], check=True)
    control = tree / "root/DEBIAN/control"
    control.write_text(control.read_text().replace(f"Version: {NEWER}", f"Version: {NEWEST}"))
    with (tree / "root" / CONFIG[1:]).open("a") as out:
        out.write("# a comment of the next version\n")
    target = tree / f"rocketbox_{NEWEST}_amd64.deb"
    subprocess.run(["dpkg-deb", "--root-owner-group", "-Znone", "-b", tree / "root", target], check=True)
    return target


@pytest.fixture(params=SUITES)
def debian(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Debian]:
    machine = Debian(tmp_path, request.param)
    try:
        machine.start()
        yield machine
    finally:
        machine.stop()
        shutil.rmtree(tmp_path / "root")


def consume(machine: Debian, group: str) -> str:
    """Return the whole topic T, as a group that is new."""
    words = ["--group", group, "--from", "first", "--max", "1", "--timeout", "30", "T"]
    return machine.done("rocketbox", "consume", *words)


def test_apt_installs_a_box_that_serves_and_that_an_upgrade_restarts_with_data_and_settings_kept(
    debian: Debian, packages: dict[str, Path], newer: Path, newest: Path
) -> None:
    debian.install(packages["amd64"])
    debian.wait_for("rocketbox.service")
    debian.done("rocketbox", "send", "T", "hello")
    assert "hello" in consume(debian, "first")
    assert re.search(r"^Version .*, compiled$", debian.done("rocketbox", "status"), re.MULTILINE)
    assert debian.run("systemctl", "is-system-running").stdout.strip() == "running"
    debian.stop()
    debian.start()
    debian.wait_for("rocketbox.service")  # enabled at boot, too
    assert "hello" in consume(debian, "second")
    assert debian.done("dpkg", "--verify", "rocketbox") == ""
    provision(debian)
    upgrade(debian, newer)
    upgrade_template(debian, newest)
    remove_and_purge(debian, newest)


def provision(debian: Debian) -> None:
    """Set the box up over what stands in for its serial line; it needs no slots for that."""
    line = ("--unit=line", "--property=UMask=0077", "/usr/bin/rocketbox", "device", "--listen", "7777")
    debian.done("rocketbox", "factory", "make", "RBX-0007", "--model", "x1", "--seconds", "1", "--yes")
    debian.done("systemd-run", *line)
    debian.wait_until(lambda: "ready port=" in debian.journal("line.service"), "the serial line's stand-in")
    bench = [sys.executable, "-m", "appliance", "provision", "--port", "socket://127.0.0.1:7777", "--yes"]
    bench += ["--name", "press-007", "--set", "listen.host=0.0.0.0", "--receipts", str(debian.folder)]
    done = debian.outside(*bench, home=debian.folder)
    assert done.returncode == 0, done.stdout + done.stderr + debian.journal()
    assert "press-007" in debian.done("rocketbox", "brokers")
    debian.done("systemctl", "stop", "line.service")


def upgrade(debian: Debian, newer: Path) -> None:
    debian.done("rocketbox", "config", "set", "box.name=press-17")
    changed = (debian.root / CONFIG[1:]).read_text()
    client, before = debian.client("20", "30"), debian.main_pid()
    assert client.stdout
    first = client.stdout.readline()
    assert "rocketbox.toml" not in debian.install(newer)  # the template is the same: nothing to ask
    said = {line.split()[2] for line in (first + client.stdout.read()).splitlines()}
    assert client.wait(60) == 0
    assert "ok" in said
    assert "ConnectionRefusedError" not in said
    debian.wait_for("rocketbox.service")
    assert debian.main_pid() not in (0, before)
    assert debian.health()["version"] == NEWER
    assert (debian.root / CONFIG[1:]).read_text() == changed
    assert "press-17" in debian.done("rocketbox", "brokers")
    assert "hello" in consume(debian, "third")


def upgrade_template(debian: Debian, newest: Path) -> None:
    debian.done("rocketbox", "safe", "enter", "tried")
    said = debian.install(newest, "-o", "Dpkg::Options::=--force-confold")
    assert "rocketbox: not started, the box is in safe mode: tried. To start it: sudo rocketbox safe leave" in said
    debian.done("rocketbox", "safe", "leave")
    assert SETTING in (debian.root / CONFIG[1:]).read_text()
    assert "next version" in (debian.root / f"{CONFIG[1:]}.dpkg-dist").read_text()
    debian.wait_for("rocketbox.service")
    assert "hello" in consume(debian, "fourth")


def remove_and_purge(debian: Debian, package: Path) -> None:
    root = debian.root
    for file in (root / "usr/lib/rocketbox/lib/watchdog/__pycache__").iterdir():
        file.unlink()  # as py3compile leaves it on a full disk
    debian.apt("remove", "rocketbox")
    assert not (root / "usr/lib/rocketbox").exists()
    assert debian.run("systemctl", "is-active", "rocketbox.service", "rocketbox-broker.socket").returncode != 0
    output, _ = debian.client("0.2", "2").communicate(timeout=60)
    assert "ConnectionRefusedError" in output
    assert SETTING in (root / CONFIG[1:]).read_text()
    debian.install(package, "-o", "Dpkg::Options::=--force-confold")
    debian.wait_for("rocketbox.service")
    assert debian.run("systemctl", "is-active", "rocketbox-settled.path").stdout.strip() == "active"
    assert "hello" in consume(debian, "fifth")
    said = debian.apt("purge", "rocketbox")
    assert re.search(r"rocketbox: /var/lib/rocketbox stays, \S+ in use", said)
    assert (root / "var/lib/rocketbox/store").is_dir()
    assert not (root / "etc/rocketbox").exists()
    assert list((root / "etc/systemd/system").rglob("rocketbox*")) == []


def test_a_purge_leaves_nothing_where_no_message_was_stored_and_a_masked_service_is_not_started(
    debian: Debian, packages: dict[str, Path]
) -> None:
    units = ("rocketbox.service", "rocketbox-broker.socket", "rocketbox-namesrv.socket", "rocketbox-slot.service")
    debian.done("systemctl", "mask", *units)
    debian.install(packages["amd64"])
    assert debian.run("systemctl", "is-active", *units).stdout.split() == ["inactive"] * len(units)
    assert "stays" not in debian.apt("purge", "rocketbox")
    left = [
        path for name in ("etc", "usr", "var/lib", "run", "opt") for path in (debian.root / name).rglob("rocketbox*")
    ]
    masks = [debian.root / "etc/systemd/system" / name for name in units]
    assert sorted(left) == sorted(masks)


@pytest.mark.skipif(shutil.which("lintian") is None, reason="lintian is missing")
def test_lintian_has_nothing_to_say(packages: dict[str, Path]) -> None:
    words = ["lintian", "--allow-root", "--fail-on", "error,warning", "--tag-display-limit", "0"]
    done = subprocess.run([*words, *packages.values()], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_same_commit_gives_the_same_bytes(packages: dict[str, Path], tmp_path: Path) -> None:
    again = build_packages(tmp_path, *packages)
    assert {arch: path.read_bytes() for arch, path in again.items()} == {
        arch: path.read_bytes() for arch, path in packages.items()
    }


@pytest.mark.parametrize(("arch", "machine"), [("amd64", 62), ("arm64", 183)])
def test_every_compiled_module_is_for_the_packages_processor_and_both_pythons_have_all(
    packages: dict[str, Path], arch: str, machine: int
) -> None:
    listed = subprocess.run(["dpkg-deb", "--fsys-tarfile", packages[arch]], check=True, capture_output=True).stdout
    found = {}
    with tarfile.open(fileobj=io.BytesIO(listed)) as archive:
        for row in archive:
            assert (row.uid, row.gid, row.mode & 0o022) == (0, 0, 0) or row.issym()
            if row.name.endswith(".so"):
                taken = archive.extractfile(row)
                assert taken is not None
                head = taken.read(20)
                found[row.name.rpartition("/")[2]] = (head[:4], int.from_bytes(head[18:20], "little"))
    assert set(found.values()) == {(b"\x7fELF", machine)}
    tagged = {
        python: {name.partition(".")[0] for name in found if f"cpython-{python}" in name} for python in (311, 313)
    }
    checksums = {"_isal", "igzip_lib", "isal_zlib"}
    assert tagged[311] == tagged[313] == {"_cbor2", "_speedups", "orjson", "rocketbox"} | checksums
    assert "_psutil_linux.abi3.so" in found


@pytest.mark.parametrize("suite", SUITES)
def test_the_command_runs_on_an_emulated_arm64(suite: str, packages: dict[str, Path], tmp_path: Path) -> None:
    """The root is unpacked and not set up: an emulator without binfmt_misc starts one program and no other."""
    emulator = shutil.which("qemu-aarch64-static")
    if emulator is None:
        pytest.skip("missing: apt-get install qemu-user-static")
    root = debian_root(suite, tmp_path / "root", "arm64")
    try:
        subprocess.run(["dpkg-deb", "-x", packages["arm64"], root], check=True)
        shutil.copy(emulator, root / "emulator")
        python = ["chroot", str(root), "/emulator", "/usr/lib/rocketbox/env/bin/python", "-I"]
        done = subprocess.run([*python, "-m", "appliance", "--version"], capture_output=True, text=True, check=False)
        version = packages["arm64"].name.split("_")[1]
        assert done.stdout == f"rocketbox {version}\n", done.stderr
        code = "import appliance.compiled as compiled, appliance.commands.box.serve; "
        code += "import storage_driver.record as record; print([compiled.why_pure()], type(record.decode_record))"
        done = subprocess.run([*python, "-c", code], capture_output=True, text=True, check=False)
        assert done.stdout == "[''] <class 'builtin_function_or_method'>\n", done.stderr
        code = "import cbor2, markupsafe._speedups, orjson, os, psutil; "
        code += "print(os.uname().machine, cbor2.loads(cbor2.dumps(7)), orjson.dumps([psutil.Process().pid > 0]))"
        done = subprocess.run([*python, "-c", code], capture_output=True, text=True, check=False)
        assert done.stdout == "aarch64 7 b'[true]'\n", done.stderr
    finally:
        shutil.rmtree(tmp_path / "root")


def test_the_configuration_comes_as_a_conffile_with_every_key_commented_out(packages: dict[str, Path]) -> None:
    for package in packages.values():
        listed = subprocess.run(["dpkg-deb", "-I", package, "conffiles"], check=True, capture_output=True, text=True)
        assert listed.stdout.split() == [CONFIG]
        tree = subprocess.run(["dpkg-deb", "--fsys-tarfile", package], check=True, capture_output=True).stdout
        with tarfile.open(fileobj=io.BytesIO(tree)) as archive:
            taken = archive.extractfile(f".{CONFIG}")
            assert taken is not None
            assert taken.read().decode() == template()
