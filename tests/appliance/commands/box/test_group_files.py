"""The files of a new group are all that its members need."""

import ssl
from pathlib import Path

import pytest

from appliance.commands.box.group_files import write_group
from appliance.configuration.config import HostFacts, load_config
from appliance.errors import ConfigError
from appliance.group.links.link_tls import LinkTls
from tests.appliance.group.certificates import needs_openssl

pytestmark = [pytest.mark.slow, needs_openssl]
FACTS = HostFacts(1 << 40, "", "host")
MEMBERS = ["a=10.1.0.11:10912", "b=10.1.0.12:20912", "w=10.1.0.20:10912 witness"]


def test_each_box_has_certificates_and_a_configuration_and_the_witness_a_command(tmp_path: Path) -> None:
    said = list(write_group(tmp_path, "press", MEMBERS, here=True))
    for name, port in (("a", 10911), ("b", 20911)):
        config = load_config((tmp_path / name / "rocketbox.toml").read_text(), facts=FACTS)
        assert (config.group.member, config.group.members, config.group.elections) == (
            name,
            tuple(MEMBERS),
            "automatic",
        )
        assert (config.box.name, config.listen.broker_port) == ("press", port)
        assert Path(config.group.certs) == tmp_path / name / "keys"
        assert config.store.segment_mib == 64, "three on one machine take no 3 GiB"
    assert said[0] == f"a: rocketbox serve --config {tmp_path}/a/rocketbox.toml --data a"
    for name in ("a", "b", "w"):
        LinkTls(tmp_path / name / "keys", clock_ok=True)
    assert not (tmp_path / "w" / "rocketbox.toml").exists()
    beside = f"--data w --certs {tmp_path}/w/keys --host 10.1.0.20 --member"  # boxes on this machine have its port
    assert f'w: rocketbox witness --group press --as w {beside} "a=' in said[2]
    there = list(write_group(tmp_path, "press", MEMBERS, here=False))[2]
    assert f"w: copy {tmp_path}/w/keys to 10.1.0.20 and run there" in there
    assert 'rocketbox witness --group press --as w --data votes --certs keys --member "a=' in there
    assert (tmp_path / "ca.key").stat().st_mode & 0o077 == 0


def test_a_new_member_gets_its_files_from_the_same_ca_and_no_configuration_is_overwritten(tmp_path: Path) -> None:
    list(write_group(tmp_path, "press", MEMBERS[:2], here=False))
    first = (tmp_path / "a" / "rocketbox.toml").read_text()
    assert 'elections = "manual"' in first
    assert "segment_mib" not in first
    assert 'certs = "/etc/rocketbox/keys"' in first
    ca = (tmp_path / "ca.crt").read_bytes()
    said = list(write_group(tmp_path, "press", [*MEMBERS[:2], "c=10.1.0.13:10912"], here=False))
    assert "stays as it is" in said[0]
    assert (tmp_path / "a" / "rocketbox.toml").read_text() == first
    assert (tmp_path / "c" / "keys" / "ca.crt").read_bytes() == ca
    ssl.create_default_context(cafile=str(tmp_path / "c" / "keys" / "ca.crt"))


def test_a_folder_that_takes_nothing_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match="openssl program is missing"):
        list(write_group(tmp_path / "made", "press", MEMBERS, here=True))
