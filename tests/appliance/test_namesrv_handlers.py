"""The NameServer's answers, byte for byte where clients cut them apart."""

import zlib
from functools import partial

import pytest
import trio

from appliance.broker.access.accounts import Account
from appliance.broker.tables.saving import Saver
from appliance.namesrv.handlers import NamesrvState, namesrv_handlers
from appliance.namesrv.kv_config import KvConfig
from appliance.namesrv.route_table import BrokerQueues, OwnBroker, RouteTable, TopicTableVersion
from appliance.requests import Answer, DeferredReply, Reply, Responder
from appliance.testing import FakePeer, MemoryStateFile
from netstack.wire.codes import RequestCode as Code
from netstack.wire.command import RemotingCommand, request

OWN = {"T": BrokerQueues("box", 4, 4, 6)}
BODY = (
    b'{"filterServerList":[],"topicConfigSerializeWrapper":{"dataVersion":{"counter":0,"timestamp":7},'
    b'"topicConfigTable":{"U":{"order":false,"perm":6,"readQueueNums":4,"topicFilterType":"SINGLE_TAG",'
    b'"topicName":"U","topicSysFlag":0,"writeQueueNums":4}}}}'
)
EXT = {
    "brokerName": "broker-a",
    "brokerAddr": "127.0.0.1:20911",
    "clusterName": "DefaultCluster",
    "haServerAddr": "127.0.0.1:20912",
    "brokerId": "0",
}


class Server:
    """A NameServer without a socket."""

    def __init__(self, *, order_messages: bool = False) -> None:
        own = OwnBroker("box", "Edge", OWN.get, lambda: list(OWN.items()), lambda: TopicTableVersion(1, 1))
        self.now_s = 0.0
        self.kv, self.file = KvConfig(), MemoryStateFile()
        self.saver = Saver(self.file, lambda: self.kv.to_object())
        self.routes = RouteTable(own)
        state = NamesrvState(
            self.routes,
            self.kv,
            self.saver,
            lambda peer: f"{peer.local[0]}:10911",
            lambda: self.now_s,
            order_messages,
            lambda: "listenPort=9876\n",
        )
        self._respond = Responder(namesrv_handlers(state))

    def raw(self, command: RemotingCommand, peer: FakePeer | None = None) -> Answer:
        return self._respond(command, peer or FakePeer())

    def ask(
        self, code: int, ext: dict[str, str] | None = None, body: bytes = b"", **options: object
    ) -> RemotingCommand:
        peer = options.get("peer")
        answer = self.raw(request(code, ext, body), peer if isinstance(peer, FakePeer) else None)
        assert isinstance(answer, Reply)
        return answer.response


def test_a_route_is_exactly_what_every_client_can_cut_apart() -> None:
    peer = FakePeer(local=("192.168.7.5", 9876))
    assert Server().ask(Code.GET_ROUTEINFO_BY_TOPIC, {"topic": "T"}, peer=peer).body == (
        b'{"brokerDatas":[{"brokerAddrs":{"0":"192.168.7.5:10911"},"brokerName":"box","cluster":"Edge",'
        b'"enableActingMaster":false}],"filterServerTable":{},"queueDatas":[{"brokerName":"box","perm":6,'
        b'"readQueueNums":4,"topicSysFlag":0,"writeQueueNums":4}]}'
    )


def test_an_unknown_topic_gets_17_in_the_words_clients_show() -> None:
    answer = Server().ask(Code.GET_ROUTEINFO_BY_TOPIC, {"topic": "nobody"})
    assert (answer.code, answer.body) == (17, b"")
    assert answer.remark == (
        "No topic route info in name server for the topic: nobody\n"
        "See http://rocketmq.apache.org/docs/faq/ for further details."
    )


def test_the_order_of_a_topic_is_told_only_when_switched_on() -> None:
    for switched_on in (False, True):
        server = Server(order_messages=switched_on)
        server.kv.put("ORDER_TOPIC_CONFIG", "T", "box:4")
        body = server.ask(Code.GET_ROUTEINFO_BY_TOPIC, {"topic": "T"}).body
        assert (b'"filterServerTable":{},"orderTopicConf":"box:4","queueDatas"' in body) is switched_on


