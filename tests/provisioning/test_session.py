import itertools

import pytest

from provisioning.errors import ProvisioningError
from provisioning.ownership import bench_mac, box_mac
from provisioning.session import OWNER_ONLY, Owner, Session

OWNER = Owner("acme", bytes(32))


def session() -> Session:
    counter = itertools.count(1)
    return Session("RBX-0007", fresh_nonce=lambda: bytes([next(counter)] * 32))


def authenticate(one: Session, now_s: float = 0, *, secret: bytes = bytes(32), owner_id: str = "acme") -> bytes:
    host_nonce = b"h" * 32
    mac = bench_mac(secret, "RBX-0007", one.nonce, host_nonce)
    answer = one.authenticate({"host_nonce": host_nonce, "mac": mac, "owner_id": owner_id}, OWNER, now_s)
    return bytes(answer["mac"])


def test_the_owner_gets_in_and_learns_that_it_is_the_right_box() -> None:
    one = session()
    nonce = one.nonce
    assert authenticate(one) == box_mac(bytes(32), "RBX-0007", nonce, b"h" * 32)
    for op in OWNER_ONLY:
        one.check(op, OWNER)


@pytest.mark.parametrize(("owner", "code"), [(None, "E201"), (OWNER, "E203")])
def test_the_cable_alone_gives_status_and_never_change(owner: Owner | None, code: str) -> None:
    one = session()
    for op in ("identify", "status", "doctor", "auth", "claim"):
        one.check(op, owner)
    if owner is None:
        one.check("plan", None)  # shown before somebody claims the box
    for op in OWNER_ONLY if owner else OWNER_ONLY - {"plan"}:
        with pytest.raises(ProvisioningError) as caught:
            one.check(op, owner)
        assert caught.value.code == code


def test_an_unknown_operation_is_a_question_of_versions() -> None:
    with pytest.raises(ProvisioningError) as caught:
        session().check("format", OWNER)
    assert caught.value.code == "E105"


def test_a_wrong_secret_costs_a_wait_and_another_owners_id_is_named() -> None:
    one = session()
    with pytest.raises(ProvisioningError) as caught:
        authenticate(one, secret=b"x" * 32)
    assert (caught.value.code, caught.value.facts["wait_s"]) == ("E203", 1)
    with pytest.raises(ProvisioningError, match="wait 1 s"):
        authenticate(one, 0.5)  # right, but too early
    with pytest.raises(ProvisioningError) as caught:
        authenticate(one, 2, secret=b"x" * 32, owner_id="other")
    assert (caught.value.code, caught.value.facts["owner_id"]) == ("E202", "acme")
    authenticate(one, 10)
    assert one.authenticated


def test_a_nonce_serves_one_attempt_only() -> None:
    one = session()
    host_nonce = b"h" * 32
    proof = {"host_nonce": host_nonce, "mac": bench_mac(bytes(32), "RBX-0007", one.nonce, host_nonce)}
    one.authenticate(proof, OWNER, 0)
    one.authenticated = False
    with pytest.raises(ProvisioningError):
        one.authenticate(proof, OWNER, 1)


def test_silence_of_a_minute_ends_the_rights() -> None:
    one = session()
    one.heard(0)
    authenticate(one)
    one.heard(60)
    one.check("plan", OWNER)
    one.heard(120.1)
    with pytest.raises(ProvisioningError) as caught:
        one.check("plan", OWNER)
    assert caught.value.code == "E204"


def test_an_answer_that_comes_late_is_not_taken_for_that_to_a_newer_request() -> None:
    one = session()
    assert not one.repeated(5, "doctor", {})
    assert not one.repeated(6, "status", {})
    newer = one.result(6, {"state": "ok"})
    assert one.result(5, {"findings": []})[1] == 5
    assert one.repeated(6, "status", {})
    assert one.answer == newer


def test_a_repeated_request_gets_the_stored_answer() -> None:
    one = session()
    assert not one.repeated(5, "status", {})
    assert one.answer is None
    answer = one.result(5, {"state": "ok"})
    assert one.repeated(5, "status", {})
    assert one.answer == answer
    assert not one.repeated(5, "doctor", {})  # the same number from another bench is another request
    assert not one.repeated(6, "status", {})


def test_a_bench_that_waits_minutes_for_an_answer_keeps_its_session() -> None:
    one = session()
    one.heard(0)
    authenticate(one)
    one.begin_work()
    one.heard(90)  # asks again meanwhile
    one.end_work(200)
    one.heard(255)
    one.check("verify", OWNER)
    one.heard(320)
    with pytest.raises(ProvisioningError, match="expired"):
        one.check("verify", OWNER)
