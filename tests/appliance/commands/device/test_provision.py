"""`provision`: what the command line asks for, and how each mistake of it is told before a port is opened."""

import argparse
import io
from pathlib import Path
from typing import Any

import pytest

from appliance.commands.device.provision import add_arguments, report, wanted_of
from appliance.device.bench_console import Console
from provisioning.errors import ProvisioningError
from provisioning.flow import ProvisioningResult, load_receipt


def options(*given: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return parser.parse_args(list(given))


def test_what_is_not_asked_for_stays_as_it_is() -> None:
    wanted = wanted_of(options())
    assert (wanted.config, dict(wanted.keys), dict(wanted.network), wanted.bundle) == (None, {}, {}, None)


def test_each_option_reaches_the_box(tmp_path: Path) -> None:
    key = tmp_path / "centre.json"
    key.write_bytes(b"{}")
    wanted = wanted_of(
        options(
            "--name", "press-17", "--set", "store.retention_h=5", "--address", "dhcp", "--dns", "10.0.0.1",
            "--key", str(key), "--downgrade",
        )
    )  # fmt: skip
    assert wanted.config is not None
    assert b"press-17" in wanted.config
    assert b"retention_h = 5" in wanted.config
    assert wanted.keys == {"centre.json": b"{}"}
    assert wanted.network == {"address": "dhcp", "dns": "10.0.0.1"}
    assert (wanted.downgrade, wanted.retry) == (True, False)


@pytest.mark.parametrize(
    ("given", "code", "said"),
    [
        (["--set", "store.retention_h"], "E401", "write TABLE.KEY=VALUE"),
        (["--set", "store.retention=5"], "E401", "retention"),
        (["--set", "store.retention_h=0"], "E401", "1 to 8760"),
        (["--name", "Press 17"], "E401", "1 to 40 of a-z 0-9 -"),
        (["--address", "10.1.2.3"], "E401", "as in 10.1.2.3/24"),
        (["--address", "10.1.2.3/24", "--gateway", "10.9.2.1"], "E401", "gateway 10.9.2.1 is not in 10.1.2.0/24"),
        (["--gateway", "10.9.2.1"], "E401", "gateway 10.9.2.1 needs an address beside it, as 10.1.2.3/24"),
        (["--dns", "10.1.2.1,ns.example"], "E401", "dns 'ns.example': a name server is written as an address"),
        (["--key", "/nowhere/key"], "E401", "--key /nowhere/key: No such file or directory"),
        (["--config", "/nowhere/box.toml"], "E401", "/nowhere/box.toml: No such file or directory"),
        (["--bundle", "/nowhere/x.rbx"], "E303", "/nowhere/x.rbx"),
    ],
)
def test_a_mistake_is_told_with_its_code(given: list[str], code: str, said: str) -> None:
    with pytest.raises(ProvisioningError) as raised:
        wanted_of(options(*given))
    assert (raised.value.code, said in str(raised.value)) == (code, True)


def reported(outcome: ProvisioningResult, receipts: Path, took_s: float = 1.0) -> str:
    out = io.StringIO()
    report(outcome, Console(as_json=False, yes=True, out=out), receipts, took_s)
    return out.getvalue()


def test_a_dry_run_keeps_no_receipt(tmp_path: Path) -> None:
    assert "version 1 -> 2" in reported(ProvisioningResult("RB1", "ours", ["version 1 -> 2"]), tmp_path / "receipts")
    assert "nothing changes" in reported(ProvisioningResult("RB1", "ours", []), tmp_path / "receipts")
    assert not (tmp_path / "receipts").exists()


def test_the_receipt_is_kept_and_the_time_told_in_minutes(tmp_path: Path) -> None:
    receipt: dict[str, Any] = {"serial": "RB1", "version": "1.4.0", "slot": "b"}
    said = reported(
        ProvisioningResult("RB1", "ours", ["x"], receipt, {"checks": ["config"]}), tmp_path / "new/receipts", 125.9
    )
    assert "read back ok (config)" in said
    assert "RB1 runs 1.4.0 in slot b" in said
    assert "2:05" in said
    assert load_receipt(tmp_path / "new/receipts", "RB1") == receipt
