"""Records of POP's journal: each is read as it was written."""

import pytest

from appliance.broker.pop import pop_records as records
from appliance.broker.pop.pop_queue import CopyPlace, PopKey, PopQueue, Take
from storage_driver.record import MessageQueue

KEY = PopKey("Gröup", MessageQueue("T", 3))


def test_each_record_is_read_as_it_was_written() -> None:
    queue = PopQueue(KEY, 9, 5)
    take = Take(queue, (5, 7), 1_700_000_000_000, (1_700_000_060_000, 1.0))
    take.order, take.deliveries = True, 2
    written = [
        records.opened(queue),
        records.taken(take),
        records.done(queue, (5,)),
        records.copying(queue, (7,), CopyPlace("%RETRY%Gröup_T", 1 << 40)),
        records.reset(queue),
        records.floor_moved(queue),
        records.forgotten(queue),
    ]
    assert list(records.read_records(b"".join(written))) == [
        records.OpenedRecord(9, 5, KEY),
        records.TakenRecord(9, 1_700_000_000_000, 1_700_000_060_000, 5, 2, True, (5, 7)),
        records.DoneRecord(9, (5,)),
        records.CopyingRecord(9, CopyPlace("%RETRY%Gröup_T", 1 << 40), (7,)),
        records.ResetRecord(9, 5),
        records.FloorRecord(9, 5),
        records.ForgottenRecord(9),
    ]


def test_deliveries_that_have_no_room_in_a_record_are_as_many_as_it_holds() -> None:
    queue = PopQueue(KEY, 1, 0)
    take = Take(queue, (0,), 50, (60, 1.0))
    take.order, take.deliveries = True, 65_536
    queue.take(take, 1)
    for payload in (records.taken(take), *records.snapshot([queue])):
        assert [each.deliveries for each in records.read_records(payload) if isinstance(each, records.TakenRecord)] == [
            65_535
        ]


def test_a_record_of_a_later_version_is_named() -> None:
    with pytest.raises(records.RecordUnknown, match="b'Z' at byte 0"):
        list(records.read_records(b"Z123"))


def test_a_snapshot_has_what_is_out_and_what_is_on_its_way_to_the_retry_topic() -> None:
    queue = PopQueue(KEY, 1, 0)
    take = Take(queue, (0, 1, 2, 3), 50, (60, 1.0))
    queue.take(take, 4)
    queue.done(1)
    queue.renew(Take(queue, (3,), 50, (90, 2.0)))
    queue.expire(take)
    queue.copying[0] = CopyPlace("R", 777)
    (payload,) = records.snapshot([queue])
    found = list(records.read_records(payload))
    assert found == [
        records.OpenedRecord(1, 4, KEY),
        records.TakenRecord(1, 50, 90, 4, 0, False, (3,)),
        records.TakenRecord(1, 0, 0, 4, 0, False, (0,)),
        records.CopyingRecord(1, CopyPlace("R", 777), (0,)),
        records.TakenRecord(1, 0, 0, 4, 0, False, (2,)),
    ]
