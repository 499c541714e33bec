"""What becomes of a draft on its way into the store, and of what the store raises."""

from pathlib import Path

import pytest

from appliance.broker.intake import Intake, MessageDraft, Space, busy, not_durable, refusal, refusals
from appliance.testing import STORE_HOST, small_store
from netstack.errors import Refused
from storage_driver.errors import Busy, Full, LogFailed, MessageIllegal, PropertiesTooLong, TablesFailed

BUSY, UNAVAILABLE, ILLEGAL = 2, 14, 13


def draft(**properties: str) -> MessageDraft:
    return MessageDraft("T", 1, b"body", dict(properties), 7, 1, 5, STORE_HOST, 2, 99)


async def test_a_draft_is_stored_with_all_it_has_but_the_wish_to_wait(tmp_path: Path) -> None:
    async with small_store(tmp_path) as small:
        placed = Intake(small.store).put(draft(WAIT="true", A="b"))
        await small.store.wait_committed(placed.end)
        (found,) = await small.all("T", 1)
    assert (found.body, found.property_map, found.flag, found.sys_flag) == (b"body", {"A": "b"}, 7, 1)
    assert (found.born_ms, found.reconsume_times, found.prepared_offset) == (5, 2, 99)


async def test_diverts_are_asked_in_order_and_the_last_word_counts(tmp_path: Path) -> None:
    seen: list[str] = []

    def first(draft: MessageDraft) -> None:
        seen.append(draft.topic)
        draft.topic = "first"

    def second(draft: MessageDraft) -> None:
        seen.append(draft.topic)
        draft.topic, draft.queue_id = "second", 0

    async with small_store(tmp_path) as small:
        Intake(small.store, [first, second]).put(draft())
        assert (seen, small.store.topics()) == (["T", "first"], ["second"])


async def test_a_divert_that_refuses_leaves_nothing_in_the_store(tmp_path: Path) -> None:
    def refuse(draft: MessageDraft) -> None:
        raise Refused(13, "no")

    async with small_store(tmp_path) as small:
        with pytest.raises(Refused, match="no"):
            Intake(small.store, [refuse]).put(draft())
        assert (small.store.end, small.store.topics()) == (0, [])


async def test_what_the_store_does_not_take_has_the_code_that_clients_expect(tmp_path: Path) -> None:
    async with small_store(tmp_path) as small:
        intake = Intake(small.store)
        with pytest.raises(Refused, match="the message is illegal") as refused:
            intake.put(draft(A="x" * 40_000))
        assert refused.value.code == ILLEGAL
        small.store.full = "91 % used"
        with pytest.raises(Refused, match="91 % used") as refused:
            intake.put(draft())
        assert refused.value.code == UNAVAILABLE
        small.store.full = None
        small.store.seal("Input/output error")
        with pytest.raises(Refused, match="the disk failed: Input/output error") as refused:
            intake.put(draft())
        assert refused.value.code == UNAVAILABLE


@pytest.mark.parametrize(
    ("exc", "code", "words"),
    [
        (Full("91 %"), UNAVAILABLE, "service not available now"),
        (LogFailed("gone"), UNAVAILABLE, "the disk failed: gone"),
        (TablesFailed("gone"), UNAVAILABLE, "the disk failed: gone"),
        (PropertiesTooLong(40_000), ILLEGAL, "msg properties length limit 32KB"),
        (MessageIllegal("odd"), ILLEGAL, "the message is illegal: odd"),
        (Busy(1234), BUSY, "[PCBUSY_CLEAN_QUEUE]broker busy"),
    ],
)
def test_refusals_keep_reason_and_cause(exc: Full | LogFailed | MessageIllegal | Busy, code: int, words: str) -> None:
    assert (refusal(exc).code, words in refusal(exc).remark) == (code, True)
    with pytest.raises(Refused) as refused, refusals():
        raise exc
    assert refused.value.__cause__ is exc


def test_anything_else_is_no_refusal() -> None:
    with pytest.raises(ZeroDivisionError), refusals():
        raise ZeroDivisionError


def test_no_refusal_of_the_disk_has_the_code_that_java_takes_for_a_result() -> None:
    assert not {not_durable("x").code, busy(1).code} & {0, 10, 11, 12}
    assert "waits 1234 ms" in busy(1234).remark


def test_senders_are_refused_while_space_says_so_and_who_counts_hears_of_each() -> None:
    space, heard = Space(), list[tuple[str, str]]()
    space.rejected = lambda topic, reason: heard.append((topic, reason))
    space.check("T")
    space.refusal = lambda: "the uplink is behind"
    with pytest.raises(Refused, match="the uplink is behind") as refused:
        space.check("T")
    for exc in (Full("x"), MessageIllegal("y"), PropertiesTooLong(1), LogFailed("z"), Busy(1), None):
        space.note("U", exc)
    assert refused.value.code == UNAVAILABLE
    assert heard == [("T", "reject_new"), ("U", "disk_full"), ("U", "too_large"), ("U", "too_large")]
