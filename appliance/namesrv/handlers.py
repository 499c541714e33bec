"""What the NameServer port answers: routes, registrations of other brokers, lists, key/value entries.

Handlers are plain functions; `namesrv_handlers` binds them to the tables they use. Source: RocketMQ 4.9.8
DefaultRequestProcessor.
"""

import zlib
from collections.abc import Callable, Mapping
from functools import partial

import trio

from appliance.broker.rights import owner_of
from appliance.broker.tables.saving import Saver
from appliance.requests import Answer, DeferredReply, Handle, Reply, RequestPeer
from netstack.errors import ProtocolError, Refused
from netstack.wire import fastjson
from netstack.wire.codes import RequestCode, ResponseCode
from netstack.wire.command import RemotingCommand
from netstack.wire.headers_namesrv import (
    AddWritePermReply,
    BrokerHeader,
    BrokerNameHeader,
    ClusterHeader,
    DataVersionReply,
    DeleteTopicInNamesrvHeader,
    KvHeader,
    KvReply,
    NamespaceHeader,
    PutKvHeader,
    RegisterBrokerHeader,
    RegisterBrokerReply,
    RouteHeader,
    WipeWritePermReply,
)
from storage_driver.named_tuple import NamedTuple

from . import answers
from .kv_config import ORDER_TOPICS, KvConfig
from .registration import data_version_json, read_data_version, read_registration
from .route_table import EXPIRY_S, MASTER, UNIT, UNIT_SUB, Registration, RouteTable

FAQ = "\nSee http://rocketmq.apache.org/docs/faq/ for further details."
SCAN_S = 10.0
MAX_NAME, MAX_FILTER_SERVERS = 255, 64
MAX_BROKER_ID = (1 << 31) - 1
MIN_EXPIRY_S, MAX_EXPIRY_S = 10.0, 600.0  # of what a 5.x broker may ask for
Address = Callable[[RequestPeer], str]
"""The own broker's `ip:port` as this peer reaches it."""


class OwnSlaves(NamedTuple):
    """Who may register as a slave of the box's own broker, and at which port slaves fetch its log."""

    admits: Callable[[str], bool]
    port: int


class NamesrvState(NamedTuple):
    """The tables of one NameServer and what answers need besides."""

    routes: RouteTable
    kv: KvConfig
    kv_saver: Saver
    address: Address
    now_s: Callable[[], float]
    order_messages: bool = False
    properties: Callable[[], str] = lambda: ""  # the text of 319
    slaves: OwnSlaves | None = None  # None: the box has none


def namesrv_handlers(state: NamesrvState) -> dict[int, Handle]:
    """Return request code → handler of the NameServer port."""
    return {code: partial(handle, state=state) for code, handle in _HANDLERS.items()}


async def expire_brokers(routes: RouteTable, now_s: Callable[[], float]) -> None:
    """Every ten seconds forget the brokers that were silent too long, until cancelled."""
    while True:
        await trio.sleep(SCAN_S)
        routes.expire(now_s())


# routes and lists


def handle_route(request: RemotingCommand, peer: RequestPeer, *, state: NamesrvState) -> Answer:
    """GET_ROUTEINFO_BY_TOPIC (105): where a topic is, or 17 in the words that clients show."""
    topic = RouteHeader.from_ext(request.ext).topic
    route = state.routes.route(topic, state.address(peer))
    if route is None:
        remark = f"No topic route info in name server for the topic: {topic}{FAQ}"
        return Reply(request.reply(ResponseCode.TOPIC_NOT_EXIST, remark))
    order = state.kv.get(ORDER_TOPICS, topic) if state.order_messages else None
    return Reply(request.reply(body=answers.route_body(route, order)))


def handle_cluster(request: RemotingCommand, peer: RequestPeer, *, state: NamesrvState) -> Answer:
    """GET_BROKER_CLUSTER_INFO (106)."""
    brokers = state.routes.brokers(state.address(peer))
    return Reply(request.reply(body=answers.cluster_body(brokers, state.routes.clusters())))


def handle_all_topics(request: RemotingCommand, peer: RequestPeer, *, state: NamesrvState) -> Answer:
    """GET_ALL_TOPIC_LIST_FROM_NAMESERVER (206)."""
    return _topics(request, state.routes.topics())


