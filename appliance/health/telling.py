"""Puts together what is told about a box: who looks for conditions, who mutes them."""

import trio

from appliance.admin import Action
from appliance.health.condition_memory import ConditionMemory
from appliance.health.condition_watch import ConditionSources, ConditionWatch
from appliance.health.health import Source
from appliance.health.mutes import Mutes
from appliance.supervision import DiskTrend, HealthParts


def begin_telling(
    nursery: trio.Nursery, looked: ConditionSources, guarded: Source, memory: ConditionMemory | None = None
) -> tuple[HealthParts, dict[str, Action]]:
    """Start looking for what is wrong; return what the health object is made of, and what admin.sock may mute.

    memory: of the standings before this one.
    """
    store = looked.store
    trend, file = DiskTrend(store.statistics, store.config.root), store.state_file("conditions", folder="rocketbox")
    watch = ConditionWatch(looked, disk=trend.space, memory=memory)
    mutes = Mutes(file, now_ms=looked.now_ms, uptime_ms=lambda: int(trio.current_time() * 1000))
    nursery.start_soon(watch.run)
    told = HealthParts(trend, (guarded, watch.now), mutes.split, watch.told)
    if looked.replication is not None:
        told = told._replace(wait_change=looked.replication.wait_change)
    return told, mutes.actions()
