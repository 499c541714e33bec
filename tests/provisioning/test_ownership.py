import pytest

from provisioning.ownership import Patience, bench_mac, box_mac, box_secret, owner_id, receipt_fits, receipt_mac

SECRET = bytes(range(0x20))
NONCES = bytes(range(0x20, 0x40)), bytes(range(0x40, 0x60))


def test_the_bench_proves_itself_with_the_golden_mac() -> None:
    golden = "eabcc22d6c6c74042175d1f092b425c8bf7134a7f929b6bcfe2b391962d79d69"
    assert bench_mac(SECRET, "RBX-0007", *NONCES).hex() == golden


def test_the_box_secret_is_the_golden_hkdf_of_the_fleet_secret() -> None:
    golden = "50784b5c74a169720de89d766670136f6351c4aec7f960bf43f93cd880be58b7"
    assert box_secret(SECRET, "RBX-0007").hex() == golden


def test_bench_and_box_never_answer_the_same_for_the_same_nonces() -> None:
    assert box_mac(SECRET, "RBX-0007", *NONCES) != bench_mac(SECRET, "RBX-0007", *NONCES)
    assert box_mac(SECRET, "RBX-0007", *NONCES) != bench_mac(SECRET, "RBX-0007", *reversed(NONCES))


def test_another_box_has_another_secret_and_the_owner_id_is_short() -> None:
    assert box_secret(SECRET, "RBX-0008") != box_secret(SECRET, "RBX-0007")
    assert len(owner_id(SECRET)) == 8


@pytest.mark.parametrize(
    "change", [{"version": "9"}, {"time_s": 2}, {"settings": {"a": "2"}}, {"mac": ""}, {"mac": "ü"}]
)
def test_any_change_breaks_the_seal_of_a_receipt(change: dict[str, object]) -> None:
    receipt: dict[str, object] = {"serial": "x", "version": "1", "time_s": 1, "settings": {"a": "1"}}
    receipt["mac"] = receipt_mac(SECRET, receipt)
    assert receipt_fits(SECRET, receipt)
    assert not receipt_fits(SECRET, receipt | change)
    assert not receipt_fits(bytes(32), receipt)


def test_the_wait_doubles_up_to_five_minutes_and_ends_with_success() -> None:
    patience, now, waits = Patience(), 0.0, []
    for _ in range(11):
        waits.append(patience.failed(now))
        assert patience.wait_s(now) == waits[-1]
        now += waits[-1]
        assert patience.wait_s(now) == 0
    assert waits == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]
    assert {patience.failed(now) for _ in range(2000)} == {300}
    patience.succeeded()
    assert patience.failed(now) == 1
