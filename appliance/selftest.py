"""What a new version must do before it is kept: a real message in, durable, out again, and a route to it."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import trio

from appliance.admin import AdminRefused, AdminSilent
from appliance.device.probe import LOST, PLAIN, PROBE_TOPIC, LocalCredentials
from netstack.serving.channel import Channel, open_channel
from netstack.wire.codes import RequestCode, ResponseCode
from netstack.wire.command import RemotingCommand
from storage_driver.record import decode_record

ASK_S = 5.0
TERM_ALONE = 1  # of a log that a box had before it was a member, as each has that has run: the first leader's is higher
AGAIN_S = 0.5
# A follower has handed the send on, and gets the message in a moment:
NOT_YET = frozenset((ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_OFFSET_MOVED))
GROUP = "RBX_SELFTEST"
NO_LEADER_YET = "no message was sent: its group has had no leader yet, one is elected once enough members are there"
FOLLOWS, WAITS = "follows", "waits"
MOST_BEHIND = 1 << 20  # bytes; a copy that follows under load


class StepFailed(Exception):
    """One step did not give what it must: `text` says what came instead."""


@dataclass(frozen=True, slots=True)
class SelfTest:
    """Where the box is and how to read its health."""

    host: str
    broker_port: int
    namesrv_port: int
    health: Callable[[], Mapping[str, Any]]
    way: LocalCredentials = PLAIN
    uplink: Callable[[], object] | None = None  # asks the running uplink, blocks; None: the box ships nothing
    by_key: bool = False  # clients need keys: a follower's leader does not know the key that this box has in memory

    async def run(self, limit_s: float) -> dict[str, Any]:
        """Try until every step worked in one go or the time is over; return ok, steps with seconds, failed.

        `waits`: why no message was sent.
        """
        found: dict[str, Any] = {"ok": False, "steps": {}, "failed": "no time left for an attempt"}
        with trio.move_on_after(limit_s):
            while True:
                found = await self._once()
                if found["ok"]:
                    break
                await trio.sleep(AGAIN_S)
        return found

    async def _once(self) -> dict[str, Any]:
        steps: dict[str, float] = {}
        place = place_in_group(self.health())
        trial: dict[str, Callable[[], Awaitable[None]]] = {"health": self._health, "route": self._route}
        if place == FOLLOWS and self.by_key:
            trial["copy"] = self._copy
        elif place != WAITS:
            trial["message"] = self._message
        if self.uplink is not None:
            trial["uplink"] = self._uplink
        for name, step in trial.items():
            began_s = trio.current_time()
            failed = ""
            try:
                await step()
            except* StepFailed as group:
                failed = str(_only(group))
            except* (OSError, *LOST) as group:
                failed = f"no answer: {_only(group)}"
            if failed:
                return {"ok": False, "steps": steps, "failed": f"{name}: {failed}"}
            steps[name] = round(trio.current_time() - began_s, 4)
        return {"ok": True, "steps": steps} | ({"waits": NO_LEADER_YET} if place == WAITS else {})

    async def _health(self) -> None:
        await trio.lowlevel.checkpoint()
        health = self.health()
        if health.get("state") not in ("ok", "degraded"):
            reasons = "; ".join(str(one.get("text")) for one in health.get("reasons", []))
            raise StepFailed(f"state {health.get('state')} {reasons}".strip())

    async def _uplink(self) -> None:
        """The uplink has opened its ledger and answers; whether it reaches the centre is not this version's doing."""
        assert self.uplink is not None
        try:
            await trio.to_thread.run_sync(self.uplink, abandon_on_cancel=True)
        except (AdminRefused, AdminSilent) as exc:
            raise StepFailed(f"the uplink is set but does not answer: {exc}") from exc

    async def _route(self) -> None:
        async with open_channel(self.host, self.namesrv_port, tls=self.way.tls) as line:
            ask = RemotingCommand(RequestCode.GET_ROUTEINFO_BY_TOPIC, ext={"topic": PROBE_TOPIC})
            answer = await line.ask(self.way.signed(ask), ASK_S)
        if answer.code != ResponseCode.SUCCESS or b"brokerDatas" not in answer.body:
            raise StepFailed(f"route answered {answer.code} {answer.remark or ''}")

    async def _copy(self) -> None:
        """This follower is connected to its leader and has what that has."""
        await trio.lowlevel.checkpoint()
        told = self.health()["replication"]
        members = {each["member"]: each for each in told["members"]}
        leader, own = members.get(told["leader"], {}), members[told["member"]]
        if not leader.get("connected"):
            raise StepFailed(f"no connection to {told['leader']}, which leads the group")
        if own["behind_bytes"] > MOST_BEHIND:
            raise StepFailed(f"this copy is {own['behind_bytes']} bytes behind that of {told['leader']}")

    async def _message(self) -> None:
        body = b"rocketbox self-test " + os.urandom(16).hex().encode()
        async with open_channel(self.host, self.broker_port, tls=self.way.tls) as line:
            queue_offset = await _produce(line, self.way, body)
            found = await _pull(line, self.way, queue_offset)
        if found != body:
            raise StepFailed("the pulled message differs from the sent one")