def test_a_registered_broker_is_routed_listed_and_gone_with_its_connection() -> None:
    server, peer = Server(), FakePeer(5)
    answer = server.ask(Code.REGISTER_BROKER, EXT, BODY, peer=peer)
    assert (answer.code, answer.ext, answer.body) == (0, {}, b"")
    assert server.ask(Code.GET_BROKER_CLUSTER_INFO).body == (
        b'{"brokerAddrTable":{"box":{"brokerAddrs":{"0":"127.0.0.1:10911"},"brokerName":"box","cluster":"Edge",'
        b'"enableActingMaster":false},"broker-a":{"brokerAddrs":{"0":"127.0.0.1:20911"},"brokerName":"broker-a",'
        b'"cluster":"DefaultCluster","enableActingMaster":false}},'
        b'"clusterAddrTable":{"Edge":["box"],"DefaultCluster":["broker-a"]}}'
    )
    assert server.ask(Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER).body == b'{"topicList":["T","U"]}'
    assert server.ask(Code.GET_TOPICS_BY_CLUSTER, {"cluster": "Edge"}).body == b'{"topicList":["T"]}'
    assert server.ask(Code.GET_SYSTEM_TOPIC_LIST_FROM_NS).body == (
        b'{"brokerAddr":"127.0.0.1:10911","topicList":["Edge","box","DefaultCluster","broker-a"]}'
    )
    peer.close()
    assert server.ask(Code.GET_ROUTEINFO_BY_TOPIC, {"topic": "U"}).code == 17


def test_a_slave_learns_its_master_and_everybody_the_order_topics() -> None:
    server = Server()
    server.kv.put("ORDER_TOPIC_CONFIG", "T", "broker-a:4")
    master = server.ask(Code.REGISTER_BROKER, EXT, BODY)
    assert (master.ext, master.body) == ({}, b'{"table":{"T":"broker-a:4"}}')
    slave = server.ask(Code.REGISTER_BROKER, EXT | {"brokerId": "1", "brokerAddr": "127.0.0.1:30911"}, BODY)
    assert slave.ext == {"haServerAddr": "127.0.0.1:20912", "masterAddr": "127.0.0.1:20911"}


def test_a_damaged_registration_changes_nothing() -> None:
    server = Server()
    wrong = server.ask(Code.REGISTER_BROKER, EXT | {"bodyCrc32": "7"}, BODY)
    assert (wrong.code, wrong.remark) == (1, "crc32 not match")
    torn = server.ask(Code.REGISTER_BROKER, EXT, BODY[:-9])
    assert torn.code == 1
    assert "broker-a" in str(torn.remark)
    assert server.ask(Code.GET_ROUTEINFO_BY_TOPIC, {"topic": "U"}).code == 17
    right = str(zlib.crc32(BODY) & 0x7FFFFFFF)
    assert server.ask(Code.REGISTER_BROKER, EXT | {"bodyCrc32": right}, BODY).code == 0


def test_unregistering_what_one_registered_is_always_granted() -> None:
    server = Server()
    server.ask(Code.REGISTER_BROKER, EXT, BODY)
    assert server.ask(Code.UNREGISTER_BROKER, EXT).code == 0
    assert server.ask(Code.UNREGISTER_BROKER, EXT).code == 0
    assert server.ask(Code.GET_ROUTEINFO_BY_TOPIC, {"topic": "U"}).code == 17


def test_a_broker_learns_whether_its_version_is_known() -> None:
    server = Server()
    asked = partial(server.ask, Code.QUERY_DATA_VERSION, EXT)
    unknown = asked(b'{"counter":0,"timestamp":7}')
    assert (unknown.ext, unknown.body) == ({"changed": "true"}, b"")
    server.ask(Code.REGISTER_BROKER, EXT, BODY)
    same = asked(b'{"counter":0,"timestamp":7}')
    assert (same.ext, same.body) == ({"changed": "false"}, b'{"counter":0,"timestamp":7}')
    assert asked(b'{"counter":1,"timestamp":7}').ext == {"changed": "true"}
    assert asked(b"").code == 1