def handle_topics_of_cluster(request: RemotingCommand, peer: RequestPeer, *, state: NamesrvState) -> Answer:
    """GET_TOPICS_BY_CLUSTER (224): none for an unknown cluster."""
    return _topics(request, state.routes.topics_of_cluster(ClusterHeader.from_ext(request.ext).cluster))


def handle_system_topics(request: RemotingCommand, peer: RequestPeer, *, state: NamesrvState) -> Answer:
    """GET_SYSTEM_TOPIC_LIST_FROM_NS (304): cluster and broker names, and one broker to ask further."""
    body = answers.topic_list_body(state.routes.system_topics(), state.address(peer))
    return Reply(request.reply(body=body))


def handle_flagged_topics(
    request: RemotingCommand, peer: RequestPeer, *, state: NamesrvState, wanted: int, unwanted: int
) -> Answer:
    """GET_UNIT_TOPIC_LIST (311), GET_HAS_UNIT_SUB_TOPIC_LIST (312), GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST (313)."""
    return _topics(request, state.routes.topics_with_flags(wanted, unwanted))


def _topics(request: RemotingCommand, names: list[str]) -> Answer:
    return Reply(request.reply(body=answers.topic_list_body(names)))


# registrations


def handle_register(request: RemotingCommand, peer: RequestPeer, *, state: NamesrvState) -> Answer:
    """REGISTER_BROKER (103): another broker and its topics are routed from here on."""
    header = RegisterBrokerHeader.from_ext(request.ext)
    if header.body_crc32 and header.body_crc32 != zlib.crc32(request.body) & 0x7FFFFFFF:
        raise Refused(ResponseCode.SYSTEM_ERROR, "crc32 not match")
    told = _registration(header, request, owner_of(peer) or peer.remote[0])
    _check_place(told, state, peer)
    first = state.routes.new_channel(peer.id)
    master = state.routes.register(told, peer.id, state.now_s()) or _own_master(told, state, peer)
    if first:
        peer.on_close(partial(state.routes.channel_closed, peer.id))
    order = state.kv.namespace(ORDER_TOPICS)
    ha_address, address = master or (None, None)
    body = b"" if order is None else answers.table_body(order)
    return Reply(request.reply(ext=RegisterBrokerReply(ha_address, address), body=body))


def _registration(header: RegisterBrokerHeader, request: RemotingCommand, owner: str) -> Registration:
    name = header.broker_name
    try:
        version, rows, servers = read_registration(
            request.body, name, version=request.version, compressed=header.compressed
        )
    except ProtocolError as exc:
        raise Refused(ResponseCode.SYSTEM_ERROR, f"registration of {name} cannot be read: {exc}") from exc
    asked_s = EXPIRY_S if header.heartbeat_timeout_ms is None else header.heartbeat_timeout_ms / 1000
    return Registration(
        name,
        header.broker_addr,
        header.cluster_name,
        header.ha_server_addr,
        header.broker_id,
        version,
        rows,
        servers,
        expiry_s=min(max(asked_s, MIN_EXPIRY_S), MAX_EXPIRY_S),
        owner=owner,
    )


def _own_master(told: Registration, state: NamesrvState, peer: RequestPeer) -> tuple[str, str] | None:
    """Return HA address and address of this box's broker to a slave of it."""
    if state.slaves is None or not state.routes.is_own(told.name):
        return None
    address = state.address(peer)
    return f"{address.rpartition(':')[0]}:{state.slaves.port}", address


def _check_own(told: Registration, state: NamesrvState, peer: RequestPeer) -> None:
    """Let a slave of the box's own broker register. Raises Refused."""
    what = f"the broker name {told.name} is this box itself"
    if told.broker_id == MASTER:
        text = f"{what}; give the broker at {told.address} another name"
    elif state.slaves is None:
        text = f'{what}; give the broker at {told.address} another name, or set replication.role = "master" for slaves'
    elif not state.slaves.admits(peer.remote[0]):
        text = f"{what}, and {peer.remote[0]} may not be its slave: add its network to replication.slaves"
    else:
        return
    raise Refused(ResponseCode.SYSTEM_ERROR, text)


