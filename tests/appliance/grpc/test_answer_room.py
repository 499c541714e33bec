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


async def test_who_reads_nothing_has_to_make_room_for_others_but_not_for_itself(
    autojump_clock: trio.testing.MockClock,
) -> None:
    rooms = AnswerRooms(most=200, most_of_one=100)
    mute, reads, other = (AnswerRoom(rooms) for _ in range(3))
    ended = list[float]()

    async def answer(room: AnswerRoom, portions: int) -> None:
        room.hold(100)
        with room.reading() as reading:
            for _ in range(portions):
                await trio.sleep(2)
                reading.took()
            await trio.sleep_forever()
        room.give_back(100)
        ended.append(trio.current_time())

    async with trio.open_nursery() as nursery:
        began = trio.current_time()
        nursery.start_soon(answer, mute, 0)
        await trio.testing.wait_all_tasks_blocked()
        with trio.move_on_after(10) as waiting:
            await mute.reserve(10)
        assert (waiting.cancelled_caught, ended) == (True, []), "it waits for what it holds itself"
        nursery.start_soon(answer, reads, 10)
        await trio.testing.wait_all_tasks_blocked()
        await other.reserve(10)
        assert trio.current_time() - began < 15
        assert len(ended) == 1, "who reads goes on"
        other.give_back(10)
    assert ended[1] - began >= 10 + 20 + 30, "and has all its time when nobody waits"
