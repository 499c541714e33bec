"""Asking producers about halves that nobody decided, over a real store."""

from collections.abc import Mapping
from pathlib import Path

import pytest
import trio

from appliance.broker.delay import redelivery
from appliance.broker.tables.clients import Member
from appliance.broker.transactions import checks
from appliance.broker.transactions.checks import GIVEN_UP_QUEUE
from appliance.testing import STORE_HOST, FakePeer, answered, wall_ms
from netstack.errors import Refused
from netstack.wire.codes import RequestCode
from netstack.wire.command import request
from storage_driver import bad_sectors
from storage_driver.record import MAX_PROPERTIES_BYTES, StoredMessage, decode_record, message_id
from tests.appliance.transaction_bench import COMMIT, GIVEN_UP, HALF, ON_DEMAND, QUICK, ROLLBACK, bench, copy_of
from tests.bad_disk import BadDisk
from tests.waiting import Clock, until


async def test_an_undecided_half_is_asked_about_and_the_answer_decides(tmp_path: Path) -> None:
    async with bench(tmp_path, ON_DEMAND) as b:
        peer = b.producer()
        half = await b.half(b"body")
        await b.round()
        ((code, ext, body),) = peer.told
        asked = decode_record(body)
        assert code == RequestCode.CHECK_TRANSACTION_STATE
        assert (ext["msgId"], ext["transactionId"]) == ("K", "K")
        assert (asked.topic, asked.queue_id, asked.body) == ("T", 1, b"body")
        assert int(ext["commitLogOffset"]) != half.log_offset
        copy = copy_of(half, ext)
        assert (await b.end(copy, COMMIT)).code == 0
        assert [message.body for message in await b.small.wait_for("T", 1, 1)] == [b"body"]


async def test_a_producer_is_told_which_check_this_is_and_its_consumers_how_many_there_were(tmp_path: Path) -> None:
    """Listeners give a transaction up by this number: Apache's broker counts the check that it sends, too."""
    async with bench(tmp_path, ON_DEMAND) as b:
        peer = b.producer()
        half = await b.half()
        await b.round()
        await b.round()
        assert [decode_record(body).property_map["TRANSACTION_CHECK_TIMES"] for _, _, body in peer.told] == ["1", "2"]
        assert (await b.end(copy_of(half, peer.told[-1][1]), COMMIT)).code == 0
        (message,) = await b.small.wait_for("T", 1, 1)
        assert message.property_map["TRANSACTION_CHECK_TIMES"] == "2"


async def test_a_late_answer_to_the_first_half_counts_for_its_copy(tmp_path: Path) -> None:
    async with bench(tmp_path, ON_DEMAND) as b:
        peer = b.producer()
        half = await b.half()
        await b.round()
        assert (await b.end(half, COMMIT)).code == 0
        await b.round()
        assert len(peer.told) == 1
        assert len(await b.small.all("T", 1)) == 1


async def test_after_the_last_check_a_half_is_set_aside_and_never_delivered(tmp_path: Path) -> None:
    async with bench(tmp_path, ON_DEMAND) as b:
        peer = b.producer()
        await b.half(b"body")
        for _ in range(ON_DEMAND.most_checks + 2):
            await b.round()
        (message,) = await b.small.wait_for(GIVEN_UP, 1)
        assert message.body == b"body"
        assert len(peer.told) == ON_DEMAND.most_checks
        assert "T" not in b.small.store.topics()
        assert b.made == [GIVEN_UP], "who looks for what was given up needs a topic to pull from"
    async with bench(tmp_path, ON_DEMAND) as b:
        await until(lambda: b.made == [GIVEN_UP])  # also of a broker that was killed before it had saved it


async def test_a_round_logs_a_group_without_producers_once_however_many_halves_wait(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="appliance.broker")
    async with bench(tmp_path, ON_DEMAND) as b:
        for number in range(5):
            await b.half(UNIQ_KEY=str(number))
        await b.round()
        assert [text.split("group=")[1] for text in caplog.messages] == ["P count=5"]