def test_write_permission_is_wiped_and_given_back() -> None:
    server = Server()
    server.ask(Code.REGISTER_BROKER, EXT, BODY)
    assert server.ask(Code.WIPE_WRITE_PERM_OF_BROKER, {"brokerName": "broker-a"}).ext == {"wipeTopicCount": "1"}
    assert b'"perm":4' in server.ask(Code.GET_ROUTEINFO_BY_TOPIC, {"topic": "U"}).body
    assert server.ask(Code.ADD_WRITE_PERM_OF_BROKER, {"brokerName": "broker-a"}).ext == {"addTopicCount": "1"}
    assert server.ask(Code.WIPE_WRITE_PERM_OF_BROKER, {"brokerName": "nobody"}).ext == {"wipeTopicCount": "0"}


def test_a_topic_is_deleted_from_the_cluster_named() -> None:
    server = Server()
    server.ask(Code.REGISTER_BROKER, EXT, BODY)
    assert server.ask(Code.DELETE_TOPIC_IN_NAMESRV, {"topic": "U", "clusterName": "Edge"}).code == 0
    assert server.ask(Code.GET_ROUTEINFO_BY_TOPIC, {"topic": "U"}).code == 0
    assert server.ask(Code.DELETE_TOPIC_IN_NAMESRV, {"topic": "U"}).code == 0
    assert server.ask(Code.GET_ROUTEINFO_BY_TOPIC, {"topic": "U"}).code == 17


async def test_a_key_is_acknowledged_once_it_is_on_disk() -> None:
    server = Server()
    answer = server.raw(request(Code.PUT_KV_CONFIG, {"namespace": "N", "key": "k", "value": "v"}))
    assert isinstance(answer, DeferredReply)
    woken: list[tuple[str | None, object]] = []
    answer.when(answer.mark, lambda reason: woken.append((reason, server.file.content)))
    assert woken == []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.saver.run)
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert woken == [(None, {"configTable": {"N": {"k": "v"}}})]
    assert server.ask(Code.GET_KV_CONFIG, {"namespace": "N", "key": "k"}).ext == {"value": "v"}
    assert server.ask(Code.GET_KVLIST_BY_NAMESPACE, {"namespace": "N"}).body == b'{"table":{"k":"v"}}'
    server.raw(request(Code.DELETE_KV_CONFIG, {"namespace": "N", "key": "k"}))
    assert server.ask(Code.GET_KVLIST_BY_NAMESPACE, {"namespace": "N"}).body == b'{"table":{}}'


@pytest.mark.parametrize(
    ("code", "ext", "refusal"),
    [
        (Code.GET_KV_CONFIG, {"namespace": "N", "key": "k"}, (22, "No config item, Namespace: N Key: k")),
        (Code.GET_KVLIST_BY_NAMESPACE, {"namespace": "N"}, (22, "No config item, Namespace: N")),
        (Code.PUT_KV_CONFIG, {"namespace": "N", "value": "v"}, (1, "namespace or key is null")),
        (Code.DELETE_KV_CONFIG, {}, (1, "namespace or key is null")),
        (Code.UPDATE_NAMESRV_CONFIG, {}, (3, " request type 318 not supported")),
        (Code.SEND_MESSAGE, {}, (3, " request type 10 not supported")),
        (9999, {}, (3, " request type 9999 not supported")),
    ],
)
def test_what_is_not_there_is_refused(code: int, ext: dict[str, str], refusal: tuple[int, str]) -> None:
    answer = Server().ask(code, ext)
    assert (answer.code, answer.remark) == refusal


def test_the_configuration_is_read_as_text() -> None:
    assert Server().ask(Code.GET_NAMESRV_CONFIG).body == b"listenPort=9876\n"


def test_a_registration_with_endless_names_is_refused() -> None:
    server = Server()
    for name in ("brokerName", "clusterName", "brokerAddr", "haServerAddr"):
        answer = server.ask(Code.REGISTER_BROKER, EXT | {name: "x" * 256})
        assert (answer.code, "256 characters" in str(answer.remark)) == (1, True)
    assert server.ask(Code.GET_BROKER_CLUSTER_INFO).body.count(b"brokerName") == 1


