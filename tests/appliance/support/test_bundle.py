"""The bundle of a box in any state: complete where it can be, honest where not, within its cap, without secrets."""

from __future__ import annotations

import gzip
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
import trio

from appliance.__main__ import main
from appliance.device.device_actions import real_hands
from appliance.support import bundle
from appliance.support.bundle import NowhereToWrite, make_bundle, write_bundle
from appliance.support.sources import BoxFolders
from provisioning.testing import folder_box
from tests.appliance.box import connected, running_box, send

ROOT = Path(__file__).parents[3]
Capture = pytest.CaptureFixture[str]
SECRETS = {
    "page": "Zm9vYmFyLXBhZ2UtdG9rZW4x",
    "uplink": "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
    "account": "account-secret-7781",
    "owner": "fedcba9876543210fedcba9876543210",
    "toml": "password-in-the-file",
    "journal": "spoken-in-the-journal",
    "key": "MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgevil",
    "verdict": "note-secret-5512",
}


def planted(root: Path) -> BoxFolders:
    """Make a box's folders with a secret in every place where one may be."""
    data, etc, runtime = root / "var/lib/rocketbox", root / "etc/rocketbox", root / "run/rocketbox"
    files = {
        data / "page.token": SECRETS["page"] + "\n",
        data / "uplink.secret": SECRETS["uplink"] + "\n",
        data / "access/accounts.json": json.dumps({"accounts": [{"name": "a", "secret": SECRETS["account"]}]}),
        data / "tls/box.key": f"-----BEGIN PRIVATE KEY-----\n{SECRETS['key']}\n-----END PRIVATE KEY-----\n",
        etc / "owner": json.dumps({"owner_id": "acme", "secret": SECRETS["owner"]}),
        etc / "rocketbox.toml": f"[box]\nname = 'press-17'\n# password = {SECRETS['toml']}\n",
        data / "watchdog/boots.jsonl": f'{{"number": 1, "said": "{SECRETS["page"]}"}}\n',
        data / "watchdog/exits.jsonl": f'{{"exit": 1, "stack": "key {SECRETS["key"]}"}}\n',
        data / "verdicts/store-1.json": json.dumps({"verdict": "clean", "token": SECRETS["verdict"]}),
        data / "store/config/topics.json": json.dumps({"topicConfigTable": {SECRETS["uplink"]: {}}}),
        data / "store/commitlog/00000000000000000000": "message bodies",
        runtime / "health.json": json.dumps({"state": "ok", "reasons": [{"text": SECRETS["account"]}]}),
    }
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return BoxFolders(data, runtime, etc / "rocketbox.toml", root)


