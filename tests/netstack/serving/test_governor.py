"""What all connections share: admission, counts, one log line per peer."""

import logging

import pytest
import trio

from netstack.serving.governor import Governor
from netstack.serving.limits import Limits
from netstack.serving.slots import Slot


async def test_lines_are_key_value_pairs_and_cannot_be_forged(caplog: pytest.LogCaptureFixture) -> None:
    governor = Governor()
    with caplog.at_level(logging.WARNING):
        governor.note("protocol_error", "10.0.0.1", port=5, reason='bad\nevent=fake "x"')
        governor.note("protocol_error", "10.0.0.1", port=6, reason="left out")
        governor.note("protocol_error", "10.0.0.2", reason="short")
    assert [record.getMessage() for record in caplog.records] == [
        "event=protocol_error peer=10.0.0.1 port=5 reason=\"bad\\nevent=fake 'x'\"",
        "event=protocol_error peer=10.0.0.2 reason=short",
    ]


async def test_a_process_that_refuses_everybody_still_lets_its_own_watchdog_ask() -> None:
    governor = Governor()
    governor.refuse_all(True)
    assert governor.admit("10.0.0.1") == "process: short of memory or descriptors"
    assert governor.admit("127.0.0.1", own=True) is None
    governor.refuse_all(False)
    assert governor.admit("10.0.0.1") is None


async def test_statistics_are_a_snapshot() -> None:
    governor = Governor()
    assert governor.admit("127.0.0.1") is None
    before = governor.statistics()
    governor.received(3, 100)
    governor.release("127.0.0.1")
    assert (before.connections, before.addresses, dict(before.counted)) == (1, 1, {"accepted": 1})
    assert dict(governor.statistics().counted) == {"accepted": 1, "frames": 3, "bytes_in": 100}
    assert [governor.next_id() for _ in range(2)] == [1, 2]


async def test_a_newcomer_gets_the_place_of_whoever_has_the_most() -> None:
    governor, ended = Governor(Limits(connections=11, reserved_for_loopback=1)), list[int]()

    def come(address: str, number: int = 0) -> str | None:
        refused = governor.admit(address)
        if refused is None:
            slot = Slot(address, trio.current_time() + number, lambda: ended.append(number))
            governor.slots.add(slot)
        return refused

    assert [come("10.0.0.1", number) for number in range(10)] == [None] * 10
    assert come("10.0.0.1") == "limits.connections: 10 connections, 10 allowed"
    assert come("10.0.0.2") is None
    assert (ended, governor.counted["evicted"]) == ([0], 1), "the one that was silent longest"
    governor.release("10.0.0.1")  # the connection has ended by now
    assert governor.statistics().connections == 10


async def test_connections_that_another_box_serves_take_no_place() -> None:
    governor = Governor(Limits(connections=3, reserved_for_loopback=1))
    slots = [Slot("10.0.0.1", trio.current_time(), lambda: None) for _ in range(2)]
    for slot in slots:
        assert governor.admit("10.0.0.1") is None
        slot.signed = lambda: True
        governor.slots.add(slot)
    assert governor.admit("10.0.0.2") == "limits.connections: 2 connections, 2 allowed"
    slots[0].elsewhere = lambda: True
    assert governor.admit("10.0.0.2") is None
    assert governor.admit("10.0.0.3") == "limits.connections: 2 connections, 2 allowed"
    assert (governor.counted["evicted"], governor.statistics().connections) == (0, 3)
