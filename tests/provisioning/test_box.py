import os
import shutil
from contextlib import suppress
from pathlib import Path

import pytest

from provisioning.box import Box, DeviceActions, flatten
from provisioning.errors import ProvisioningError
from provisioning.ownership import box_secret, receipt_fits
from provisioning.testing import folder_box

SECRET = box_secret(bytes(32), "RBX-0007")


def owned(tmp_path: Path) -> Box:
    box = folder_box(tmp_path / "box")
    box.claim({"owner_id": "acme", "secret": SECRET})
    return box


def code_of(box: Box, request: dict[str, object]) -> str:
    with pytest.raises(ProvisioningError) as caught:
        box.plan(request)
    return caught.value.code


def test_a_plan_names_each_setting_that_changes_and_nothing_that_stays(tmp_path: Path) -> None:
    box = owned(tmp_path)
    box.files.config.write_text('[box]\nname = "a"\n[store]\nsegment_mib = 64\n[limits]\nidle_s = 9\n')
    plan = box.plan({"config": b'[box]\nname = "b"\n[store]\nsegment_mib = 64\nqueues_default = 4\n'})
    assert plan.changes == ["set box.name = 'b'", "limits.idle_s back to its default", "set store.queues_default = 4"]


def test_a_plan_is_good_for_exactly_what_was_asked_and_the_clock_does_not_change_its_name(tmp_path: Path) -> None:
    box = owned(tmp_path)
    now = int(box._now_s())
    first = box.plan({"config": b"", "time": now})
    assert box.plan({"config": b"", "time": now + 1}).id == first.id
    assert box.plan({"config": b"[box]\n", "keys": {"k": b"1"}}).id != first.id
    with pytest.raises(ProvisioningError, match="plan again"):
        box.apply(first.id, {}, lambda stage, done, total: None)


@pytest.mark.parametrize(
    ("request_map", "code"),
    [
        ({"config": b"[box"}, "E401"),
        ({"config": b"\xff"}, "E401"),
        ({"config": b"#" * 7000}, "E401"),
        ({"config": "text"}, "E401"),
        ({"keys": {"../owner": b"x"}}, "E401"),
        ({"keys": {".hidden": b"x"}}, "E401"),
        ({"bundle": {"sha256": "../../../../etc/passwd", "version": "9"}}, "E303"),
        ({"bundle": {"version": "9"}}, "E303"),
        ({"bundle": "9"}, "E401"),
        ({"network": [["address", "dhcp"]]}, "E401"),
        ({"keys": b"x"}, "E401"),
        ({"keys": {"k": 5}}, "E401"),  # five bytes of zero are no key
    ],
)
def test_what_cannot_be_right_is_refused_when_planning(
    tmp_path: Path, request_map: dict[str, object], code: str
) -> None:
    assert code_of(owned(tmp_path), request_map) == code


def test_a_bundle_is_refused_by_a_box_whose_versions_come_with_apt(tmp_path: Path) -> None:
    box = owned(tmp_path)
    shutil.rmtree(box.files.slots.folder)
    assert code_of(box, {"bundle": {"version": "9"}}) == "E302"


def test_the_receipt_is_sealed_with_the_boxs_secret_and_tells_what_it_runs(tmp_path: Path) -> None:
    receipt = owned(tmp_path).receipt({"user": "erika", "time_s": 7, "row": "r"})
    assert receipt_fits(SECRET, receipt)
    assert (receipt["serial"], receipt["version"], receipt["user"], receipt["row"]) == (
        "RBX-0007",
        "1.3.2",
        "erika",
        "r",
    )


def test_the_clock_is_set_only_when_it_is_off_by_more_than_two_seconds(tmp_path: Path) -> None:
    set_to: list[int] = []
    box = owned(tmp_path)
    box.hands = DeviceActions(set_time=set_to.append)
    for wanted in (int(box._now_s()), int(box._now_s()) + 3600):
        plan = box.plan({"time": wanted})
        box.apply(plan.id, {}, lambda stage, done, total: None)
    assert len(set_to) == 1


def test_a_damaged_owner_file_locks_the_box_instead_of_opening_it(tmp_path: Path) -> None:
    box = owned(tmp_path)
    box.files.owner.write_text("{")
    with pytest.raises(ProvisioningError):
        box.files.load_owner()


def test_verify_names_what_was_changed_behind_its_back(tmp_path: Path) -> None:
    box = owned(tmp_path)
    request = {"config": b"[box]\n", "keys": {"k": b"1"}, "network": {"address": "dhcp"}}
    plan = box.plan(request)
    box.apply(plan.id, {}, lambda stage, done, total: None)
    assert box.verify(request)["checks"] == ["config", "key k", "network", "unit"]
    (box.files.keys / "k").write_bytes(b"2")
    with pytest.raises(ProvisioningError, match="key k"):
        box.verify(request)


def test_settings_are_flat_and_lists_stay_whole() -> None:
    assert flatten({"a": {"b": 1, "c": {"d": [1]}}, "e": 2}) == {"a.b": 1, "a.c.d": [1], "e": 2}


def test_a_strict_umask_hides_nothing_from_the_product(tmp_path: Path) -> None:
    import os

    box = owned(tmp_path)
    before = os.umask(0o077)
    try:
        plan = box.plan({"config": b"[box]\n", "keys": {"k": b"1"}})
        box.apply(plan.id, {}, lambda stage, done, total: None)
    finally:
        os.umask(before)
    assert box.files.config.stat().st_mode & 0o777 == 0o644
    assert (box.files.keys / "k").stat().st_mode & 0o777 == 0o600
    assert box.files.owner.stat().st_mode & 0o777 == 0o600


class Cut(BaseException):
    """The power fails."""


def test_a_cut_at_each_write_is_made_good_by_the_same_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = {"config": b'[box]\nname = "p"\n', "keys": {"k": b"x"}, "network": {"address": "10.1.2.3/24"}}
    replace, activated = os.replace, list[object]()

    def provision(box: Box) -> None:
        box.apply(box.plan(request).id, {}, lambda stage, done, total: None)

    def until_cut(writes: int, box: Box) -> bool:
        """Provision with power for so many writes; return whether it lasted."""
        left = iter(range(writes))

        def powered(source: Path, target: Path) -> None:
            if next(left, None) is None:
                raise Cut
            replace(source, target)

        with monkeypatch.context() as patch, suppress(Cut):
            patch.setattr(os, "replace", powered)
            provision(box)
            return True
        return False

    for writes in range(10):
        hands = DeviceActions(activate=lambda progress: activated.append(progress))
        box = folder_box(tmp_path / str(writes), hands=hands)
        box.claim({"owner_id": "acme", "secret": bytes(32)})
        lasted = until_cut(writes, box)
        again = Box(tmp_path / str(writes), hands)
        provision(again)
        assert len(again.verify(request)["checks"]) == 4
        assert len(activated) == 1 + writes, "what was written runs"
        assert again.plan(request).changes == []
        assert [path.name for path in again.files.root.rglob("*.new")] == []
        if lasted:
            break
    assert writes == 4, "pending, key, network, configuration"


def test_an_address_that_would_have_no_effect_is_refused_before_anything_changes(tmp_path: Path) -> None:
    box = owned(tmp_path)
    request = {"network": {"address": "10.1.2.3/24"}}
    box.hands = DeviceActions(network_problem=lambda: "nothing here reads it")
    with pytest.raises(ProvisioningError, match="nothing here reads it"):
        box.plan(request)
    box.hands = DeviceActions()
    assert box.plan(request).changes == ["network 10.1.2.3/24"]