async def test_a_round_goes_on_where_one_ended_that_took_too_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "LONGEST_ROUND_S", 0.05)
    async with bench(tmp_path, ON_DEMAND) as b:
        seen, look_at = list[int](), b.checks._look_at

        async def look_slowly(half: StoredMessage) -> None:
            seen.append(half.queue_offset)
            await look_at(half)
            if half.queue_offset == 2:
                await trio.sleep_forever()  # the round ends here

        monkeypatch.setattr(b.checks, "_look_at", look_slowly)
        for number in range(5):
            await b.half(UNIQ_KEY=str(number))
        await b.round()
        assert seen == [0, 1, 2]
        monkeypatch.setattr(b.checks, "_look_at", look_at)
        peer = b.producer()
        await b.round()
        assert [ext["transactionId"] for _, ext, _ in peer.told] == ["2", "3", "4"]
        await b.round()
        assert {ext["transactionId"] for _, ext, _ in peer.told} == {"0", "1", "2", "3", "4"}


async def test_without_a_producer_no_check_is_counted(tmp_path: Path) -> None:
    async with bench(tmp_path, ON_DEMAND) as b:
        await b.half()
        for _ in range(ON_DEMAND.most_checks + 2):
            await b.round()
        assert len(await b.small.all(HALF)) == 1
        peer = b.producer()
        await b.round()
        assert len(peer.told) == 1


async def test_a_producer_that_cannot_be_told_is_not_asked(tmp_path: Path) -> None:
    async with bench(tmp_path, ON_DEMAND) as b:
        deaf = b.producer(1)
        deaf.listens = False
        await b.half()
        for _ in range(ON_DEMAND.most_checks + 2):
            await b.round()
        assert (len(await b.small.all(HALF)), deaf.told) == (1, [])
        listening = b.producer(2)
        await b.round()
        await b.round()
        assert (len(listening.told), deaf.told) == (2, [])


@pytest.mark.parametrize("off_by_ms", [-10 * 86_400_000, 86_400_000])
async def test_a_producer_with_a_wrong_clock_is_asked_like_any_other(tmp_path: Path, off_by_ms: int) -> None:
    async with bench(tmp_path, QUICK) as b:
        peer = b.producer()
        await b.half(born_ms=wall_ms() + off_by_ms)
        await peer.wait_told()


async def test_an_immune_half_is_left_alone(tmp_path: Path) -> None:
    async with bench(tmp_path, ON_DEMAND) as b:
        peer = b.producer()
        await b.half(CHECK_IMMUNITY_TIME_IN_SECONDS="100")
        await b.round()
        assert peer.told == []


async def test_producers_of_a_group_are_asked_in_turn(tmp_path: Path) -> None:
    async with bench(tmp_path, QUICK) as b:
        first, second = b.producer(1), b.producer(2)
        await b.half()
        await first.wait_told()
        await second.wait_told()


async def test_the_count_of_checks_survives_a_restart(tmp_path: Path) -> None:
    async with bench(tmp_path, ON_DEMAND) as b:
        b.producer()
        await b.half()
        await b.round()
        await b.round()
    async with bench(tmp_path, QUICK) as b:
        again = b.producer()
        await b.small.wait_for(GIVEN_UP, 1)
        assert len(again.told) == QUICK.most_checks - 2


async def test_resumed_checks_start_counting_again(tmp_path: Path) -> None:
    async with bench(tmp_path) as b:
        half = await b.half(TRANSACTION_CHECK_TIMES="2")
        (stored,) = await b.small.all(HALF)
        resume = request(RequestCode.RESUME_CHECK_HALF_MESSAGE, {"msgId": stored.message_id})
        assert (await answered(b.checks.handle_resume(resume, FakePeer()))).code == 0
        assert (await b.small.all(HALF))[1].property_map["TRANSACTION_CHECK_TIMES"] == "0"
        assert (await answered(b.checks.handle_resume(resume, FakePeer()))).code == 1
        assert (await b.end(half, COMMIT)).code == 0
        assert len(await b.small.wait_for("T", 1, 1)) == 1


