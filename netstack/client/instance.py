"""One client of a cluster: id, NameServers, routes, connections and heartbeats, shared by producers and consumers."""

import logging
import os
import random
import socket
import ssl
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

import trio

from netstack.client.broker_requests import BrokerRequests
from netstack.client.errors import (
    BrokerRefused,
    ClientError,
    NoNameServer,
    NoRoute,
    TimedOut,
    Unreachable,
    UsageError,
    reading,
)
from netstack.client.greetings import Greetings
from netstack.client.ids import IdMaker
from netstack.client.lifetime import Lifetime
from netstack.client.links import CONNECT_S, Links
from netstack.client.members import ConsumerMember, ProducerMember
from netstack.client.name_servers import NameServers
from netstack.client.route_cache import RouteCache
from netstack.client.routes import TopicRoute, topic_route
from netstack.client.text import check_group
from netstack.errors import AskTimeout, ChannelClosed
from netstack.serving.channel import Channel
from netstack.wire.acl import sign
from netstack.wire.bodies import HeartbeatData, ProducerData
from netstack.wire.bodies_route import RouteData
from netstack.wire.codes import RequestCode, ResponseCode
from netstack.wire.command import VERSION, ExtFields, RemotingCommand, request
from netstack.wire.headers import UnregisterClientHeader
from netstack.wire.headers_namesrv import RouteHeader

ASK_S = 3.0
INNER_PRODUCER = "CLIENT_INNER_PRODUCER"
_log = logging.getLogger("netstack.client")


@dataclass(frozen=True, slots=True)
class Credentials:
    """An account of the cluster; every request is signed with it."""

    access_key: str
    secret_key: str = field(repr=False)
    security_token: str | None = field(default=None, repr=False)


def wall_ms() -> int:
    return time.time_ns() // 1_000_000


