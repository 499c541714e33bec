"""The parts that other tests stand on: a gateway and a box that are the real ones, and waits that end."""

from pathlib import Path

import pytest
import trio

from storage_driver.record import MessageQueue, decode_record
from storage_driver.store import open_store
from uplink_spark.testing import landed_log
from uplink_spark.testing_site import box, fill, gateway, log_of, message, shipped, store_config, until


def test_messages_differ_by_number_and_have_the_length_that_was_asked_for() -> None:
    bodies = [message(number, 50).body for number in range(8)]
    assert len(set(bodies)) == 8
    assert {len(body) for body in bodies} == {50}
    assert {message(number).queue_id for number in range(8)} == {0, 1, 2, 3}


async def test_a_filled_store_has_every_message_durable_in_order(tmp_path: Path) -> None:
    async with open_store(store_config(tmp_path), now_ms=lambda: 1) as store:
        await fill(store, 250, 100)
        assert store.committed == store.end
        counts = [store.max_offset(MessageQueue("T", number)) for number in range(4)]
        assert sum(counts) == 250
        raw, at, numbers = log_of(store), 0, list[int]()
        while at < len(raw):
            record = decode_record(raw, at)
            numbers.append(int(bytes(record.body[:8])))
            at += record.size
        assert numbers == list(range(250))


async def test_what_a_box_puts_arrives_at_the_gateway_on_its_port(tmp_path: Path) -> None:
    async with gateway(tmp_path / "landing") as port, box(tmp_path / "store", port) as (store, uplink):
        assert port > 0
        await fill(store, 20, 100)
        await until(shipped(store, uplink))
        whole = log_of(store)
        landed = landed_log(tmp_path / "landing", "box-17")
        assert len(landed) == 20
        assert all(whole[at : at + len(record)] == record for at, record in landed.items())


async def test_settings_reach_the_real_parts(tmp_path: Path) -> None:
    async with box(tmp_path / "store", 1, box="other", express=("alarm",)) as (_, uplink):
        assert (uplink.shipper.state.config.box, uplink.shipper.state.config.express) == ("other", ("alarm",))


async def test_a_wait_for_what_never_holds_ends() -> None:
    with pytest.raises(trio.TooSlowError):
        await until(lambda: False, 0.02)