@pytest.mark.parametrize("text", ["", "x", "7F00000100002A9F" + "F" * 16, "7F00000100002A9F" + "0" * 15])
async def test_a_check_that_cannot_be_resumed_is_refused(tmp_path: Path, text: str) -> None:
    async with bench(tmp_path) as b:
        await b.half()
        resume = request(RequestCode.RESUME_CHECK_HALF_MESSAGE, {"msgId": text})
        before = len(await b.small.all(HALF))
        try:
            code = (await answered(b.checks.handle_resume(resume, FakePeer()))).code
        except Refused as refused:
            code = refused.code
        assert (code, len(await b.small.all(HALF))) == (1, before)


async def test_a_decided_half_or_another_message_is_not_resumed(tmp_path: Path) -> None:
    async with bench(tmp_path) as b:
        half = await b.half()
        await b.end(half, COMMIT)
        (delivered,) = await b.small.wait_for("T", 1, 1)
        for log_offset in (half.log_offset, delivered.log_offset):
            resume = request(RequestCode.RESUME_CHECK_HALF_MESSAGE, {"msgId": message_id(STORE_HOST, log_offset)})
            answer = await answered(b.checks.handle_resume(resume, FakePeer()))
            assert (answer.code, answer.remark) == (1, f"no open half message at log offset {log_offset}")
        assert len(await b.small.all(HALF)) == 1


async def test_retention_may_not_pass_the_oldest_open_half_and_may_pass_all_when_none_is_open(tmp_path: Path) -> None:
    async with bench(tmp_path) as b:
        first, second = await b.half(), await b.half()
        await b.checks._find_oldest()
        assert b.checks.floor() == first.log_offset
        await b.end(second, ROLLBACK)
        b.transactions.advance()
        await b.checks._find_oldest()
        assert b.checks.floor() == first.log_offset
        await b.end(first, ROLLBACK)
        b.transactions.advance()
        await b.checks._find_oldest()
        assert b.checks.floor() == b.small.store.committed


async def test_a_half_that_the_disk_does_not_give_back_ends_nothing_and_the_others_are_asked_about(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bad_sectors, "PATIENCE_S", 0.0)
    monkeypatch.setattr(redelivery, "RETRY_S", 0.01)
    disk = BadDisk()
    async with bench(tmp_path, disk=disk) as b:
        lost = await b.half(bytes(8192), UNIQ_KEY="lost")  # what follows is in another block
        await b.half(UNIQ_KEY="kept")
        await b.small.store.prove()  # the next start does not scan it
    disk.bad[f"commitlog/{0:020d}"] = [(lost.log_offset, lost.log_offset + 1)]
    async with bench(tmp_path, QUICK, disk=disk) as b:
        peer = b.producer()
        while not peer.told:
            await b.small.store.prove()
            await trio.sleep(0.02)
        assert peer.told[0][1]["msgId"] == "kept"


async def test_a_clock_set_forward_gives_up_no_half_and_its_producer_is_asked(tmp_path: Path) -> None:
    clock = Clock()
    right_ms, clock.ms = clock.ms, 60_000  # 1970: no battery, no network yet
    async with bench(tmp_path, ON_DEMAND, now_ms=clock) as b:
        peer = b.producer()
        await b.half(born_ms=right_ms)
        clock.ms = right_ms
        await b.checks._round()
        await peer.wait_told()
        assert not b.small.store.has_queue(GIVEN_UP_QUEUE)