def own_address() -> str:
    """Return the address that traffic leaves from; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"


def shared_or_own(
    shared: "Instance | None",
    namesrv: str | Sequence[str] | None,
    credentials: "Credentials | None",
    tls: ssl.SSLContext | None,
    *,
    name: str = "",
) -> "tuple[Instance, Instance | None]":
    """Return the instance to use, and again as second value if its user opens and closes it. Raises UsageError."""
    if shared is None:
        own = Instance(namesrv, name=name, credentials=credentials, tls=tls)
        return own, own
    if namesrv is not None or credentials is not None or tls is not None:
        raise UsageError("namesrv, credentials and tls belong to the instance when one is given")
    return shared, None


class Instance:
    """Use it with `async with`, and give it to several producers and consumers so that they share connections."""

    def __init__(
        self,
        namesrv: str | Sequence[str] | None = None,
        *,
        name: str = "",
        credentials: Credentials | None = None,
        tls: ssl.SSLContext | None = None,
        now_ms: Callable[[], int] = wall_ms,
    ) -> None:
        self.now_ms, self._credentials = now_ms, credentials
        self._namesrv = NameServers(namesrv)
        address = own_address()
        self.client_id = f"{address}@{name or f'{os.getpid()}#{time.monotonic_ns()}'}"
        self.ids = IdMaker(socket.inet_aton(address), os.getpid(), random.getrandbits(32))
        self._routes, self._greetings = RouteCache(self._fetch_route, self._route_changed), Greetings()
        self.producers: dict[str, ProducerMember] = {}
        self.consumers: dict[str, ConsumerMember] = {}
        self.requests = BrokerRequests(
            self.producers, self.consumers, broker_name_at=self._routes.broker_name_at, now_ms=lambda: self.now_ms()
        )
        self._links = Links(self.requests.handle, tls, self._opened)
        self._lifetime = Lifetime("the client instance")

    @property
    def nursery(self) -> trio.Nursery:
        """Where all tasks of this client run."""
        return self._lifetime.nursery

    async def __aenter__(self) -> Self:
        nursery = await self._lifetime.begin()
        self._greetings.begin()
        nursery.start_soon(self._keep_routes)
        nursery.start_soon(self._keep_heartbeats)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._links.close()
        await self._lifetime.end()

    # --- who belongs to this client

    def add(self, member: ProducerMember | ConsumerMember, *, consumes: bool) -> None:
        """Register a group. Raises UsageError when it is there already or badly named."""
        check_group(member.group)
        table: dict[str, ProducerMember | ConsumerMember] = self.consumers if consumes else self.producers  # type: ignore[assignment]
        if member.group in table:
            raise UsageError(f"group {member.group} is already in use by this client; use another Instance or group")
        table[member.group] = member
        self._greetings.renew()

    async def remove(self, member: ProducerMember | ConsumerMember, *, consumes: bool) -> None:
        """Unregister a group at every connected broker, within three seconds."""
        table: dict[str, ProducerMember | ConsumerMember] = self.consumers if consumes else self.producers  # type: ignore[assignment]
        if table.get(member.group) is not member:
            return
        del table[member.group]
        group = {"consumer_group": member.group} if consumes else {"producer_group": member.group}
        header = UnregisterClientHeader(self.client_id, **group)
        await self.ask_each(self._brokers_connected(), RequestCode.UNREGISTER_CLIENT, header)

    async def ask_each(
        self, addresses: Collection[str], code: int, ext: ExtFields | None = None, body: bytes = b""
    ) -> dict[str, RemotingCommand]:
        """Ask several servers at once; return the answers that arrive within three seconds; failures are logged."""
        answers: dict[str, RemotingCommand] = {}

        async def ask_one(address: str) -> None:
            asked_at = trio.current_time()
            try:
                answers[address] = await self.ask(address, code, ext, body)
            except ClientError as error:
                if isinstance(error, TimedOut):
                    self._links.drop_silent(address, asked_at)
                _log.warning("event=ask_failed address=%s code=%d reason=%s", address, code, error)

        async with trio.open_nursery() as nursery:
            for address in addresses:
                nursery.start_soon(ask_one, address)
        return answers

    # --- requests

    @property
    def signs(self) -> bool:
        """True when requests carry a signature."""
        return self._credentials is not None

    def request(
        self,
        code: int,
        ext: Mapping[str, str] | ExtFields | None = None,
        body: bytes = b"",
        *,
        oneway: bool = False,
        version: int = VERSION,
    ) -> RemotingCommand:
        """Return a signed request."""
        command = request(code, ext, body, oneway=oneway, language="PYTHON", version=version)
        if self._credentials is not None:
            account = self._credentials
            sign(command, account.access_key, account.secret_key, account.security_token)
        return command

    async def channel(self, address: str, timeout_s: float = CONNECT_S) -> Channel:
        """Return the connection to an address. Raises Unreachable, TimedOut."""
        return await self._links.channel(address, self.nursery, timeout_s)

    def connected(self, address: str) -> Channel | None:
        return self._links.opened(address)

    async def ask(
        self,
        address: str,
        code: int,
        ext: Mapping[str, str] | ExtFields | None = None,
        body: bytes = b"",
        *,
        timeout_s: float = ASK_S,
        version: int = VERSION,
    ) -> RemotingCommand:
        """Return the answer, whatever its code. Raises Unreachable, TimedOut; connecting counts as well."""
        until = trio.current_time() + timeout_s
        channel = await self.channel(address, min(timeout_s, CONNECT_S))
        try:
            return await channel.ask(
                self.request(code, ext, body, version=version), max(0.0, until - trio.current_time())
            )
        except AskTimeout as error:
            raise TimedOut(f"request {code} to {address}", timeout_s) from error
        except ChannelClosed as error:
            raise Unreachable(address, f"connection ended before the answer ({error.reason})") from error

    async def ask_ok(
        self,
        address: str,
        code: int,
        ext: Mapping[str, str] | ExtFields | None = None,
        body: bytes = b"",
        *,
        timeout_s: float = ASK_S,
        version: int = VERSION,
    ) -> RemotingCommand:
        """As ask; raises BrokerRefused for every code but SUCCESS."""
        answer = await self.ask(address, code, ext, body, timeout_s=timeout_s, version=version)
        if answer.code != ResponseCode.SUCCESS:
            raise BrokerRefused(address, answer.code, answer.remark, f"request {code}")
        return answer

    async def tell(
        self, address: str, code: int, ext: Mapping[str, str] | ExtFields | None = None, body: bytes = b""
    ) -> bool:
        """Send a one-way request; False when its connection takes no more. Raises Unreachable, TimedOut."""
        channel = await self.channel(address)
        return channel.tell(self.request(code, ext, body, oneway=True))

    async def ask_namesrv(self, code: int, ext: ExtFields | None = None, body: bytes = b"") -> RemotingCommand:
        """Return a NameServer's answer; one that fails is skipped, one that works is kept. Raises NoNameServer."""
        reason = "no NameServer address is known"
        for address in self._namesrv.in_turn():
            asked_at = trio.current_time()
            try:
                answer = await self.ask(address, code, ext, body)
            except (Unreachable, TimedOut) as error:
                reason = error.reason if isinstance(error, Unreachable) else str(error)
                if isinstance(error, TimedOut):
                    self._links.drop_silent(address, asked_at)
            else:
                self._namesrv.prefer(address)
                return answer
        raise NoNameServer(self.name_servers, reason)

    @property
    def name_server(self) -> str:
        """The NameServer that answered last, as errors name it."""
        preferred = self._namesrv.preferred
        return "NameServer" if preferred is None else f"NameServer {preferred}"

    @property
    def name_servers(self) -> list[str]:
        """The addresses of all NameServers."""
        return self._namesrv.addresses

    # --- routes

    @property
    def routes(self) -> Mapping[str, TopicRoute]:
        """The routes that are known."""
        return self._routes.known

    async def route(self, topic: str) -> TopicRoute:
        """Return the route of a topic, from the cache or a NameServer. Raises NoRoute, NoNameServer."""
        return self.routes.get(topic) or await self.refresh(topic)

    async def refresh(self, topic: str) -> TopicRoute:
        """Return the route as a NameServer knows it now. Raises NoRoute, NoNameServer."""
        return await self._routes.refresh(topic, self.nursery)

    async def fetch_route_data(self, topic: str) -> RouteData:
        """Return the raw route. Raises NoRoute, NoNameServer, BrokerRefused, BadAnswer."""
        answer = await self.ask_namesrv(RequestCode.GET_ROUTEINFO_BY_TOPIC, RouteHeader(topic))
        if answer.code == ResponseCode.TOPIC_NOT_EXIST:
            raise NoRoute(topic)
        if answer.code != ResponseCode.SUCCESS:
            raise BrokerRefused(self.name_server, answer.code, answer.remark, f"route of {topic}")
        with reading(self.name_server, f"route of {topic}"):
            return RouteData.from_server(answer.body)

    async def _fetch_route(self, topic: str) -> TopicRoute:
        return topic_route(topic, await self.fetch_route_data(topic))

    def keep_route(self, route: TopicRoute) -> None:
        """Put a route into the cache; tell consumers when something changed."""
        self._routes.keep(route)

    def _route_changed(self, route: TopicRoute) -> None:
        if self.consumers:
            self._greetings.add_new({at for addresses in route.brokers.values() for at in addresses.values()})
        for consumer in list(self.consumers.values()):
            if route.topic in consumer.topics:
                consumer.wake()

    def suspect_routes(self) -> None:
        """A broker failed: look for new routes soon instead of within half a minute."""
        self._routes.suspect()

    def addresses_of(self, broker_name: str) -> Mapping[int, str]:
        """Return id → address of a broker as the newest routes say."""
        return self._routes.addresses_of(broker_name)

    async def _keep_routes(self) -> None:
        while True:
            await self._routes.stale()
            topics = {*self.routes, *(topic for each in self.consumers.values() for topic in each.topics)}
            for topic in topics:
                try:
                    await self.refresh(topic)
                except ClientError as error:
                    _log.info("event=route_not_refreshed topic=%s reason=%s", topic, error)
            self._links.keep_only({*self._routes.broker_addresses(masters_only=False), *self.name_servers})

    # --- heartbeats

    def _brokers_connected(self) -> list[str]:
        known = self._routes.broker_addresses(masters_only=False)
        return [address for address in self._links.addresses if address in known]

    async def heartbeat(self, addresses: Collection[str] | None = None) -> None:
        """Send a heartbeat to all brokers, or to those given. Failures are only logged."""
        if addresses is None:
            addresses = self._routes.broker_addresses(masters_only=not self.consumers)
        groups = [*self.producers, INNER_PRODUCER]
        consumers = tuple(consumer.heartbeat() for consumer in self.consumers.values())
        body = HeartbeatData(self.client_id, tuple(ProducerData(group) for group in groups), consumers).to_bytes()
        self._greetings.greeted(await self.ask_each(addresses, RequestCode.HEART_BEAT, None, body))

    def _opened(self, address: str) -> None:
        """A newly connected broker does not know this client yet."""
        if address not in self.name_servers:
            self._greetings.add(address)

    async def _keep_heartbeats(self) -> None:
        while True:
            fresh = await self._greetings.next()
            if fresh is None:
                await self.heartbeat()
            elif self.producers or self.consumers:
                await self.heartbeat(fresh & self._routes.broker_addresses(masters_only=False))
