"""The numbers and settings that tools read."""

import re
from pathlib import Path

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from appliance.broker.admin.runtime_info import DiskFacts, _histogram, _percentile_ms, _runtime, _sized
from appliance.testing import wall_ms
from netstack.wire.codes import RequestCode as Code
from tests.appliance.admin_bench import bench

READ_BY_TOOLS = (
    *("bootTimestamp", "runtime", "brokerVersion", "brokerVersionDesc", "putTps", "getFoundTps", "getMissTps"),
    *("getTotalTps", "getTransferedTps", "getTransferredTps", "putMessageTimesTotal", "putMessageFailedTimes"),
    *("putMessageSizeTotal", "putMessageDistributeTime", "putMessageAverageSize", "putMessageEntireTimeMax"),
    *("getMessageEntireTimeMax", "dispatchMaxBuffer", "putLatency99", "putLatency999", "commitLogDiskRatio"),
    *("consumeQueueDiskRatio", "commitLogMinOffset", "commitLogMaxOffset", "msgPutTotalYesterdayMorning"),
    *("msgPutTotalTodayMorning", "msgPutTotalTodayNow", "msgGetTotalYesterdayMorning", "msgGetTotalTodayMorning"),
    *("msgGetTotalTodayNow", "sendThreadPoolQueueSize", "sendThreadPoolQueueCapacity", "pullThreadPoolQueueSize"),
    *("pullThreadPoolQueueCapacity", "queryThreadPoolQueueSize", "queryThreadPoolQueueCapacity"),
    *("EndTransactionQueueSize", "EndTransactionThreadPoolQueueCapacity", "dispatchBehindBytes"),
    *("pageCacheLockTimeMills", "sendThreadPoolQueueHeadWaitTimeMills", "pullThreadPoolQueueHeadWaitTimeMills"),
    *("queryThreadPoolQueueHeadWaitTimeMills", "earliestMessageTimeStamp", "startAcceptSendRequestTimeStamp"),
    *("remainTransientStoreBufferNumbs", "remainHowManyDataToCommit", "remainHowManyDataToFlush"),
    *("commitLogDirCapacity", "brokerActive", "timerReadBehind", "timerOffsetBehind", "timerCongestNum"),
    *("timerEnqueueTps", "timerDequeueTps", "scheduleMessageOffset_1", "scheduleMessageOffset_18"),
)


async def test_runtime_information_has_every_key_that_a_tool_reads(tmp_path: Path) -> None:
    async with bench(tmp_path) as b:
        await b.send(3)
        b.stats.put("T", 0, 3, 300)
        table = orjson.loads((await b.ask(Code.GET_BROKER_RUNTIME_INFO)).body)["table"]
    assert not [name for name in READ_BY_TOOLS if name not in table]
    assert all(isinstance(value, str) and value for value in table.values())
    for name in ("putTps", "getTransferedTps", "getTransferredTps"):
        assert [float(word) for word in table[name].split(" ")][2] >= 0.0
    assert (table["brokerVersion"], table["brokerVersionDesc"]) == ("409", "V4_9_8")
    assert table["commitLogDiskRatio"] == "0.75"
    assert table["commitLogDirCapacity"] == "Total : 1000.0 B, Free : 250.0 B."
    assert table["msgPutTotalTodayNow"] == "3"
    assert int(table["earliestMessageTimeStamp"]) <= wall_ms()
    assert table["scheduleMessageOffset_18"] == "0,0"


async def test_the_box_is_a_master_without_slaves(tmp_path: Path) -> None:
    async with bench(tmp_path) as b:
        status = orjson.loads((await b.ask(Code.GET_BROKER_HA_STATUS)).body)
        assert (status["master"], status["inSyncSlaveNums"], status["haConnectionInfo"]) == (True, 0, [])
        assert status["masterCommitLogMaxOffset"] == b.store.end


async def test_statistics_and_settings_are_read(tmp_path: Path) -> None:
    async with bench(tmp_path) as b:
        b.stats.put("T", 0, 3, 300)
        found = await b.ask(Code.VIEW_BROKER_STATS_DATA, statsName="TOPIC_PUT_NUMS", statsKey="T")
        zeros = b'{"avgpt":0.0,"sum":0,"tps":0.0}'
        assert found.body == b'{"statsDay":%b,"statsHour":%b,"statsMinute":%b}' % (zeros, zeros, zeros)
        refused = await b.refusal(Code.VIEW_BROKER_STATS_DATA, statsName="TOPIC_PUT_NUMS", statsKey="U")
        assert refused == (1, "The stats <TOPIC_PUT_NUMS> <U> not exist")
        config = await b.ask(Code.GET_BROKER_CONFIG)
        assert (config.body, "counter" in config.ext["version"]) == (b"brokerName=box\n", True)


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0.0 B"), (1023, "1023.0 B"), (1024, "1.0 KiB"), (1 << 40, "1.0 TiB"), (1 << 52, "4096.0 TiB")],
)
def test_sizes_are_told_in_the_largest_unit_that_fits(count: int, text: str) -> None:
    assert _sized(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "[ 0 days, 0 hours, 0 minutes, 0 seconds ]"), (90_061, "[ 1 days, 1 hours, 1 minutes, 1 seconds ]")],
)
def test_the_time_since_the_start_is_told_as_apache_does(seconds: int, text: str) -> None:
    assert _runtime(seconds) == text


@settings(max_examples=15)
@given(st.lists(st.integers(0, 1000), min_size=26, max_size=26))
def test_each_sync_is_in_one_bucket_of_the_histogram_and_percentiles_rise(counts: list[int]) -> None:
    told = dict(re.findall(r"\[([^\]]+)\]:(\d+)", _histogram(counts)))
    assert len(told) == 13
    assert sum(map(int, told.values())) == sum(counts)
    assert int(told["0~10ms"]) == sum(counts[1:14])
    shares = [_percentile_ms(counts, share) for share in (0.0, 0.5, 0.99, 0.999, 1.0)]
    assert shares == sorted(shares)
    assert shares[-1] == max(((1 << power) / 1000 for power, count in enumerate(counts) if count), default=0.0)


def test_a_disk_of_no_size_is_not_full() -> None:
    assert (DiskFacts(0, 0, 0).ratio, DiskFacts(100, 75, 25).ratio, DiskFacts(100, 100, 0).ratio) == (0.0, 0.75, 1.0)
    assert DiskFacts(100, 40, 40).ratio == 0.5, "a fifth of the disk is kept for root"