async def test_a_clock_set_back_keeps_no_half_from_being_asked_about_for_years(tmp_path: Path) -> None:
    clock = Clock()
    right_ms, clock.ms = clock.ms, clock.ms + 10 * 365 * 86_400_000
    async with bench(tmp_path, ON_DEMAND, now_ms=clock) as b:
        peer = b.producer()
        await b.half(born_ms=right_ms, UNIQ_KEY="ahead")
        clock.ms = right_ms
        await b.half(born_ms=right_ms, UNIQ_KEY="behind it")
        clock.ms += 1
        await b.checks._round()
        assert [ext["msgId"] for _, ext, _ in peer.told] == ["ahead", "behind it"]
        await b.checks._round()
        assert len(peer.told) == 4, "copies are for the next round"


async def test_a_clock_set_back_by_little_has_nobody_asked_about_a_transaction_that_has_begun(tmp_path: Path) -> None:
    clock = Clock()
    async with bench(tmp_path, ON_DEMAND._replace(timeout_ms=6000), now_ms=clock) as b:
        peer = b.producer()
        await b.half(born_ms=clock.ms)
        clock.ms -= 2000
        await b.checks._round()
        assert not peer.told
        b.small.store._parts.clock.tick(clock.ms, 0, b.small.store.end, trusted=True)
        clock.ms += 10_000
        b.small.store._parts.clock.tick(clock.ms, 10_000, b.small.store.end, trusted=True)
        clock.ms -= 9000  # once more: it is behind the time of the half, which is eight seconds old or ten
        await b.checks._round()
        await peer.wait_told()


async def test_a_half_that_is_older_than_the_log_is_kept_is_given_up(tmp_path: Path) -> None:
    async with bench(tmp_path, ON_DEMAND._replace(oldest_ms=-1)) as b:
        peer = b.producer()
        await b.half()
        await b.round()
        await b.small.wait_for(GIVEN_UP, 1)
        assert peer.told == []


async def test_a_half_without_room_for_the_count_is_asked_about_where_it_is_and_the_others_are_too(
    tmp_path: Path,
) -> None:
    async with bench(tmp_path, ON_DEMAND) as b:
        peer = b.producer()
        await b.half()
        taken = len((await b.small.all(HALF, 0))[0].properties)
        full = await b.half(b"large", X="x" * (MAX_PROPERTIES_BYTES - taken - len("_X_")))
        await b.half()
        for _ in range(ON_DEMAND.most_checks - 1):
            peer.told.clear()
            await b.round()
            assert len(peer.told) == 3
        (ext,) = (ext for _, ext, body in peer.told if "CHECK_TIMES" not in str(decode_record(body).properties))
        place = copy_of(full, ext)
        assert (place.queue_offset, place.log_offset) == (full.queue_offset, full.log_offset)
        assert (await b.end(full, COMMIT)).code == 0
        assert [message.body for message in await b.small.wait_for("T", 1, 1)] == [b"large"]


async def test_a_producer_that_cannot_be_told_keeps_no_other_from_being_asked(tmp_path: Path) -> None:
    class Strange(FakePeer):
        def tell(self, code: int, ext: Mapping[str, str], body: bytes = b"") -> None:
            raise ValueError("a field has no room")

    async with bench(tmp_path, ON_DEMAND) as b:
        b.clients.producer_joined(Strange(2), "Q", Member("q", "JAVA", 409, wall_ms()))
        peer = b.producer()
        await b.half(PGROUP="Q")
        await b.half()
        await b.round()
        assert len(peer.told) == 1


async def test_a_limit_of_topics_keeps_no_half_from_being_given_up(tmp_path: Path) -> None:
    def refuse(name: str) -> object:
        raise Refused(1, "100 topics, limits.topics allows 100")

    async with bench(tmp_path, ON_DEMAND._replace(most_checks=0)) as b:
        b.checks._make_topic = refuse
        await b.half(b"body")
        await b.round()
        (message,) = await b.small.wait_for(GIVEN_UP, 1)
        assert message.body == b"body"