STRANGER, BROKER = "192.168.7.66", "192.168.7.9"


def test_nobody_adds_an_address_under_the_name_of_the_box_whatever_the_broker_id() -> None:
    server = Server()
    for broker_id in ("0", "1", "7"):
        answer = server.ask(Code.REGISTER_BROKER, EXT | {"brokerName": "box", "brokerId": broker_id}, BODY)
        assert (answer.code, "another name" in str(answer.remark)) == (1, True)
    assert b"20911" not in server.ask(Code.GET_ROUTEINFO_BY_TOPIC, {"topic": "T"}).body


@pytest.mark.parametrize(
    ("code", "changed"),
    [
        (Code.UNREGISTER_BROKER, {}),
        (Code.UNREGISTER_BROKER, {"brokerName": "other"}),
        (Code.UNREGISTER_BROKER, {"brokerAddr": "192.168.7.66:20911"}),
        (Code.REGISTER_BROKER, {}),
        (Code.REGISTER_BROKER, {"brokerName": "other"}),
        (Code.REGISTER_BROKER, {"brokerAddr": "192.168.7.66:20911"}),
    ],
)
def test_a_registration_belongs_to_the_address_that_brought_it_as_long_as_it_lives(
    code: int, changed: dict[str, str]
) -> None:
    server, broker = Server(), FakePeer(5, (BROKER, 1))
    server.ask(Code.REGISTER_BROKER, EXT, BODY, peer=broker)
    before = server.ask(Code.GET_BROKER_CLUSTER_INFO).body
    refused = server.ask(code, EXT | changed, BODY, peer=FakePeer(6, (STRANGER, 1)))
    assert (refused.code, "another address or key" in str(refused.remark)) == (16, True)
    assert server.ask(Code.GET_BROKER_CLUSTER_INFO).body == before
    assert server.ask(Code.UNREGISTER_BROKER, EXT, peer=FakePeer(7, (BROKER, 2))).code == 0
    assert server.ask(code, EXT | changed, BODY, peer=FakePeer(8, (STRANGER, 1))).code == 0  # nobody's now


def test_a_stranger_does_not_keep_a_silent_broker_alive() -> None:
    server, broker, stranger = Server(), FakePeer(5, (BROKER, 1)), FakePeer(6, (STRANGER, 1))
    server.ask(Code.REGISTER_BROKER, EXT, BODY, peer=broker)
    server.now_s = 100.0
    server.ask(Code.QUERY_DATA_VERSION, EXT, b'{"counter":0,"timestamp":7}', peer=stranger)
    assert server.routes.expire(121.0) == [(5, "127.0.0.1:20911")]


def test_a_registration_belongs_to_the_key_that_signed_it_from_whatever_address() -> None:
    server, one, two = Server(), FakePeer(5, (BROKER, 1)), FakePeer(6, ("192.168.7.10", 1))
    one.signer = two.signer = Account("broker-key", "not-used-here", admin=True)
    other = FakePeer(7, (BROKER, 3))
    other.signer = Account("other-key", "not-used-here", admin=True)
    server.ask(Code.REGISTER_BROKER, EXT, BODY, peer=one)
    assert server.ask(Code.UNREGISTER_BROKER, EXT, peer=other).code == 16
    assert server.ask(Code.UNREGISTER_BROKER, EXT, peer=two).code == 0


@pytest.mark.parametrize(
    "changed",
    [{"brokerAddr": each} for each in ("host", "host:", ":10911", "host:0", "host:65536", "host:+1", "host:١")]
    + [{"brokerId": each} for each in ("-1", str(1 << 31))],
)
def test_an_address_or_an_id_that_no_client_can_use_is_not_registered(changed: dict[str, str]) -> None:
    answer = Server().ask(Code.REGISTER_BROKER, EXT | changed, BODY)
    assert (answer.code, str(answer.remark).startswith("register broker failed: ")) == (1, True)
