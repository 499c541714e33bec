"""The box as an ordinary broker at foreign name servers: registered again every period and at each topic change.

Each name server is told the address of the box on the way to it, unless a rule for its network says otherwise. What one
of them does, or does not do, changes nothing for the others. Who makes or changes a topic by a tool is answered once
those that are reached know it, so that a client asks none of them too early. Source: RocketMQ 4.9.8 BrokerOuterAPI,
BrokerController, AdminBrokerProcessor.updateAndCreateTopic.
"""

import logging
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import trio

from appliance.broker.admin.topics import config_of
from appliance.broker.tables.topics import PROBE_TOPIC, READ, WRITE, TopicTable
from appliance.requests import Answer, DeferredReply, Handle, RequestPeer
from netstack.errors import AskTimeout, ChannelClosed, Refused
from netstack.serving.addresses import host_port, split_host_port
from netstack.serving.channel import Channel, open_channel
from netstack.wire.bodies_route import DataVersion, KvTable, RegisterBrokerBody, TopicConfigTable
from netstack.wire.codes import RequestCode, ResponseCode
from netstack.wire.command import RemotingCommand, request
from netstack.wire.conversation import Wake
from netstack.wire.headers_namesrv import BrokerHeader, RegisterBrokerHeader

log = logging.getLogger("appliance.namesrv")

ANSWER_S, FAREWELL_S = 6.0, 1.0
CALM_S = 0.1  # a burst of new topics is one registration
MASTER = 0


@dataclass(frozen=True, slots=True)
class RegistrarRules:
    """Where to register, and as what."""

    servers: Sequence[str]  # host:port
    address: Callable[[str, str], str]  # own address on the way there, the name server's address → what to register
    period_s: float = 30.0
    permission: int = READ | WRITE
    broker_id: int = MASTER
    ha_port: int = 0  # at which slaves fetch the log; 0: the next one, where nobody listens


