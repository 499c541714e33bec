from storage_driver.consensus.roles import Campaigning, Following, Leading


def test_a_role_begins_with_nothing_known() -> None:
    assert not Following().matched
    assert Campaigning("a", 3, pre=True).votes == {"a"}
    leading = Leading(4.0, solo=False)
    assert (leading.first_end, leading.progress, leading.lease_given_up) == (None, {}, False)
