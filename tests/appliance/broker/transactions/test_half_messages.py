"""Half messages, their end, and asking about them, over a real store."""

from pathlib import Path

import pytest

from appliance.broker.intake import MessageDraft
from appliance.broker.tables import offset_room
from appliance.broker.transactions import half_messages
from appliance.broker.transactions.half_messages import half_divert
from appliance.testing import STORE_HOST, MemoryStateFile
from netstack.errors import Refused
from storage_driver.record import decode_record
from tests.appliance.transaction_bench import COMMIT, HALF, ON_DEMAND, OP, QUICK, ROLLBACK, UNKNOWN, bench, copy_of


async def test_a_committed_half_is_delivered_with_all_it_had_and_before_that_nobody_sees_it(tmp_path: Path) -> None:
    async with bench(tmp_path) as b:
        half = await b.half(b"body")
        assert b.small.store.topics() == [HALF]
        assert (await b.end(half, COMMIT)).code == 0
        (message,) = await b.small.wait_for("T", 1, 1)
        (op,) = await b.small.all(OP)
    assert (message.body, message.sys_flag & 12, message.prepared_offset) == (b"body", 8, half.log_offset)
    assert message.property_map | {"TRAN_MSG": "true", "REAL_TOPIC": "T", "REAL_QID": "1"} == message.property_map
    assert (op.body, op.property_map) == (b"0", {"TAGS": "d"})


async def test_a_half_that_is_rolled_back_or_of_unknown_state_is_not_delivered(tmp_path: Path) -> None:
    async with bench(tmp_path) as b:
        first, second = await b.half(), await b.half()
        assert (await b.end(first, ROLLBACK)).code == 0
        assert (await b.end(second, UNKNOWN)).code == 0
        assert [op.body for op in await b.small.all(OP)] == [b"0"]
        assert "T" not in b.small.store.topics()


async def test_a_full_table_of_offsets_keeps_neither_the_box_nor_transactions_from_going_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(offset_room, "MOST_PAIRS_BYTES", 0)
    for _ in range(2):
        async with bench(tmp_path) as b:
            half = await b.half(b"body")
            await b.round()
            assert (await b.end(half, COMMIT)).code == 0
            await b.transactions.recover()
            assert b.offsets.table() == {}
    async with bench(tmp_path) as b:
        assert len(await b.small.all("T", 1)) == 2


async def test_a_half_is_committed_once_however_often_that_is_asked_for(tmp_path: Path) -> None:
    async with bench(tmp_path) as b:
        half = await b.half()
        for _ in range(3):
            assert (await b.end(half, COMMIT)).code == 0
        assert len(await b.small.all("T", 1)) == 1


@pytest.mark.parametrize(("first", "second", "said"), [(COMMIT, ROLLBACK, "committed"), (ROLLBACK, COMMIT, "rolled b")])
async def test_who_ends_a_transaction_otherwise_later_is_told_what_it_was(
    tmp_path: Path, first: int, second: int, said: str
) -> None:
    """A producer that was asked said so while the program was at work, whose own end is lost: not in silence."""
    async with bench(tmp_path, ON_DEMAND) as b:
        peer, half = b.producer(), await b.half()
        await b.round()
        assert (await b.end(copy_of(half, peer.told[0][1]), first)).code == 0
        b.transactions.advance()
        for place in (half, copy_of(half, peer.told[0][1])):
            with pytest.raises(Refused, match=f"the transaction was {said}"):
                await b.end(place, second)
            assert (await b.end(place, first)).code == 0, "the same once more is no fault"
        assert b.small.store.topics().count("T") == (first == COMMIT)


async def test_of_the_last_transactions_alone_it_is_known_how_they_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(half_messages, "VERDICTS_REMEMBERED", 2)
    async with bench(tmp_path) as b:
        first, *others = [await b.half(UNIQ_KEY=f"K{number}") for number in range(3)]
        for each in (first, *others):
            assert (await b.end(each, COMMIT)).code == 0
        assert (await b.end(first, ROLLBACK)).code == 0, "answered, and nothing of it done"
        assert len(await b.small.all("T", 1)) == 3