class Registrar:
    """Keeps the box registered. `registered` counts the name servers that know it now."""

    def __init__(self, rules: RegistrarRules, topics: TopicTable) -> None:
        self._rules, self._topics = rules, topics
        self._changed = trio.Event()
        self._known_by: set[str] = set()
        self._changes = self._awaited = 0  # how many there were, and the newest that a tool waits for
        self._told: dict[str, int] = {}  # name server that is reached → the newest change it was told
        self._waiting: list[tuple[int, Wake]] = []
        topics.on_change(self._note_change)

    @property
    def registered(self) -> int:
        return len(self._known_by)

    async def run(self) -> None:
        """Register until cancelled, then say farewell."""
        async with trio.open_nursery() as nursery:
            for server in self._rules.servers:
                nursery.start_soon(self._keep_registered, server)
            await trio.sleep_forever()

    def telling(self, handlers: Mapping[int, Handle]) -> dict[int, Handle]:
        """Return the handlers that make and change topics, their answers held until the name servers are told."""
        codes = RequestCode.UPDATE_AND_CREATE_TOPIC, RequestCode.UPDATE_AND_CREATE_TOPIC_LIST
        return {code: partial(self._telling, handlers[code]) for code in codes}

    def _telling(self, handle: Handle, request: RemotingCommand, peer: RequestPeer) -> Answer:
        answer = handle(request, peer)
        if not isinstance(answer, DeferredReply):
            return answer
        self._awaited = self._changes
        when = partial(self._when_told, answer.when, self._changes)
        return DeferredReply(when, answer.mark, answer.response, answer.failed)

    def _when_told(self, when: Callable[[int, Wake], None], change: int, mark: int, wake: Wake) -> None:
        def saved(reason: str | None) -> None:
            if reason is not None:
                wake(reason)
            else:
                self._waiting.append((change, wake))
                self._release()

        when(mark, saved)

    def _release(self) -> None:
        """Wake those whose change every name server that is reached was told."""
        told = min(self._told.values(), default=self._changes)
        ready = [wake for change, wake in self._waiting if change <= told]
        self._waiting = [waiting for waiting in self._waiting if waiting[0] > told]
        for wake in ready:
            wake(None)

    def _note_change(self, name: str) -> None:
        self._changes += 1
        self._changed.set()
        self._changed = trio.Event()

    async def _keep_registered(self, server: str) -> None:
        host, port = split_host_port(server)
        failure = ""
        while True:
            try:
                async with open_channel(host, port) as channel:
                    failure = ""
                    await self._over(channel, server)
            except (OSError, AskTimeout, ChannelClosed) as exc:
                if str(exc) != failure:
                    failure = str(exc)
                    log.warning("event=not_registered namesrv=%s reason=%r", server, failure)
            self._known_by.discard(server)
            await trio.sleep(self._rules.period_s)

    async def _over(self, channel: Channel, server: str) -> None:
        """Register over one connection until it ends. Raises AskTimeout, ChannelClosed."""
        address = self._rules.address(channel.peer.local[0], channel.peer.remote[0])
        self._told[server] = 0
        try:
            while True:
                changed, change = self._changed, self._changes
                answer = await channel.ask(self._registration(address), ANSWER_S)
                self._note_answer(server, address, answer)
                self._told[server] = change
                self._release()
                with trio.move_on_after(self._rules.period_s):
                    await changed.wait()
                    if self._awaited <= change:
                        await trio.sleep(CALM_S)
        finally:
            del self._told[server]
            self._release()
            with trio.move_on_after(FAREWELL_S, shield=True):
                await self._say_farewell(channel, address)

    def _note_answer(self, server: str, address: str, answer: RemotingCommand) -> None:
        if answer.code != ResponseCode.SUCCESS:
            self._known_by.discard(server)
            log.warning("event=registration_refused namesrv=%s code=%d reason=%r", server, answer.code, answer.remark)
            return
        if server not in self._known_by:
            self._known_by.add(server)
            log.info("event=registered namesrv=%s address=%s", server, address)
        self._take_order(answer.body)

    def _take_order(self, body: bytes) -> None:
        """Mark the topics that a name server lists as ordered. Source: TopicConfigManager.updateOrderTopicConfig.

        One that it does not list stays as it is: several name servers need not know the same.
        """
        try:
            listed = KvTable.from_bytes(body).table if body else {}
        except Refused:
            return  # an answer without a table that can be read says nothing
        for name in listed:
            topic = self._topics.get(name)
            if topic is not None and not topic.order:
                self._topics.put(topic._replace(order=True))

    async def _say_farewell(self, channel: Channel, address: str) -> None:
        rules = self._topics.rules
        header = BrokerHeader(rules.broker, address, rules.cluster, self._rules.broker_id)
        try:
            await channel.ask(request(RequestCode.UNREGISTER_BROKER, header), FAREWELL_S)
        except (AskTimeout, ChannelClosed):
            pass  # it will expire there

    def _registration(self, address: str) -> RemotingCommand:
        """Return the whole topic table as a registration."""
        rules, permission = self._topics.rules, self._rules.permission
        configs = {topic.name: config_of(topic) for topic in self._topics.all() if topic.name != PROBE_TOPIC}
        if permission != READ | WRITE:
            configs = {name: replace(config, perm=permission) for name, config in configs.items()}
        version = DataVersion(self._topics.version.counter, self._topics.version.timestamp_ms)
        body = RegisterBrokerBody(TopicConfigTable(configs, version), ()).to_bytes()
        host, port = split_host_port(address)
        header = RegisterBrokerHeader(
            rules.broker,
            address,
            rules.cluster,
            host_port(host, self._rules.ha_port or port + 1),
            self._rules.broker_id,
            body_crc32=zlib.crc32(body) & 0x7FFFFFFF,
        )
        return request(RequestCode.REGISTER_BROKER, header, body)
