"""Information of the broker about itself: runtime information (28), statistics (315), configuration (26).

Every key that some version of the tools reads is there and has a value they can parse; a missing one silently turns
their columns into zeros or fails them. Source: RocketMQ 4.9.8 and 5.3 AdminBrokerProcessor, StoreStatsService.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from appliance.broker.admin.stats import BrokerCounters, StatsView
from appliance.broker.delay.levels import DelayLevels
from appliance.requests import Answer, AsyncReply, Handle, Reply, RequestPeer
from netstack.errors import Refused
from netstack.wire import fastjson
from netstack.wire.bodies_admin import BrokerStats, StatsSpan
from netstack.wire.bodies_route import DataVersion, KvTable, properties_text
from netstack.wire.codes import RequestCode, ResponseCode
from netstack.wire.command import VERSION, RemotingCommand
from netstack.wire.headers_admin import BrokerStatsHeader, VersionReply
from storage_driver.record import stored_ms_of
from storage_driver.store import MessageStore

VERSION_NAME = "V4_9_8"
POOLS = ("send", "pull", "query", "litePull", "ack")
POOL_CAPACITY = {"send": 10_000, "pull": 100_000, "query": 20_000, "litePull": 100_000, "ack": 100_000}
# upper bounds in ms of the reference's histogram of append times, with their names
_BUCKETS = (
    *((0, "<=0ms"), (10, "0~10ms"), (50, "10~50ms"), (100, "50~100ms"), (200, "100~200ms"), (500, "200~500ms")),
    *((1000, "500ms~1s"), (2000, "1~2s"), (3000, "2~3s"), (4000, "3~4s"), (5000, "4~5s"), (10_000, "5~10s")),
    (1 << 62, "10s~"),
)


@dataclass(frozen=True, slots=True)
class DiskFacts:
    """How full the disk of the store is."""

    total_bytes: int
    used_bytes: int
    free_bytes: int  # for others than root, who has what is neither

    @property
    def ratio(self) -> float:
        """Return the share in use, as the reference counts it (UtilAll.getDiskPartitionSpaceUsedPercent)."""
        entire = self.used_bytes + self.free_bytes
        return self.used_bytes / entire if entire else 0.0


class RuntimeInfo:
    """Handles queries for statistics and settings."""

    def __init__(
        self,
        store: MessageStore,
        stats: BrokerCounters,
        delays: DelayLevels,
        *,
        disk: Callable[[], DiskFacts],
        properties: Callable[[], Mapping[str, object]],
        now_ms: Callable[[], int],
        waiting_timers: Callable[[], int] = lambda: 0,
    ) -> None:
        self._store, self._stats, self._delays, self._disk = store, stats, delays, disk
        self._properties, self._now_ms, self._waiting_timers = properties, now_ms, waiting_timers

    def handlers(self) -> dict[int, Handle]:
        """Return request code → handler."""
        return {
            RequestCode.GET_BROKER_RUNTIME_INFO: self.handle_info,
            RequestCode.VIEW_BROKER_STATS_DATA: self.handle_stats,
            RequestCode.GET_BROKER_CONFIG: self.handle_config,
            RequestCode.GET_BROKER_HA_STATUS: self.handle_copies,
        }

    def handle_copies(self, request: RemotingCommand, peer: RequestPeer) -> Answer:
        """GET_BROKER_HA_STATUS (907) of 5.x: a master without slaves."""
        body = {
            "haClientRuntimeInfo": {},
            "haConnectionInfo": [],
            "inSyncSlaveNums": 0,
            "master": True,
            "masterCommitLogMaxOffset": self._store.end,
        }
        return Reply(request.reply(body=fastjson.dumps(body)))

    def handle_stats(self, request: RemotingCommand, peer: RequestPeer) -> Answer:
        """VIEW_BROKER_STATS_DATA (315): code 1 for what was never counted, which tools expect. Raises Refused."""
        header = BrokerStatsHeader.from_ext(request.ext)
        views = self._stats.views(header.stats_name, header.stats_key)
        if views is None:
            remark = f"The stats <{header.stats_name}> <{header.stats_key}> not exist"
            raise Refused(ResponseCode.SYSTEM_ERROR, remark)
        minute, hour, day = map(_span, views)
        return Reply(request.reply(body=BrokerStats(minute, hour, day).to_bytes()))

    def handle_config(self, request: RemotingCommand, peer: RequestPeer) -> Answer:
        """GET_BROKER_CONFIG (26): Apache's names with this box's values."""
        version = DataVersion(0, self._stats.past.booted_ms).to_bytes().decode()
        return Reply(request.reply(ext=VersionReply(version), body=properties_text(dict(self._properties()))))

    def handle_info(self, request: RemotingCommand, peer: RequestPeer) -> Answer:
        """GET_BROKER_RUNTIME_INFO (28)."""

        async def answer() -> RemotingCommand:
            first = await self._earliest_ms()
            return request.reply(body=KvTable(self.table(first)).to_bytes())

        return AsyncReply(answer)

    async def _earliest_ms(self) -> int:
        record = await self._store.record_at(self._store.first)
        return self._now_ms() if record is None else stored_ms_of(record)

    def table(self, earliest_ms: int) -> dict[str, str]:
        """Return all keys; earliest_ms is when the oldest message was stored."""
        table = {
            **self._versions(),
            **self._puts(),
            **self._rates(),
            **self._days(),
            **self._pools(),
            **self._log(),
            **self._timers(),
            "earliestMessageTimeStamp": earliest_ms,
        }
        for item in self._delays.progress():
            table[f"scheduleMessageOffset_{item.level}"] = f"{item.delivered},{item.end}"
        return {name: str(value) for name, value in sorted(table.items())}

    def _versions(self) -> dict[str, object]:
        return {
            "bootTimestamp": self._stats.past.booted_ms,
            "runtime": _runtime((self._now_ms() - self._stats.past.booted_ms) // 1000),
            "brokerVersion": VERSION,
            "brokerVersionDesc": VERSION_NAME,
            "brokerActive": "true",
            "startAcceptSendRequestTimeStamp": 0,
        }

    def _puts(self) -> dict[str, object]:
        puts, store = self._stats.puts, self._store.statistics()
        return {
            "putMessageTimesTotal": puts.count,
            "putMessageFailedTimes": self._stats.failed_puts,
            "putMessageSizeTotal": puts.size,
            "putMessageAverageSize": puts.size / puts.count if puts.count else 0.0,
            "putMessageEntireTimeMax": int(store.slowest_sync_s * 1000),
            "putMessageDistributeTime": _histogram(store.sync_us),
            "putLatency99": _percentile_ms(store.sync_us, 0.99),
            "putLatency999": _percentile_ms(store.sync_us, 0.999),
            "getMessageEntireTimeMax": 0,
            "dispatchMaxBuffer": 0,
        }

    def _rates(self) -> dict[str, object]:
        puts, found, missed, transferred = self._stats.rates()
        total = [hit + miss for hit, miss in zip(found, missed, strict=True)]
        return {
            "putTps": _three(puts),
            "getFoundTps": _three(found),
            "getMissTps": _three(missed),
            "getTotalTps": _three(total),
            "getTransferedTps": _three(transferred),  # read by 4.9 tools
            "getTransferredTps": _three(transferred),  # read by 5.x tools
        }

    def _days(self) -> dict[str, object]:
        table: dict[str, object] = {}
        for name, day in zip(("Put", "Get"), self._stats.day_totals(), strict=True):
            table[f"msg{name}TotalYesterdayMorning"] = day.yesterday_morning
            table[f"msg{name}TotalTodayMorning"] = day.today_morning
            table[f"msg{name}TotalTodayNow"] = day.now
        return table

    def _pools(self) -> dict[str, object]:
        """There are no thread pools: nothing queues in front of the one loop but what connections hold back."""
        table: dict[str, object] = {"EndTransactionQueueSize": 0, "EndTransactionThreadPoolQueueCapacity": 100_000}
        for name in POOLS:
            table[f"{name}ThreadPoolQueueSize"] = 0
            table[f"{name}ThreadPoolQueueCapacity"] = POOL_CAPACITY[name]
            table[f"{name}ThreadPoolQueueHeadWaitTimeMills"] = 0
        return table

    def _log(self) -> dict[str, object]:
        store, disk = self._store, self._disk()
        return {
            "commitLogMinOffset": store.first,
            "commitLogMaxOffset": store.end,
            "commitLogDiskRatio": round(disk.ratio, 4),
            "consumeQueueDiskRatio": round(disk.ratio, 4),
            f"commitLogDiskRatio_{store.config.root / 'commitlog'}": round(disk.ratio, 4),
            "commitLogDirCapacity": f"Total : {_sized(disk.total_bytes)}, Free : {_sized(disk.free_bytes)}.",
            "dispatchBehindBytes": 0,  # what is durable is dispatched
            "pageCacheLockTimeMills": int(store.evidence().waiting_s * 1000),
            "remainHowManyDataToFlush": _sized(store.end - store.committed),
            "remainHowManyDataToCommit": _sized(0),
            "remainTransientStoreBufferNumbs": 0,
        }

    def _timers(self) -> dict[str, object]:
        return {
            "timerReadBehind": 0,
            "timerOffsetBehind": 0,
            "timerCongestNum": self._waiting_timers(),
            "timerEnqueueTps": 0.0,
            "timerDequeueTps": 0.0,
        }


def _span(view: StatsView) -> StatsSpan:
    return StatsSpan(view.total, round(view.tps, 2), round(view.per_call, 2))


def _three(rates: Iterable[float]) -> str:
    return " ".join(f"{rate:.2f}" for rate in rates)


def _runtime(seconds: int) -> str:
    minutes, hours = seconds // 60, seconds // 3600
    return f"[ {hours // 24} days, {hours % 24} hours, {minutes % 60} minutes, {seconds % 60} seconds ]"


def _sized(count: int) -> str:
    value, units = float(count), ["B", "KiB", "MiB", "GiB", "TiB"]
    while value >= 1024 and len(units) > 1:
        value /= 1024
        units.pop(0)
    return f"{value:.1f} {units[0]}"


def _histogram(sync_us: Iterable[int]) -> str:
    """Return syncs by duration in the reference's buckets; bucket i of ours holds those under 2**i µs."""
    counts = dict.fromkeys((name for _, name in _BUCKETS), 0)
    for power, count in enumerate(sync_us):
        counts[next(name for bound_ms, name in _BUCKETS if (1 << power) <= max(bound_ms * 1000, 1))] += count
    return " ".join(f"[{name}]:{count}" for name, count in counts.items())


def _percentile_ms(sync_us: Iterable[int], share: float) -> float:
    counts = list(sync_us)
    wanted, seen = sum(counts) * share, 0
    for power, count in enumerate(counts):
        seen += count
        if count and seen >= wanted:
            return (1 << power) / 1000
    return 0.0