async def test_a_late_commit_of_a_half_that_was_given_up_counts_once(tmp_path: Path) -> None:
    async with bench(tmp_path) as b:
        half = await b.half()
        b.transactions.close(half.queue_offset)
        b.transactions.discarded.append(half.queue_offset)  # as a check does that asked too often
        for _ in range(3):
            assert (await b.end(half, COMMIT)).code == 0
        assert len(await b.small.all("T", 1)) == 1


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"group": "Q"}, "group"),
        ({"commitLogOffset": 1}, "commit log offset"),
        ({"tranStateTableOffset": 7}, "Find prepared"),
        ({"verdict": 5}, "commitOrRollback"),
    ],
)
async def test_an_end_that_does_not_fit_its_half_is_refused(
    tmp_path: Path, changes: dict[str, object], reason: str
) -> None:
    async with bench(tmp_path) as b:
        half = await b.half()
        with pytest.raises(Refused, match=reason) as refused:
            await b.end(half, **({"verdict": COMMIT} | changes))  # type: ignore[arg-type]
        assert refused.value.code == 1


async def test_a_resent_message_with_a_delay_is_no_half_and_a_delay_on_a_half_is_ignored(tmp_path: Path) -> None:
    resent = MessageDraft(
        "%RETRY%g", 0, b"x", {"TRAN_MSG": "true", "DELAY": "3"}, 0, 0, 1, STORE_HOST, reconsume_times=1
    )
    half_divert(resent)
    assert resent.topic == "%RETRY%g"
    for level in ("0", "x", "9" * 5000):  # none that there is
        half = MessageDraft("T", 0, b"x", {"TRAN_MSG": "true", "DELAY": level}, 0, 0, 1, STORE_HOST, reconsume_times=1)
        half_divert(half)
        assert half.topic == HALF
    delayed = MessageDraft("T", 0, b"x", {"TRAN_MSG": "TRUE", "DELAY": "3"}, 0, 4, 1, STORE_HOST)
    half_divert(delayed)
    assert (delayed.topic, delayed.sys_flag, "DELAY" in delayed.properties) == (HALF, 0, False)


async def test_after_a_restart_open_halves_are_open_and_decided_ones_are_decided(tmp_path: Path) -> None:
    async with bench(tmp_path) as b:
        done, undone = await b.half(b"done"), await b.half(b"open")
        await b.end(done, COMMIT)
    async with bench(tmp_path, QUICK) as b:
        peer = b.producer()
        _, ext, body = (await peer.wait_told())[0]
        assert decode_record(body).body == b"open"
        assert (await b.end(done, COMMIT)).code == 0
        copy = copy_of(undone, ext)
        await b.end(copy, COMMIT)
        assert [message.body for message in await b.small.wait_for("T", 2, 1)] == [b"done", b"open"]


async def test_stored_offsets_follow_the_oldest_open_half(tmp_path: Path) -> None:
    async with bench(tmp_path) as b:
        halves = [await b.half() for _ in range(5)]
        for half in (*halves[:2], halves[4]):
            await b.end(half, ROLLBACK)
        b.transactions.advance()
        assert b.offsets.get("CID_RMQ_SYS_TRANS", HALF, 0) == 2
        for half in halves[2:4]:
            await b.end(half, ROLLBACK)
        b.transactions.advance()
        assert b.offsets.get("CID_RMQ_SYS_TRANS", HALF, 0) == 5
        assert b.offsets.get("CID_RMQ_SYS_TRANS", OP, 0) == 5


async def test_an_offset_beyond_the_half_queue_answers_no_commit_that_delivers_nothing(tmp_path: Path) -> None:
    offsets = MemoryStateFile({"offsetTable": {f"{HALF}@CID_RMQ_SYS_TRANS": {"0": 50}}})  # the log lost its end since
    async with bench(tmp_path, offsets=offsets) as b:
        half = await b.half(b"body")
        assert (await b.end(half, COMMIT)).code == 0
        assert [message.body for message in await b.small.wait_for("T", 1, 1)] == [b"body"]
