"""What was sent, pulled and sent back, by topic, group and queue, with the views that tools ask for.

Counting is two additions; views come from samples: every 10 s (a minute), every 10 min (an hour), every hour (a day).
A view begins with what was there before its first sample, so that the first messages of a topic count too; of what no
longer moves only that is kept. Queues keep the minute view alone.
Source: RocketMQ 4.9.8 BrokerStatsManager, StatsItem, StatsSnapshot.
"""

import time
from array import array
from collections import deque
from collections.abc import Callable
from typing import Final

import trio

from storage_driver.named_tuple import NamedTuple

TICK_S: Final = 10.0
TICKS_PER_HOUR_SAMPLE, TICKS_PER_DAY_SAMPLE = 60, 360
PERIODS_MS: Final = (10_000, 600_000, 3_600_000)  # between the samples of each view
MINUTE, HOUR, DAY = 0, 1, 2
_KEPT: Final = (7, 7, 25)  # samples of each view
ITEMS_PER_BREATH, LONGEST_INT = 500, 10
MOST_ITEMS: Final = 100_000  # of groups and their queues, about 900 bytes each; what comes later counts in the totals
TPS_WINDOWS_S: Final = (10, 60, 600)


class StatsView(NamedTuple):
    """One view of one counter."""

    total: int = 0
    tps: float = 0.0
    per_call: float = 0.0


class Item:
    """A counter of calls, messages and bytes, with its samples: time ms, calls, messages, bytes."""

    __slots__ = ("calls", "count", "samples", "size")

    def __init__(self) -> None:
        self.calls = self.count = self.size = 0
        self.samples: list[array[int]] = [array("q"), array("q"), array("q")]

    def set_to_sum(self, parts: list["Item"]) -> None:
        """Set this to the sum of other counters; keep the samples."""
        self.calls = sum([part.calls for part in parts])
        self.count = sum([part.count for part in parts])
        self.size = sum([part.size for part in parts])

    def sample(self, view: int, now_ms: int) -> None:
        """Take one sample; of a view without changes only the last value is kept."""
        kept = self.samples[view]
        if (kept[1] if kept else 0) == self.calls:
            del kept[4:]
            return
        if len(kept) < 8:
            kept[:] = array("q", (now_ms - PERIODS_MS[view], *(kept[1:4] or (0, 0, 0))))
        kept.extend((now_ms, self.calls, self.count, self.size))
        del kept[: max(0, len(kept) - 4 * _KEPT[view])]

    def view(self, view: int, *, bytes_: bool) -> StatsView:
        """Return a view from its first and last sample; fewer than two are nothing."""
        kept = self.samples[view]
        if len(kept) < 8:
            return StatsView()
        column = 3 if bytes_ else 2
        total, calls, span_ms = kept[column - 4] - kept[column], kept[-3] - kept[1], kept[-4] - kept[0]
        return StatsView(total, total * 1000 / span_ms if span_ms > 0 else 0.0, total / calls if calls else 0.0)


class DayTotals(NamedTuple):
    """Message totals at local midnights and now."""

    yesterday_morning: int
    today_morning: int
    now: int


class TrafficCounts(NamedTuple):
    """Messages and bytes since the start."""

    put: dict[str, tuple[int, int]]  # by topic
    got: dict[tuple[str, str], tuple[int, int]]  # by topic and group


def _today() -> object:
    """Return what changes at midnight, local time."""
    return time.localtime()[:3]


