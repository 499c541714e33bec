"""Bringing a box to what is wanted: order of requests, agreement, receipts that are believed and kept."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from provisioning.errors import ProvisioningError
from provisioning.flow import DesiredState, load_receipt, provision, save_receipt
from provisioning.host import Bench
from provisioning.ownership import box_secret, receipt_mac

BENCH = Bench(b"f" * 32)
IDENTITY = {"claimed": "owner", "serial": "RB1"}


class Told:
    """A conversation that answers from a table and notes what it was asked."""

    serial = "RB1"

    def __init__(self, changes: list[str], receipt: dict[str, Any] | None = None) -> None:
        self.asked, self.bodies = list[str](), list[dict[str, Any]]()
        self._answers: dict[str, dict[str, Any]] = {
            "plan": {"changes": changes, "plan": "p1"},
            "apply": {"receipt": receipt or {"serial": "RB1", "seal": b"x" * 32}},
            "verify": {"checks": []},
        }

    async def own(self, identity: object, bench: Bench) -> str:
        self.asked.append("own")
        return "ours"

    async def identify(self) -> dict[str, Any]:
        self.asked.append("identify")
        return {"claimed": None, "serial": "RB1"}

    async def request(self, name: str, body: dict[str, Any]) -> dict[str, Any]:
        self.asked.append(name)
        self.bodies.append(body)
        return self._answers[name]

    async def put(self, name: str, source: object, sha256: str, size: int, *, first: int | None = None) -> None:
        self.asked.append(f"put {name} {size if first is None else first} of {size}")


async def run(talk: Told, wanted: DesiredState, **more: Any) -> Any:
    return await provision(talk, IDENTITY, BENCH, wanted, now_s=lambda: 1_700_000_000.9, **more)  # type: ignore[arg-type]


async def test_a_dry_run_and_a_no_change_nothing() -> None:
    for more in ({"dry_run": True}, {"agree": lambda changes: False}):
        talk = Told(["name"])
        outcome = await run(talk, DesiredState(config=b"x"), **more)
        assert (talk.asked, outcome.changes, outcome.receipt) == (["own", "plan"], ["name"], None)


async def test_a_box_without_owner_is_claimed_only_after_the_yes() -> None:
    asked: list[list[str]] = []

    def answer(changes: list[str]) -> bool:
        asked.append(changes)
        return len(asked) > 1

    for more in ({"dry_run": True}, {"agree": answer}):
        talk: Any = Told(["name"])
        outcome = await provision(talk, IDENTITY | {"claimed": None}, BENCH, DesiredState(), **more)
        assert (talk.asked, outcome.owned, outcome.receipt) == (["plan"], "would be claimed", None)
        assert outcome.changes == [f"claim for {BENCH.name}", "name"]
    talk = Told(["name"])
    with pytest.raises(ProvisioningError, match="the receipt's seal is wrong"):
        await provision(talk, IDENTITY | {"claimed": None}, BENCH, DesiredState(), agree=answer)
    assert talk.asked == ["plan", "identify", "own", "plan", "apply", "verify"]
    assert asked == [[f"claim for {BENCH.name}", "name"]] * 2


async def test_an_owner_whose_secret_is_not_kept_yet_has_no_name_in_a_plan() -> None:
    for bench, name in (
        (replace(BENCH, owner_id="", is_kept=False), "a new owner, whose secret is made then"),
        (replace(BENCH, owner_id="plant-3", is_kept=False), "plant-3"),
    ):
        talk: Any = Told([])
        outcome = await provision(talk, IDENTITY | {"claimed": None}, bench, DesiredState(), dry_run=True)
        assert outcome.changes == [f"claim for {name}"]


@pytest.mark.parametrize(("changes", "uploaded"), [(["version 1 -> 2"], True), (["name"], False), ([], False)])
async def test_a_bundle_goes_over_the_line_only_where_the_version_changes(
    changes: list[str], uploaded: bool, tmp_path: Path
) -> None:
    bundle = tmp_path / "b.rbx"
    bundle.write_bytes(b"RBX1" + (5).to_bytes(4) + b"12345" + bytes(64) + b"part")
    talk = Told(changes)
    with pytest.raises(ProvisioningError, match="the receipt's seal is wrong"):
        await run(talk, DesiredState(bundle=bundle, version="2"))
    sent = ["put bundle 77 of 81", "plan", "put bundle 81 of 81"]
    assert talk.asked == ["own", "plan", *(sent if uploaded else []), "plan", "apply", "verify"]
    assert talk.bodies[0]["bundle"]["version"] == "2"
    assert talk.bodies[-2]["plan"] == "p1"  # of the last plan


async def test_a_receipt_in_the_name_of_another_box_is_none_whoever_sealed_it() -> None:
    secret = box_secret(BENCH.fleet_secret, "RB1")
    for serial, believed in (("RB1", True), ("../RB2", False)):
        receipt = {"serial": serial}
        talk = Told([], receipt | {"mac": receipt_mac(secret, receipt)})
        if believed:
            assert (await run(talk, DesiredState())).receipt["serial"] == "RB1"
        else:
            with pytest.raises(ProvisioningError, match="E203"):
                await run(talk, DesiredState())


async def test_the_clock_is_set_to_the_time_after_the_upload() -> None:
    talk: Any = Told([])
    clock = iter((100.0, 400.0, 401.0))
    with pytest.raises(ProvisioningError, match="the receipt's seal is wrong"):
        await provision(talk, IDENTITY, BENCH, DesiredState(), now_s=lambda: next(clock))
    assert [body.get("time") for body in talk.bodies[:2]] == [100, 400]


def test_only_what_is_wanted_is_asked() -> None:
    assert DesiredState().request("", 7) == {"time": 7}
    assert DesiredState(config=b"").request("", 7) == {"time": 7, "config": b""}  # an empty file is a wish
    wanted = DesiredState(keys={"a": b"k"}, network={"dns": "x"}, bundle=Path("b"), version="2", retry=True)
    assert wanted.request("ab", 7) == {
        "time": 7, "keys": {"a": b"k"}, "network": {"dns": "x"},
        "bundle": {"sha256": "ab", "version": "2", "downgrade": False, "retry": True},
    }  # fmt: skip


def test_a_receipt_is_replaced_whole_and_a_damaged_one_is_none(tmp_path: Path) -> None:
    folder = tmp_path / "a/b"
    assert load_receipt(folder, "RB.1") is None
    for number in (1, 2):
        save_receipt(folder, {"serial": "RB.1", "number": number, "site": "Köln"})
    assert load_receipt(folder, "RB.1") == {"serial": "RB.1", "number": 2, "site": "Köln"}
    assert [path.name for path in folder.iterdir()] == ["RB.1.json"]
    for text in ("", "{", "[]", "7"):
        (folder / "RB.1.json").write_text(text)
        assert load_receipt(folder, "RB.1") is None
    (folder / "RB.1.json").write_bytes(b"\xff")
    assert load_receipt(folder, "RB.1") is None


def test_a_receipt_that_cannot_be_kept_is_told_with_the_next_step(tmp_path: Path) -> None:
    (tmp_path / "receipts").write_text("no folder")
    with pytest.raises(
        ProvisioningError, match=r"^E401 the receipt .*RB\.1\.json was not saved: .*; the box is provisioned"
    ):
        save_receipt(tmp_path / "receipts", {"serial": "RB.1"})