def files_of(data: bytes) -> dict[str, str]:
    with tarfile.open(fileobj=io.BytesIO(data)) as packed:
        found = {}
        for member in packed.getmembers():
            content = packed.extractfile(member)
            assert content is not None
            found[member.name.removeprefix("rocketbox-support/")] = content.read().decode()
    return found


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A journal that quotes a secret, on the path before the real one."""
    folder = tmp_path / "programs"
    folder.mkdir()
    said = f"Nov 21 box rocketbox[7]: event=x secretKey={SECRETS['journal']} and the token {SECRETS['page']}"
    (folder / "journalctl").write_text(f"#!/bin/sh\necho '{said}'\n")
    (folder / "journalctl").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return folder


@pytest.mark.slow
@pytest.mark.usefixtures("programs")
def test_no_planted_secret_and_no_message_is_in_the_bundle(tmp_path: Path) -> None:
    made = make_bundle(planted(tmp_path / "box"))
    whole = gzip.decompress(made.data).decode(errors="replace")
    assert [name for name, secret in SECRETS.items() if secret in whole] == []
    assert "message bodies" not in whole
    assert "press-17" in whole
    files = files_of(made.data)
    assert "event=x" in files["journal.txt"]
    assert "clean" in files["verdicts/store-1.json"]
    assert made.manifest["redacted"]["known"] >= 5


@pytest.mark.slow
def test_the_manifest_names_what_is_there_what_was_taken_out_and_what_is_missing(tmp_path: Path) -> None:
    place = planted(tmp_path)
    (place.data / "watchdog/boots.jsonl").unlink()
    made = make_bundle(place)
    files = files_of(made.data)
    assert json.loads(files["manifest.json"]) == made.manifest
    assert {row["name"] for row in made.manifest["collected"]} == files.keys() - {"manifest.json"}
    missing = {row["name"]: row["reason"] for row in made.manifest["missing"]}
    assert missing["metrics.txt"] == "No such file or directory"  # the service is down
    assert all(missing.values())


@pytest.mark.slow
def test_the_cap_holds_and_says_what_was_left_out(tmp_path: Path) -> None:
    place = planted(tmp_path)
    noise = place.data / "watchdog/exits.jsonl"
    noise.write_text("".join(f"{os.urandom(40).hex()}\n" for _ in range(20_000)))
    made = make_bundle(place, cap=150_000)
    assert len(made.data) <= 150_000
    cut = next(row for row in [*made.manifest["collected"], *made.manifest["left_out"]] if "exits" in row["name"])
    assert cut.get("cut_bytes") or "over the limit" in cut["reason"]
    assert {row["name"] for row in made.manifest["left_out"]}
    assert "health.json" in files_of(made.data)


def test_a_full_disk_sends_it_into_memory_and_no_place_at_all_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bundle, "MEMORY_FOLDERS", (tmp_path,))
    full = tmp_path / "full"
    full.symlink_to("/dev/full")  # every write fails with ENOSPC
    written = write_bundle(b"packed", tmp_path / "missing folder/support.tar.gz")
    assert written == tmp_path / "support.tar.gz"
    assert written.stat().st_mode & 0o777 == 0o600
    monkeypatch.setattr(bundle, "MEMORY_FOLDERS", ())
    with pytest.raises(NowhereToWrite, match="No space left"):
        write_bundle(b"x" * 100_000, full)


@pytest.mark.slow
async def test_a_running_box_adds_its_metrics(tmp_path: Path, capsys: Capture) -> None:
    async with running_box(tmp_path) as box, connected(box) as channel:
        await channel.ask(send("Engine", b"a body that nobody else may read"), timeout_s=5)
        out = tmp_path / "support.tar.gz"
        words = ["support", "--data", str(tmp_path), "--to", str(out)]
        assert await trio.to_thread.run_sync(main, words) == 0
        files = files_of(await trio.to_thread.run_sync(out.read_bytes))
    assert "rocketmq_messages_in_total" in files["metrics.txt"]
    assert "Engine" in files["store.txt"] + files["metrics.txt"]
    assert "nobody else may read" not in str(files)
    assert "support.tar.gz" in capsys.readouterr().out


NIGHT = """set -e
mount -t tmpfs -o size=3m none "$1"; mount -t tmpfs none /dev/shm; mount -t tmpfs none /run
cp -a "$2/." "$1"; mkdir -p "$1/store"; cat /dev/zero > "$1/store/filled" 2> /dev/null || true
"$3" -m appliance support --data "$1" --config "$4" --to "$1/support.tar.gz" --json >&2
cat /dev/shm/support.tar.gz
"""


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("unshare") is None or os.geteuid() != 0, reason="root and unshare are needed")
def test_it_works_with_no_network_at_all_and_a_disk_that_is_full(tmp_path: Path) -> None:
    place, disk = planted(tmp_path), tmp_path / "disk"
    disk.mkdir()
    config = tmp_path / "etc/rocketbox/rocketbox.toml"
    config.write_text("[uplink]\ngateway = 'gateway.example:10940'\n")
    words = ["unshare", "-n", "-m", "sh", "-c", NIGHT, "sh", str(disk), str(place.data), sys.executable, str(config)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, timeout=120)
    assert done.returncode == 0, done.stderr.decode()
    assert json.loads(done.stderr)["file"] == "/dev/shm/support.tar.gz"
    files = files_of(done.stdout)
    assert "clean" in files["verdicts/store-1.json"]
    rows = [json.loads(line) for line in files["doctor.jsonl"].splitlines() if line.startswith("{")]
    assert {"D107", "D310"} <= {row["code"] for row in rows if row["severity"] == "error"}
    assert [name for name, secret in SECRETS.items() if secret in str(files)] == []


@pytest.mark.slow
def test_the_serial_line_hands_out_the_same_bundle(tmp_path: Path) -> None:
    box = folder_box(tmp_path / "box")
    planted(tmp_path / "box")
    box.files.state.mkdir(parents=True, exist_ok=True)
    written = real_hands(box).support(box.files.state / "support.tar.gz")
    assert written == box.files.state / "support.tar.gz"
    files = files_of((box.files.state / "support.tar.gz").read_bytes())
    assert "health.json" in files
    assert "journal.txt" not in files  # of this machine, not of the folder
    assert [name for name, secret in SECRETS.items() if secret in str(files)] == []
