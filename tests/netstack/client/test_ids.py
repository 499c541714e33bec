"""Message ids: length, time window, uniqueness."""

import socket
from datetime import datetime

import pytest

from netstack.client.ids import IdMaker, log_offset_of, month_of, offset_message_id

NOW = int(datetime(2026, 11, 21, 13, 5, 7).timestamp() * 1000)


def test_an_id_holds_address_process_and_the_time_since_the_month_began() -> None:
    made = IdMaker(bytes((10, 0, 0, 7)), 0x1234, 0xCAFEBABE).make(NOW)
    assert made[:20] == "0A0000071234CAFEBABE"
    passed_ms = ((20 * 24 + 13) * 3600 + 5 * 60 + 7) * 1000
    assert int(made[20:28], 16) == passed_ms
    assert len(made) == 32


def test_an_address_of_sixteen_bytes_gives_56_characters() -> None:
    assert len(IdMaker(socket.inet_pton(socket.AF_INET6, "::1"), 1, 2).make(NOW)) == 56


def test_ids_differ_and_the_counter_wraps() -> None:
    maker = IdMaker(bytes(4), 1, 2)
    assert len({maker.make(NOW) for _ in range(9)}) == 9
    wrapped = IdMaker(bytes(4), 1, 2)
    wrapped._counter = 0xFFFF
    assert wrapped.make(NOW).endswith("0000")


def test_a_month_is_followed_by_the_next_also_in_december() -> None:
    december = int(datetime(2026, 12, 9).timestamp() * 1000)
    assert [datetime.fromtimestamp(each / 1000) for each in month_of(december)] == [
        datetime(2026, 12, 1),
        datetime(2027, 1, 1),
    ]


def test_an_offset_id_is_that_of_the_specification() -> None:
    host = bytes((127, 0, 0, 1)) + (10911).to_bytes(4, "big")
    assert offset_message_id(host, 1000) == "7F00000100002A9F00000000000003E8"
    assert log_offset_of("7F00000100002A9F00000000000003E8") == 1000
    with pytest.raises(ValueError, match="32 or 56"):
        log_offset_of("abc")
