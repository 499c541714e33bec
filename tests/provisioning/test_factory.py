import json
from functools import partial
from pathlib import Path

import pytest

from provisioning import factory
from provisioning.errors import ProvisioningError
from provisioning.factory import make_box, sync_latency


def made(tmp_path: Path, serial: str = "RBX-0007", model: str = "x1") -> dict[str, object]:
    (tmp_path / "scratch").mkdir(exist_ok=True)
    return make_box(tmp_path / "factory", serial, model, scratch=tmp_path / "scratch", seconds=0.05, now_s=lambda: 7)


@pytest.mark.slow
def test_a_box_gets_its_serial_number_once_with_the_figures_of_its_burn_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(factory, "check_memory", partial(factory.check_memory, share=0.002))  # else a quarter, 12 s
    receipt = made(tmp_path)
    folder = tmp_path / "factory"
    assert ((folder / "serial").read_text(), (folder / "model").read_text()) == ("RBX-0007\n", "x1\n")
    assert json.loads((folder / "receipt.json").read_text()) == receipt
    assert (folder / "serial").stat().st_mode & 0o777 == 0o444
    assert list((tmp_path / "scratch").iterdir()) == []
    made(tmp_path)  # the same number again is a repeated run
    with pytest.raises(ProvisioningError) as caught:
        made(tmp_path, "RBX-0008")
    assert caught.value.code == "E402"


@pytest.mark.parametrize(("serial", "model"), [("", "x1"), ("a b", "x1"), ("RBX-1", "")])
def test_odd_names_are_refused_before_anything_is_written(tmp_path: Path, serial: str, model: str) -> None:
    with pytest.raises(ProvisioningError):
        made(tmp_path, serial, model)
    assert not (tmp_path / "factory").exists()


def test_sync_latency_has_both_figures(tmp_path: Path) -> None:
    seen = sync_latency(tmp_path, lambda stage, done, total: None)
    assert 0 < seen["p50_ms"] <= seen["p99_ms"]
