"""Answers that clients do not read have an end, for one connection and for all."""

import pytest
import trio
import trio.testing

from appliance.grpc.answer_room import AnswerRoom, AnswerRooms


@pytest.mark.parametrize(("most", "most_of_one"), [(1000, 100), (100, 1000)])
async def test_a_read_waits_while_too_much_is_held(most: int, most_of_one: int) -> None:
    rooms = AnswerRooms(most, most_of_one)
    room, begun = AnswerRoom(rooms), list[int]()
    room.hold(100)

    async def read() -> None:
        await room.reserve(10)
        begun.append(1)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(read)
        await trio.testing.wait_all_tasks_blocked()
        assert begun == []
        room.hold(-60)
    assert rooms.held == 50
    room.give_back(10)
    assert rooms.held == 40