class PastTotals:
    """What was counted before. A sample: time ms, messages put, pulls that found, that did not, messages pulled."""

    def __init__(self, booted_ms: int, today: Callable[[], object]) -> None:
        self.booted_ms, self._today = booted_ms, today
        self._samples: deque[tuple[int, int, int, int, int]] = deque(maxlen=TPS_WINDOWS_S[-1] // int(TICK_S) + 1)
        self._day, self.mornings = today(), ((0, 0), (0, 0))  # puts, gets: yesterday, today

    def add(self, sample: tuple[int, int, int, int, int]) -> None:
        """Take one sample; the first of a day is that of its midnight."""
        self._samples.append(sample)
        today = self._today()
        if today != self._day:
            self._day, self.mornings = today, (self.mornings[1], (sample[1], sample[4]))

    def before(self, time_ms: int) -> tuple[int, ...]:
        """Return the newest sample not after a time, else the oldest there is, else the start."""
        found: tuple[int, ...] = (self.booted_ms, 0, 0, 0, 0)
        for number, sample in enumerate(self._samples):
            if number == 0 or sample[0] <= time_ms:
                found = sample
        return found


class BrokerCounters:
    """All counters of the broker. `names` of `view` are RocketMQ's."""

    def __init__(self, cluster: str, *, now_ms: Callable[[], int], today: Callable[[], object] = _today) -> None:
        self.puts, self.gets, self.misses = Item(), Item(), 0
        self.failed_puts = 0
        self._cluster, self._now_ms = cluster, now_ms
        self.past = PastTotals(now_ms(), today)
        self._put: dict[tuple[str, int], Item] = {}
        self._got: dict[tuple[str, str, int], Item] = {}  # topic, group, queue id
        self._topics: dict[str, Item] = {}
        self._groups: dict[tuple[str, str], Item] = {}  # topic, group
        self._returned: dict[tuple[str, str], Item] = {}

    # counting

    def put(self, topic: str, queue_id: int, count: int, size: int) -> None:
        """Count messages stored."""
        item = self._put.get((topic, queue_id))
        if item is None:
            item = self._put[topic, queue_id] = Item()
            self._topics.setdefault(topic, Item())
        item.calls += 1
        item.count += count
        item.size += size
        puts = self.puts
        puts.calls += 1
        puts.count += count
        puts.size += size

    def put_failed(self) -> None:
        self.failed_puts += 1

    def got(self, group: str, topic: str, queue_id: int, count: int, size: int) -> None:
        """Count messages pulled."""
        item = self._got.get((topic, group, queue_id)) or self._new_got(topic, group, queue_id)
        for counter in (item, self.gets):
            counter.calls += 1
            counter.count += count
            counter.size += size

    def _new_got(self, topic: str, group: str, queue_id: int) -> Item:
        """Return the counter of a queue of a group; beyond the limit one that nobody keeps."""
        item = Item()
        if len(self._got) < MOST_ITEMS:
            self._got[topic, group, queue_id] = item
            self._groups.setdefault((topic, group), Item())
        return item

    def missed(self) -> None:
        """Count a pull that found nothing."""
        self.misses += 1

    def sent_back(self, group: str, topic: str) -> None:
        """Count a message that a consumer sent back."""
        item = self._returned.get((topic, group))
        if item is None:
            item = Item()
            if len(self._returned) < MOST_ITEMS:
                self._returned[topic, group] = item
        item.calls += 1
        item.count += 1

    def forget_topic(self, topic: str) -> None:
        """Drop the counters of a deleted topic."""
        self._topics.pop(topic, None)
        self._put = {key: item for key, item in self._put.items() if key[0] != topic}
        self._got = {key: item for key, item in self._got.items() if key[0] != topic}
        self._groups = {key: item for key, item in self._groups.items() if key[0] != topic}
        self._returned = {key: item for key, item in self._returned.items() if key[0] != topic}

    # asking

    def views(self, name: str, key: str) -> tuple[StatsView, StatsView, StatsView] | None:
        """Return minute, hour and day of one of RocketMQ's statistics, None when nothing was ever counted.

        From samples alone, with no look at all other counters: tools ask for each topic and group in a row.
        """
        item = self._find(name.removesuffix("_NUMS").removesuffix("_SIZE"), key)
        if item is None:
            return None
        in_bytes = name.endswith("_SIZE")
        return (
            item.view(MINUTE, bytes_=in_bytes),
            item.view(HOUR, bytes_=in_bytes),
            item.view(DAY, bytes_=in_bytes),
        )

    def _find(self, family: str, key: str) -> Item | None:
        topic, _, group = key.partition("@")
        match family:
            case "TOPIC_PUT":
                return self._topics.get(key)
            case "GROUP_GET":
                return self._groups.get((topic, group))
            case "SNDBCK_PUT":
                return self._returned.get((topic, group))
            case "QUEUE_PUT":
                return self._put.get((topic, _number(group)))
            case "QUEUE_GET":
                queue_id, _, group = group.partition("@")
                return self._got.get((topic, group, _number(queue_id)))
            case "BROKER_PUT" | "BROKER_GET" if key == self._cluster:
                return self.puts if family == "BROKER_PUT" else self.gets
        return None

    def consume_tps(self, group: str, topic: str) -> float:
        """Return messages pulled per second in the last minute."""
        item = self._groups.get((topic, group))
        return item.view(MINUTE, bytes_=False).tps if item else 0.0

    def put_tps(self, topic: str) -> float:
        """Return messages stored per second in the last minute."""
        item = self._topics.get(topic)
        return item.view(MINUTE, bytes_=False).tps if item else 0.0

    def counts(self) -> TrafficCounts:
        """Return what was stored by topic and pulled by topic and group."""
        self._sum_up()
        put = {topic: (item.count, item.size) for topic, item in self._topics.items()}
        return TrafficCounts(put, {pair: (item.count, item.size) for pair, item in self._groups.items()})

    def rates(self) -> tuple[list[float], list[float], list[float], list[float]]:
        """Return per second, over 10 s, 60 s and 600 s: puts, pulls that found, that did not, messages pulled."""
        now = (self._now_ms(), self.puts.count, self.gets.calls, self.misses, self.gets.count)
        columns: tuple[list[float], ...] = ([], [], [], [])
        for window_s in TPS_WINDOWS_S:
            then = self.past.before(now[0] - window_s * 1000)
            span_ms = now[0] - then[0]
            for at, column in enumerate(columns, 1):
                column.append((now[at] - then[at]) * 1000 / span_ms if span_ms > 0 else 0.0)
        return columns[0], columns[1], columns[2], columns[3]

    def day_totals(self) -> tuple[DayTotals, DayTotals]:
        """Return puts and gets at the last midnights and now."""
        (put_before, got_before), (put_today, got_today) = self.past.mornings
        return DayTotals(put_before, put_today, self.puts.count), DayTotals(got_before, got_today, self.gets.count)

    # sampling

    async def run(self) -> None:
        """Sample until cancelled."""
        ticks = 0
        while True:
            await self.sample(ticks)
            await trio.sleep(TICK_S)
            ticks += 1

    async def sample(self, ticks: int) -> None:
        """Take the samples that are due at one tick."""
        now_ms = self._now_ms()
        self.past.add((now_ms, self.puts.count, self.gets.calls, self.misses, self.gets.count))
        views = [MINUTE]
        views += [HOUR] if ticks % TICKS_PER_HOUR_SAMPLE == 0 else []
        views += [DAY] if ticks % TICKS_PER_DAY_SAMPLE == 0 else []
        self._sum_up()
        whole = [self.puts, self.gets, *self._topics.values(), *self._groups.values(), *self._returned.values()]
        queues = [*self._put.values(), *self._got.values()]
        for number, item in enumerate([*whole, *queues]):
            for view in views if number < len(whole) else views[:1]:
                item.sample(view, now_ms)
            if number % ITEMS_PER_BREATH == 0:
                await trio.lowlevel.checkpoint()

    def _sum_up(self) -> None:
        """Bring topics and groups up to date with their queues."""
        by_topic: dict[str, list[Item]] = {}
        for (topic, _), item in self._put.items():
            by_topic.setdefault(topic, []).append(item)
        by_group: dict[tuple[str, str], list[Item]] = {}
        for (topic, group, _), item in self._got.items():
            by_group.setdefault((topic, group), []).append(item)
        for topic, items in by_topic.items():
            self._topics.setdefault(topic, Item()).set_to_sum(items)
        for key, items in by_group.items():
            self._groups.setdefault(key, Item()).set_to_sum(items)


def _number(text: str) -> int:
    """Return a queue id that a tool named, -1 for what is none."""
    return int(text) if text.isdecimal() and len(text) <= LONGEST_INT else -1
