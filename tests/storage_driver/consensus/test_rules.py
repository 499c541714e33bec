from storage_driver.consensus.rules import ELECTION_S, LEASE_S, QUORUM_S, REFUSAL_S, Rules


def test_a_lease_is_shorter_than_the_refusal_by_what_clocks_may_differ() -> None:
    assert LEASE_S * 1.25 <= REFUSAL_S <= ELECTION_S[0]
    assert ELECTION_S[0] >= QUORUM_S


def test_what_waits_for_other_disks() -> None:
    assert [Rules(acknowledge=each).counts_copies for each in ("local", "one", "both", "majority")] == [
        *(False, False, True, True)
    ]
    assert Rules(elections="manual").manual