def place_in_group(health: Mapping[str, Any]) -> str:
    """Return FOLLOWS, WAITS (of a group that has had no leader yet), "" of a box that leads or is alone."""
    told = health.get("replication") or {}
    if told.get("role") != "member" or told.get("serves"):
        return ""
    if told.get("leader"):
        return FOLLOWS if told["leader"] != told["member"] else ""
    return WAITS if told.get("term", 0) <= TERM_ALONE else ""


async def _produce(line: Channel, way: LocalCredentials, body: bytes) -> int:
    ext = {
        "producerGroup": GROUP,
        "topic": PROBE_TOPIC,
        "defaultTopic": "TBW102",
        "defaultTopicQueueNums": "1",
        "queueId": "0",
        "sysFlag": "0",
        "bornTimestamp": "0",
        "flag": "0",
        "properties": "",
        "reconsumeTimes": "0",
    }
    answer = await line.ask(way.signed(RemotingCommand(RequestCode.SEND_MESSAGE, ext=ext, body=body)), ASK_S)
    if answer.code != ResponseCode.SUCCESS:
        raise StepFailed(f"send answered {answer.code} {answer.remark or ''}")
    return int(answer.ext["queueOffset"])


async def _pull(line: Channel, way: LocalCredentials, queue_offset: int) -> bytes:
    ext = {
        "consumerGroup": GROUP,
        "topic": PROBE_TOPIC,
        "queueId": "0",
        "queueOffset": str(queue_offset),
        "maxMsgNums": "1",
        "sysFlag": "4",  # the subscription comes with the request
        "commitOffset": "0",
        "suspendTimeoutMillis": "0",
        "subscription": "*",
        "subVersion": "0",
        "expressionType": "TAG",
    }
    answer = await line.ask(way.signed(RemotingCommand(RequestCode.PULL_MESSAGE, ext=ext)), ASK_S)
    until_s = trio.current_time() + ASK_S
    while answer.code in NOT_YET and trio.current_time() < until_s:
        await trio.sleep(AGAIN_S / 10)
        answer = await line.ask(way.signed(RemotingCommand(RequestCode.PULL_MESSAGE, ext=ext)), ASK_S)
    if answer.code != ResponseCode.SUCCESS:
        raise StepFailed(f"pull answered {answer.code} {answer.remark or ''}")
    return bytes(decode_record(memoryview(answer.body), 0).body)


def _only(group: BaseExceptionGroup[Any]) -> BaseException:
    inner: BaseException = group
    while isinstance(inner, BaseExceptionGroup):
        inner = inner.exceptions[0]
    return inner
