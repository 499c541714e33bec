"""What is settled before the store opens."""

from pathlib import Path

import pytest

from appliance.access.guard import make_guard
from appliance.configuration.config import load_config
from appliance.opening import SERVICE_USER, ServeContext, is_foreign_store, never, refuse_apache_folder, refuse_root
from appliance.ports import open_ports
from storage_driver.errors import StoreRefused
from storage_driver.record import encode_host
from tests.appliance.box import FACTS
from tests.waiting import Clock


async def test_a_box_without_systemd_keeps_its_sockets_in_the_data_folder(tmp_path: Path) -> None:
    config = load_config("[listen]\nbroker_port = 0\nnamesrv_port = 0\n", source="test", facts=FACTS)
    ports, clock = await open_ports(config, {}), Clock()
    guard = make_guard(config, tmp_path, now_ms=clock)
    context = ServeContext(config, tmp_path, ports, "127.0.0.1", guard, None, clock, lambda: True)
    assert context.runtime == tmp_path / "run"
    assert context.broker_address == f"127.0.0.1:{ports.broker_port}"
    assert context.store_host == encode_host("127.0.0.1", ports.broker_port)
    for listener in (*ports.broker, *ports.namesrv):
        await listener.aclose()


def test_while_a_box_starts_nothing_is_deleted() -> None:
    assert not never(0, 1 << 60)


def apache_store(root: Path) -> None:
    (root / "commitlog").mkdir(parents=True)
    (root / "commitlog" / f"{0:020d}").write_bytes(bytes(4096))
    (root / "checkpoint").write_bytes(bytes(4096))


def test_a_folder_that_is_an_apache_store_itself_is_refused_with_the_way_to_take_it_over(tmp_path: Path) -> None:
    data = tmp_path / "apache"
    apache_store(data)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(StoreRefused, match=f"mv {data} {data}-box/store"):
        refuse_apache_folder(data)
    assert sorted(tmp_path.rglob("*")) == before
    (data / "store").mkdir()
    refuse_apache_folder(data)  # a box has served from it
    refuse_apache_folder(tmp_path / "new")


def test_root_is_refused_in_the_folder_of_the_service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    refuse_root(tmp_path)
    monkeypatch.setattr(Path, "owner", lambda path: SERVICE_USER)
    refuse_root(tmp_path / "new")
    with pytest.raises(StoreRefused, match=r"runs as rocketbox .*`systemctl start rocketbox` starts it"):
        refuse_root(tmp_path)
    monkeypatch.setattr("os.geteuid", lambda: 997)
    refuse_root(tmp_path)


def test_a_store_is_anothers_until_a_box_has_opened_it(tmp_path: Path) -> None:
    apache_store(tmp_path)
    assert is_foreign_store(tmp_path)
    (tmp_path / "rocketbox").mkdir()
    assert not is_foreign_store(tmp_path)
