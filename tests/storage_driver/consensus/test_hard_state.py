from storage_driver.consensus.hard_state import HardState


def test_a_new_member_has_promised_nothing() -> None:
    assert HardState() == HardState(term=0, voted_for="", row_term=0, row_end=0)