def _check_place(told: Registration, state: NamesrvState, peer: RequestPeer) -> None:
    routes = state.routes
    _check_names(told)
    if routes.is_own(told.name):
        _check_own(told, state, peer)
    if not _is_address(told.address):
        text = f"register broker failed: {told.address} is not host:port with a port from 1 to 65535"
        raise Refused(ResponseCode.SYSTEM_ERROR, text)
    if not 0 <= told.broker_id <= MAX_BROKER_ID:
        text = f"register broker failed: broker id {told.broker_id}, allowed: 0 to {MAX_BROKER_ID}"
        raise Refused(ResponseCode.SYSTEM_ERROR, text)
    _check_owner(routes, told.name, told.address, told.broker_id, told.owner)
    if routes.is_full_for(told):
        text = f"register broker failed: no room for {told.name} with {len(told.topics or ())} topics on this box"
        raise Refused(ResponseCode.SYSTEM_ERROR, text)


def _is_address(text: str) -> bool:
    host, _, port = text.rpartition(":")
    return bool(host) and port.isascii() and port.isdecimal() and len(port) <= 5 and 0 < int(port) <= 65535


def _check_owner(routes: RouteTable, name: str, address: str, broker_id: int, owner: str) -> None:
    """Raises Refused when a registration that lives was brought by somebody else."""
    other = routes.others(name, address, broker_id, owner)
    if other is not None:
        text = f"broker {name}, id {broker_id}, at {address}: {other} was registered by another address or key"
        raise Refused(
            ResponseCode.NO_PERMISSION, f"{text} and is connected; it can be replaced after that connection ends"
        )


def _check_names(told: Registration) -> None:
    names = (told.name, told.address, told.cluster, told.ha_address, *(told.topics or ()), *(told.filter_servers or ()))
    longest = max(names, key=len)
    if len(longest) > MAX_NAME or len(told.filter_servers or ()) > MAX_FILTER_SERVERS:
        text = f"register broker failed: a name of {len(longest)} characters, at most {MAX_NAME} are allowed"
        raise Refused(ResponseCode.SYSTEM_ERROR, text)


def handle_unregister(request: RemotingCommand, peer: RequestPeer, *, state: NamesrvState) -> Answer:
    """UNREGISTER_BROKER (104): 0, also for one that is not there. Raises Refused for what somebody else registered."""
    header = BrokerHeader.from_ext(request.ext)
    owner = owner_of(peer) or peer.remote[0]
    _check_owner(state.routes, header.broker_name, header.broker_addr, header.broker_id, owner)
    state.routes.unregister(header.broker_name, header.broker_addr, header.broker_id)
    return Reply(request.reply())


def handle_data_version(request: RemotingCommand, peer: RequestPeer, *, state: NamesrvState) -> Answer:
    """QUERY_DATA_VERSION (322): has the broker's topic table changed since it registered?"""
    header = BrokerHeader.from_ext(request.ext)
    try:
        asked = read_data_version(fastjson.loads(request.body))
    except ProtocolError as exc:
        raise Refused(ResponseCode.SYSTEM_ERROR, f"the body has no data version: {exc}") from exc
    known = state.routes.version_of(header.broker_addr)
    same = known is not None and known.same_as(asked)
    if same:
        state.routes.seen(header.broker_addr, owner_of(peer) or peer.remote[0], state.now_s())
    body = b"" if known is None else data_version_json(known)
    return Reply(request.reply(ext=DataVersionReply(not same), body=body))


# administration


def handle_wipe_write(request: RemotingCommand, peer: RequestPeer, *, state: NamesrvState) -> Answer:
    """WIPE_WRITE_PERM_OF_BROKER (205)."""
    count = state.routes.wipe_write(BrokerNameHeader.from_ext(request.ext).broker_name)
    return Reply(request.reply(ext=WipeWritePermReply(count)))


def handle_add_write(request: RemotingCommand, peer: RequestPeer, *, state: NamesrvState) -> Answer:
    """ADD_WRITE_PERM_OF_BROKER (327)."""
    count = state.routes.add_write(BrokerNameHeader.from_ext(request.ext).broker_name)
    return Reply(request.reply(ext=AddWritePermReply(count)))


def handle_delete_topic(request: RemotingCommand, peer: RequestPeer, *, state: NamesrvState) -> Answer:
    """DELETE_TOPIC_IN_NAMESRV (216): always 0."""
    header = DeleteTopicInNamesrvHeader.from_ext(request.ext)
    state.routes.delete_topic(header.topic, header.cluster_name)
    return Reply(request.reply())


