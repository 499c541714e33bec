"""What the core wants is carried out in the order of the fields: promises before messages, messages before marks."""

from storage_driver.consensus.effects import Effects


def test_nothing_is_wanted_unless_it_is_said() -> None:
    assert [value for value in Effects() if value] == []


def test_what_has_to_be_on_disk_comes_before_what_leaves() -> None:
    order = Effects._fields
    assert order.index("hard_state") < order.index("table") < order.index("cut") < order.index("accepted")
    assert order.index("accepted") < order.index("begin_term") < order.index("send") < order.index("committed")
