"""Where things are on a box; its unit may move an address as long as its configuration names one."""

import shutil
from pathlib import Path

import pytest

from provisioning.box import Box
from provisioning.box_files import AddressRight, network_unit
from provisioning.errors import ProvisioningError
from provisioning.ownership import box_secret
from provisioning.testing import folder_box

SHIPPED = Path(__file__).resolve().parents[2] / "systemd/drop-ins/floating-address.conf"
MOVES = b'[group]\naddress = "10.1.0.10/24@eth0"\n'


def test_network_units_are_what_networkd_reads() -> None:
    assert network_unit({"address": "dhcp", "dns": "1.1.1.1;9.9.9.9".replace(";", ",")}).endswith(
        "[Network]\nDHCP=yes\nDNS=1.1.1.1\nDNS=9.9.9.9\n"
    )
    assert "Address=10.0.0.2/24\nGateway=10.0.0.1\n" in network_unit({"address": "10.0.0.2/24", "gateway": "10.0.0.1"})


def shipped_box(tmp_path: Path) -> Box:
    box = folder_box(tmp_path / "box")
    box.claim({"owner_id": "acme", "secret": box_secret(bytes(32), "RBX-0007")})
    shutil.copy(SHIPPED, AddressRight(box.files.root).shipped)
    return box


def applied(box: Box, config: bytes) -> list[str]:
    """Apply a configuration; return what changed."""
    plan = box.plan({"config": config})
    box.apply(plan.id, {}, lambda stage, done, total: None)
    box.verify({"config": config})
    return plan.changes


def test_a_box_with_an_address_that_moves_gets_the_right_to_it_and_loses_it_with_the_address(tmp_path: Path) -> None:
    box = shipped_box(tmp_path)
    unit = AddressRight(box.files.root).path
    assert applied(box, MOVES) == ["set group.address = '10.1.0.10/24@eth0'", "right to move group.address"]
    assert unit.read_bytes() == SHIPPED.read_bytes()
    assert applied(box, MOVES) == []
    unit.unlink()
    assert applied(box, MOVES) == ["right to move group.address"], "of a box that was set up before"
    assert applied(box, b"") == ["group.address back to its default", "right to move group.address"]
    assert not unit.exists()


def test_a_box_that_is_reset_keeps_no_right(tmp_path: Path) -> None:
    box = shipped_box(tmp_path)
    applied(box, MOVES)
    box.factory_reset(keep_data=True)
    assert not AddressRight(box.files.root).path.exists()


def test_a_system_that_does_not_ship_the_right_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    box = folder_box(tmp_path / "box")
    with pytest.raises(ProvisioningError, match="update its image or package first") as caught:
        box.plan({"config": MOVES})
    assert caught.value.code == "E401"
    assert not box.files.config.exists()


def test_no_address_no_right(tmp_path: Path) -> None:
    right = AddressRight(tmp_path)
    assert right.fits({"group.address": ""})
    right.write({})
    assert not right.path.parent.exists()
