"""The bytes of a floating address."""

from ipaddress import IPv4Address, IPv6Address, ip_address

import pytest

from appliance.group.address.floating_frames import (
    FloatingAddress,
    address_message,
    advertises,
    arp_announcement,
    error_of,
    neighbour_advertisement,
    read_floating,
    says_elsewhere,
)

MAC = bytes.fromhex("020000000001")


def test_the_setting_is_read() -> None:
    assert read_floating("10.1.0.10/24@eth0") == FloatingAddress(ip_address("10.1.0.10"), 24, "eth0")
    assert read_floating("fd00::5/64@br-lan.7").address.version == 6
    for wrong in ("10.1.0.10/33@eth0", "10.1.0/24@eth0", "fd00::5/129@eth0"):
        with pytest.raises(ValueError, match=r"prefix|appear"):
            read_floating(wrong)


def test_messages_to_the_kernel_are_whole_and_aligned() -> None:
    for text, size in (("10.1.0.10/24@eth0", 4), ("fd00::5/64@eth0", 16)):
        for lifetime_s, kind in ((5, 20), (0, 21)):
            message = address_message(read_floating(text), 3, lifetime_s=lifetime_s)
            assert int.from_bytes(message[:4], "little") == len(message)
            assert message[4] == kind
            assert len(message) == 16 + 8 + 2 * (4 + size) + (28 if lifetime_s else 0)


def test_an_answer_says_what_failed() -> None:
    head = (36).to_bytes(4, "little") + (2).to_bytes(2, "little") + bytes(10)
    assert error_of(head + (-17).to_bytes(4, "little", signed=True) + bytes(16)) == 17
    assert error_of(head + bytes(20)) == 0
    for wrong in (b"", bytes(40)):
        with pytest.raises(ValueError, match="not an acknowledgement"):
            error_of(wrong)


def test_announcements_say_where_the_address_is() -> None:
    frame = arp_announcement(IPv4Address("10.1.0.10"), MAC)
    assert len(frame) == 42
    assert frame[:14] == b"\xff" * 6 + MAC + b"\x08\x06"
    assert frame[28:32] == frame[38:42] == bytes((10, 1, 0, 10))
    assert says_elsewhere(frame, IPv4Address("10.1.0.10"), bytes(6))
    assert not says_elsewhere(frame, IPv4Address("10.1.0.11"), bytes(6)), "another address"
    assert not says_elsewhere(frame, IPv4Address("10.1.0.10"), MAC), "this box itself"
    assert not says_elsewhere(frame[:41], IPv4Address("10.1.0.10"), bytes(6))
    message = neighbour_advertisement(IPv6Address("fd00::5"), MAC)
    assert (message[0], len(message), message[-6:]) == (136, 32, MAC)
    assert advertises(message, IPv6Address("fd00::5"))
    assert not advertises(message, IPv6Address("fd00::6"))
    assert not advertises(message[:23], IPv6Address("fd00::5"))
