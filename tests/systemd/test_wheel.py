"""The wheel and the source archive: the same bytes twice, no name of another package, a box that runs out of it."""

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from appliance import compiled
from tests.ports import free_port

TOP = Path(__file__).resolve().parents[2]
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("wheel")]
CLEAN = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "ROCKETBOX_PURE")}
THEIRS = "whose = 'another package'\n"


def build(tree: Path, out: Path, *libraries: Path) -> dict[str, bytes]:
    words = [sys.executable, "systemd/wheel/rocketbox_wheel.py", str(out), *map(str, libraries)]
    subprocess.run(words, cwd=tree, env=CLEAN | {"SOURCE_DATE_EPOCH": "1700000000"}, check=True, capture_output=True)
    return {path.name: path.read_bytes() for path in out.iterdir()}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with both archives, built of a copy: a build writes beside its sources."""
    work = tmp_path_factory.mktemp("wheel")
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=TOP, check=True, capture_output=True).stdout.decode().split("\0")
    for name in filter(None, names):
        if (TOP / name).is_file():
            (work / "tree" / name).parent.mkdir(parents=True, exist_ok=True)
            (work / "tree" / name).write_bytes((TOP / name).read_bytes())
    first = build(work / "tree", work / "one")
    for path in (work / "tree").rglob("*"):
        os.utime(path)  # a checkout of another day
    assert build(work / "tree", work / "two") == first
    return work / "one"


def pip_install(home: Path, wheel: Path) -> None:
    words = [sys.executable, "-m", "pip", "-q", "--python", str(home / "bin/python"), "install"]
    subprocess.run([*words, "--no-deps", "--no-index", "--no-compile", "--ignore-installed", str(wheel)], check=True)


@pytest.fixture(scope="module")
def installed(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the Python of an environment with the wheel, this one's libraries, and an older `watchdog`."""
    home = tmp_path_factory.mktemp("installed")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", home], check=True)
    (site,) = home.glob("lib/python3*/site-packages")
    (site / "watchdog").mkdir()
    (site / "watchdog/__init__.py").write_text(THEIRS)
    libraries = next(path for path in sys.path if path.endswith("site-packages"))
    (site / "zz-libraries.pth").write_text(f"{libraries}\n")
    (wheel,) = built.glob("*.whl")
    pip_install(home, wheel)
    assert (site / "watchdog/__init__.py").read_text() == THEIRS
    return home / "bin/python"


def test_the_same_sources_give_the_same_bytes_and_every_name_lies_below_rocketbox(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        tops = {name.partition("/")[0].partition("-")[0] for name in archive.namelist()}
    assert tops == {"rocketbox", "rocketbox.pth"}
    assert len(list(built.glob("*.tar.gz"))) == 1


def test_what_has_no_wheel_for_a_32_bit_python_is_installed_only_when_asked_for(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        (about,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        needs = [line for line in archive.read(about).decode().splitlines() if line.startswith("Requires-Dist: isal")]
    assert needs
    assert all("extra == " in line for line in needs)


def test_beside_another_watchdog_a_program_imports_that_one_and_only_the_open_folders_of_ours(
    installed: Path, tmp_path: Path
) -> None:
    code = """if True:
        import importlib.util as find, watchdog, netstack, storage_driver, uplink_spark
        print(watchdog.whose, *(find.find_spec(name) for name in ("appliance", "provisioning")))
        print(*(module.__file__ for module in (netstack, storage_driver, uplink_spark)), sep="\\n")"""
    said = subprocess.run([installed, "-c", code], cwd=tmp_path, env=CLEAN, check=True, capture_output=True, text=True)
    whose, *files = said.stdout.splitlines()
    assert whose == "another package None None"
    assert all(str(installed.parents[1]) in file and "/rocketbox/open/" in file for file in files)


def test_a_box_out_of_the_wheel_takes_its_first_message(installed: Path, tmp_path: Path) -> None:
    command, namesrv = str(installed.parent / "rocketbox"), free_port()
    serve = [command, "serve", "--data", "data", "--namesrv-port", str(namesrv), "--broker-port", "0"]
    with subprocess.Popen(serve, cwd=tmp_path, env=CLEAN, stdout=subprocess.PIPE, text=True) as box:
        try:
            assert box.stdout is not None
            assert "data" in box.stdout.readline()
            send = [command, "send", "--namesrv", f"127.0.0.1:{namesrv}", "T", "hello"]
            sent = subprocess.run(send, cwd=tmp_path, env=CLEAN, check=False, capture_output=True, text=True)
            assert sent.returncode == 0, sent.stdout + sent.stderr
        finally:
            box.terminate()
    assert box.returncode == 0


def test_a_command_that_another_starts_finds_the_folders_of_the_wheel(installed: Path, tmp_path: Path) -> None:
    code = """if True:
        import rocketbox, sys
        from pathlib import Path
        here = Path(rocketbox.__file__).parent
        sys.path[:0] = [str(here / "own"), str(here / "open")]
        from appliance.support.sources import BoxFolders, rocketbox
        print(rocketbox(BoxFolders(Path("data"), Path("run"), None), "status"))"""
    said = subprocess.run([installed, "-c", code], cwd=tmp_path, env=CLEAN, check=False, capture_output=True, text=True)
    assert "No module named" not in said.stdout + said.stderr
    assert "exit" in said.stdout, said.stderr  # no box runs there: the command itself says so


@pytest.mark.soak  # in make test-packages
@pytest.mark.skipif(not compiled.LIBRARY.exists(), reason="nothing is compiled here: no C compiler")
def test_a_wheel_with_a_library_fits_one_python_and_runs_compiled(built: Path, installed: Path, tmp_path: Path) -> None:
    library, home = tmp_path / compiled.LIBRARY.name, tmp_path / "home"
    shutil.copy(compiled.LIBRARY, library)
    told = json.loads(compiled.LIBRARY.with_suffix(".json").read_bytes())
    library.with_suffix(".json").write_text(json.dumps({**told, "sources": []}))
    files = build(built.parent / "tree", tmp_path / "out", library)
    assert build(built.parent / "tree", tmp_path / "again", library) == files
    wheel = next(tmp_path / "out" / name for name in files if "manylinux" in name)
    python = "cp{}{}".format(*sys.version_info)
    assert wheel.name.endswith(f"-{python}-{python}-manylinux_2_28_{os.uname().machine}.whl")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", home], check=True)
    (site,) = home.glob("lib/python3*/site-packages")
    shutil.copy(next(installed.parents[1].glob("lib/python3*/site-packages/zz-libraries.pth")), site)
    pip_install(home, wheel)
    code = """if True:
        import contextlib, sys, rocketbox
        sys.argv = ["rocketbox", "--version"]
        with contextlib.suppress(SystemExit): rocketbox.main()
        import appliance.compiled as compiled, storage_driver.record as record
        print([compiled.why_pure()], type(record.decode_record).__name__)"""
    said = subprocess.run([home / "bin/python", "-c", code], env=CLEAN, check=True, capture_output=True, text=True)
    assert said.stdout.splitlines()[-1] == "[''] builtin_function_or_method"