def handle_put_kv(request: RemotingCommand, peer: RequestPeer, *, state: NamesrvState) -> Answer:
    """PUT_KV_CONFIG (100): answered once it is on disk."""
    _check_kv(request.ext)
    header = PutKvHeader.from_ext(request.ext)
    if state.kv.is_full_for(header.namespace, header.key, header.value):
        raise Refused(
            ResponseCode.SYSTEM_ERROR, f"no room for {header.namespace}/{header.key[:60]}: delete some entries"
        )
    state.kv.put(header.namespace, header.key, header.value)
    return _held_until_saved(request, state.kv_saver)


def handle_delete_kv(request: RemotingCommand, peer: RequestPeer, *, state: NamesrvState) -> Answer:
    """DELETE_KV_CONFIG (102): answered once it is on disk."""
    _check_kv(request.ext)
    header = KvHeader.from_ext(request.ext)
    state.kv.delete(header.namespace, header.key)
    return _held_until_saved(request, state.kv_saver)


def _check_kv(ext: Mapping[str, str]) -> None:
    if not ext.get("namespace") or not ext.get("key"):
        raise Refused(ResponseCode.SYSTEM_ERROR, "namespace or key is null")


def _held_until_saved(request: RemotingCommand, saver: Saver) -> DeferredReply:
    mark = saver.changed()
    failed = partial(request.reply, ResponseCode.SYSTEM_ERROR)
    return DeferredReply(saver.when_saved, mark, request.reply(), failed)


def handle_get_kv(request: RemotingCommand, peer: RequestPeer, *, state: NamesrvState) -> Answer:
    """GET_KV_CONFIG (101)."""
    header = KvHeader.from_ext(request.ext)
    value = state.kv.get(header.namespace, header.key)
    if value is None:
        remark = f"No config item, Namespace: {header.namespace} Key: {header.key}"
        return Reply(request.reply(ResponseCode.QUERY_NOT_FOUND, remark))
    return Reply(request.reply(ext=KvReply(value)))


def handle_kv_list(request: RemotingCommand, peer: RequestPeer, *, state: NamesrvState) -> Answer:
    """GET_KVLIST_BY_NAMESPACE (219)."""
    namespace = NamespaceHeader.from_ext(request.ext).namespace
    entries = state.kv.namespace(namespace)
    if entries is None:
        return Reply(request.reply(ResponseCode.QUERY_NOT_FOUND, f"No config item, Namespace: {namespace}"))
    return Reply(request.reply(body=answers.table_body(entries)))


def handle_config(request: RemotingCommand, peer: RequestPeer, *, state: NamesrvState) -> Answer:
    """GET_NAMESRV_CONFIG (319): Apache's names with this box's values."""
    return Reply(request.reply(body=state.properties().encode()))


_C = RequestCode
_HANDLERS: dict[int, Callable[..., Answer]] = {
    _C.GET_ROUTEINFO_BY_TOPIC: handle_route,
    _C.GET_BROKER_CLUSTER_INFO: handle_cluster,
    _C.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: handle_all_topics,
    _C.GET_TOPICS_BY_CLUSTER: handle_topics_of_cluster,
    _C.GET_SYSTEM_TOPIC_LIST_FROM_NS: handle_system_topics,
    _C.GET_UNIT_TOPIC_LIST: partial(handle_flagged_topics, wanted=UNIT, unwanted=0),
    _C.GET_HAS_UNIT_SUB_TOPIC_LIST: partial(handle_flagged_topics, wanted=UNIT_SUB, unwanted=0),
    _C.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: partial(handle_flagged_topics, wanted=UNIT_SUB, unwanted=UNIT),
    _C.REGISTER_BROKER: handle_register,
    _C.UNREGISTER_BROKER: handle_unregister,
    _C.QUERY_DATA_VERSION: handle_data_version,
    _C.WIPE_WRITE_PERM_OF_BROKER: handle_wipe_write,
    _C.ADD_WRITE_PERM_OF_BROKER: handle_add_write,
    _C.DELETE_TOPIC_IN_NAMESRV: handle_delete_topic,
    _C.PUT_KV_CONFIG: handle_put_kv,
    _C.GET_KV_CONFIG: handle_get_kv,
    _C.DELETE_KV_CONFIG: handle_delete_kv,
    _C.GET_KVLIST_BY_NAMESPACE: handle_kv_list,
    _C.GET_NAMESRV_CONFIG: handle_config,
}
