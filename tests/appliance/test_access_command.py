"""`rocketbox access` and `rocketbox tls`: what they print, write and refuse."""

import json
import os
import shutil
import stat
from pathlib import Path
from typing import Any

import pytest

from appliance.__main__ import main
from appliance.access.access import accounts_path, load_accounts

PLAIN_ACL = """
globalWhiteRemoteAddresses:
  - 10.10.103.*
  - 192.168.0.*
accounts:
  - accessKey: RocketMQ
    secretKey: 12345678
    whiteRemoteAddress:
    admin: false
    defaultTopicPerm: DENY
    defaultGroupPerm: SUB
    topicPerms:
      - topicA=DENY
      - topicB=PUB|SUB
      - topicC=SUB
    groupPerms:
      - groupA=DENY
      - groupB=PUB|SUB
  - accessKey: rocketmq2
    secretKey: 12345678
    whiteRemoteAddress: 192.168.1.*
    admin: true
    defaultTopicPerm: EVERYTHING
dataVersion:
  - counter: 1
    timestamp: 1597560546971
"""


@pytest.fixture
def access(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    def run(*arguments: str) -> tuple[int, str, str]:
        code = main(["access", *arguments, "--data", str(tmp_path)])
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


@pytest.mark.slow
def test_a_key_is_made_extended_rotated_and_revoked(access: Any, tmp_path: Path) -> None:
    code, out, _ = access("add", "press-line", "--publish", "readings", "--group", "press", "--json")
    made = json.loads(out)
    assert (code, made["topics"], made["groups"]) == (0, {"readings": "PUB"}, {"press": "SUB"})
    assert len(made["secret"]) >= 32
    assert stat.S_IMODE(accounts_path(tmp_path).stat().st_mode) == 0o600
    assert stat.S_IMODE(accounts_path(tmp_path).parent.stat().st_mode) == 0o700
    code, out, _ = access("add", "press-line", "--subscribe", "readings", "--deny", "payroll", "--json")
    assert json.loads(out)["topics"] == {"readings": "PUB|SUB", "payroll": "DENY"}
    assert "secret" not in json.loads(out)
    code, out, _ = access("rotate", "press-line", "--json")
    fresh = load_accounts(accounts_path(tmp_path)).keys["press-line"]
    assert (fresh.previous, fresh.secret) == (made["secret"], json.loads(out)["secret"])
    code, out, _ = access("list")
    assert code == 0
    assert "readings=PUB|SUB payroll=DENY" in out
    assert made["secret"] not in out
    assert fresh.secret not in out
    assert access("revoke", "press-line")[0] == 1  # nobody can be asked here
    assert access("revoke", "press-line", "--yes")[0] == 0
    assert load_accounts(accounts_path(tmp_path)).keys == {}


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="only root could be misled by links")
def test_root_changes_keys_with_the_rights_of_the_boxs_user_alone(access: Any, tmp_path: Path) -> None:
    target = tmp_path.parent / f"{tmp_path.name}-precious"
    target.mkdir()
    os.chown(tmp_path, 65534, 65534)
    (tmp_path / "access").symlink_to(target)  # planted by whoever took the service over
    os.chmod(tmp_path.parent, 0o755)
    for folder in tmp_path.parents:
        if folder.stat().st_uid == 0 and folder != Path("/"):
            os.chmod(folder, folder.stat().st_mode | 0o011)
    assert access("add", "press-line")[0] == 1
    assert list(target.iterdir()) == []
    assert (target.stat().st_uid, os.geteuid()) == (0, 0)
    (tmp_path / "access").unlink()
    assert access("add", "press-line")[0] == 0
    assert accounts_path(tmp_path).stat().st_uid == 65534


@pytest.mark.slow
def test_what_cannot_be_meant_is_refused_with_a_hint(access: Any) -> None:
    assert "7 to 100" in access("add", "short")[2]
    assert access("add", "press-line")[0] == 0
    code, _, said = access("rotate", "pres-line")
    assert (code, "did you mean press-line?" in said) == (1, True)
    assert "10.0.0" in access("add", "press-line", "--white", "10.0")[2]
    assert "10.0.0" in access("white", "nonsense")[2]
    assert access("white", "10.0.0.*")[1] == "10.0.0.*\n"
    assert "the white list is empty" in access("white", "-")[1]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["plain_acl.yml", "plain_acl.json"])
def test_an_apache_brokers_accounts_are_taken_over(access: Any, tmp_path: Path, name: str) -> None:
    yaml = pytest.importorskip("yaml")
    text = PLAIN_ACL if name.endswith("yml") else json.dumps(yaml.safe_load(PLAIN_ACL))
    (tmp_path / name).write_text(text)
    assert access("import", str(tmp_path / name), "--dry-run")[:2] == (
        0,
        "2 accounts would be imported: RocketMQ, rocketmq2\n",
    )
    assert not accounts_path(tmp_path).exists()
    code, _, said = access("import", str(tmp_path / name))
    assert code == 0
    assert "defaultTopicPerm = 'EVERYTHING'" in said
    now = load_accounts(accounts_path(tmp_path))
    assert now.white == ("10.10.103.*", "192.168.0.*")
    plain, admin = now.keys["RocketMQ"].to_object(), now.keys["rocketmq2"]
    assert plain["topics"] == {"topicA": "DENY", "topicB": "PUB|SUB", "topicC": "SUB"}
    assert (plain["secret"], plain["topic"], plain["group"]) == ("12345678", "DENY", "SUB")
    assert (admin.admin, admin.white) == (True, "192.168.1.*")


@pytest.mark.parametrize(
    "text", ["- a", "accounts: 7", "accounts: [{accessKey: x}]", "a: [", "!!python/object:os.system {}"]
)
def test_a_file_that_is_no_list_of_accounts_changes_nothing(access: Any, tmp_path: Path, text: str) -> None:
    pytest.importorskip("yaml")
    (tmp_path / "plain_acl.yml").write_text(text)
    code, _, said = access("import", str(tmp_path / "plain_acl.yml"))
    assert (code, "plain_acl.yml" in said) == (1, True)
    assert not accounts_path(tmp_path).exists()


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl: apt install openssl")
def test_a_certificate_is_made_and_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = ["--data", str(tmp_path)]
    assert main(["tls", "show", *said]) == 3
    assert main(["tls", "make", *said]) == 0
    first = capsys.readouterr().out
    assert stat.S_IMODE((tmp_path / "tls/box.key").stat().st_mode) == 0o600
    assert main(["tls", "make", *said]) == 1  # one is there, and nobody can be asked
    assert main(["tls", "make", "--yes", *said]) == 0
    assert capsys.readouterr().out != first
    assert main(["tls", "show", "--json", *said]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["days_left"] > 3000
    assert len(shown["sha256"]) == 95


def test_a_key_is_bound_to_addresses_and_freed_again(access: Any) -> None:
    assert access("add", "press-line", "--publish", "T", "--from", "10.0.0.*")[0] == 0
    assert json.loads(access("list", "--json")[1])["accounts"][0]["addresses"] == "10.0.0.*"
    assert "10.0" in access("add", "press-line", "--from", "10.0")[2]
    assert access("add", "press-line", "--from", "-")[0] == 0
    assert "addresses" not in json.loads(access("list", "--json")[1])["accounts"][0]
