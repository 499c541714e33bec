"""Stock clients with their ACL hooks against a box in mode `keys`: signed, unsigned, forged, and not allowed."""

import json
import queue
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from appliance.access.access import changing, load_accounts
from appliance.access.certificate import make_certificate
from appliance.broker.access.accounts import Account, Accounts, perm_of
from netstack.client import Credentials, Instance
from netstack.client.admin import Admin
from netstack.serving.peer import Peer
from netstack.serving.server import open_listeners, serve_remoting
from netstack.serving.tls import ClientAuth, TlsConfig, TlsDoor, TlsMode
from netstack.wire.codes import RequestCode, ResponseCode
from netstack.wire.command import RemotingCommand
from netstack.wire.conversation import Reply
from tests.interop.box import Box, until
from tests.interop.client import Make, producer, push_consumer, started, unique
from tests.interop.conftest import ONE_VERSION, QUICK_CHECKS
from tests.interop.jars import Unavailable
from tests.interop.jvm import Jvm
from tests.interop.programs import Program
from tests.interop.test_go_and_node import GO, NODE
from tests.interop.test_java_admin import mqadmin

pytestmark = pytest.mark.slow
BOTH, SUB, DENY = perm_of("PUB|SUB"), perm_of("SUB"), perm_of("DENY")
TOPICS = ("java4", "java5", "go", "node", "mqadmin")
GRANTED = {**dict.fromkeys(TOPICS, BOTH), "readonly": SUB}
DEVICE = Account("device-key", "device-secret", topics=GRANTED, group=SUB, groups={"strangers": DENY})
PRESS = Account("press-key", "press-secret", topics=GRANTED, group=SUB)
ADMIN = Account("admin-key", "admin-secret", admin=True)
REMARK = "org.apache.rocketmq.acl.common.AclException: "


@pytest.fixture(scope="module")
def locked(module_path: Path) -> Iterator[Box]:
    """A box that asks every request for a signature, also for changes from loopback."""
    data = module_path / "locked"
    data.mkdir()
    with changing(data / "access/accounts.json") as replace:
        replace(Accounts({each.name: each for each in (DEVICE, PRESS, ADMIN)}))
    box = Box(data, config=f"[access]\nmode = 'keys'\nadmin = 'keys'\n{QUICK_CHECKS}")
    box.start()
    trio.run(make_topics, box.namesrv)
    yield box
    assert box.stop() == 0, box.log_tail()


async def make_topics(namesrv: str) -> None:
    async with Instance(namesrv, credentials=Credentials(ADMIN.name, ADMIN.secret)) as instance:
        for topic in (*TOPICS, "readonly", "other"):
            await Admin(instance).put_topic(topic, queues=4)


def patient(version: str, arguments: list[str], account: Account | None = None) -> str:
    """Return what mqadmin says; it gives a busy machine three seconds, so a timeout of its own is asked again."""
    for _ in range(4):
        said = mqadmin(version, arguments, account)
        if "RemotingTimeoutException" not in said and "RemotingConnectException" not in said:
            break
    return said


QUICK: dict[str, Any] = {"RetryTimesWhenSendFailed": 0, "SendMsgTimeout": 8000}


def signed(jvm: Jvm, name: str, secret: str) -> Make:
    """Return how to construct a client that signs what it sends."""

    def make(client: str, group: str) -> Any:
        hook = jvm.new("acl.common.AclClientRPCHook", jvm.new("acl.common.SessionCredentials", name, secret))
        evenly = jvm.new("client.consumer.rebalance.AllocateMessageQueueAveragely")  # a consumer's hook comes with it
        return jvm.new(client, group, hook, *([evenly] if client.endswith("Consumer") else []))

    return make


@ONE_VERSION
@pytest.mark.feature("access keys: signed, unsigned, forged; topic permissions")
def test_a_java_client_gets_in_with_its_key_and_is_told_why_not_otherwise(jvm: Jvm, locked: Box) -> None:
    topic = f"java{jvm.version[0]}"
    own = signed(jvm, DEVICE.name, DEVICE.secret)
    with producer(jvm, locked.namesrv, make=own, **QUICK) as made:
        for number in range(20):
            assert made.send(jvm.message(topic, str(number).encode())).getSendStatus().name() == "SEND_OK"
        batch = jvm.list_of([jvm.message(topic, b"batched") for _ in range(5)])
        assert made.send(batch).getSendStatus().name() == "SEND_OK"
        for name in ("readonly", "other"):
            with pytest.raises(Exception, match=f"{REMARK}No default permission for topic:{name}"):
                made.send(jvm.message(name, b"x"))
    refused = r"AclException|No route info"
    for forged in (signed(jvm, DEVICE.name, "wrong-secret"), signed(jvm, "nobody-key", "x" * 9)):
        with producer(jvm, locked.namesrv, make=forged, **QUICK) as made, pytest.raises(Exception, match=refused):
            made.send(jvm.message(topic, b"forged"))
    with producer(jvm, locked.namesrv, **QUICK) as made, pytest.raises(Exception, match=refused):
        made.send(jvm.message(topic, b"unsigned"))
    with push_consumer(jvm, locked.namesrv, topic, make=own) as collected:
        seen = collected.wait_count(25)
        assert sorted(each.body for each in seen) == sorted([b"batched"] * 5 + [str(n).encode() for n in range(20)])


@ONE_VERSION
@pytest.mark.feature("access keys: a group that is not allowed; an address that needs no key")
def test_a_java_client_is_kept_out_of_a_group_and_let_in_from_a_white_address(jvm: Jvm, locked: Box) -> None:
    topic, own = f"java{jvm.version[0]}", signed(jvm, DEVICE.name, DEVICE.secret)
    with producer(jvm, locked.namesrv, make=own, **QUICK) as made:
        made.send(jvm.message(topic, b"first"))
    for group, let_in in (("friends", True), ("strangers", False)):
        reader = jvm.new(
            "client.consumer.DefaultMQPullConsumer",
            group,
            jvm.new(
                "acl.common.AclClientRPCHook", jvm.new("acl.common.SessionCredentials", DEVICE.name, DEVICE.secret)
            ),
        )
        with started(reader, locked.namesrv, {}):
            each = next(iter(reader.fetchSubscribeMessageQueues(topic)))
            if let_in:
                assert reader.pull(each, "*", 0, 1).getPullStatus().name() in ("FOUND", "NO_NEW_MSG")
            else:
                with pytest.raises(Exception, match=f"{REMARK}No default permission for .*{group}"):
                    reader.pull(each, "*", 0, 1)
    file = locked.data / "access/accounts.json"

    def admits() -> bool:
        with producer(jvm, locked.namesrv, **QUICK) as unsigned:
            try:
                return bool(unsigned.send(jvm.message("other", b"unsigned")).getSendStatus().name() == "SEND_OK")
            except Exception:
                return False

    for white in (("127.0.0.*",), ()):
        with changing(file) as replace:
            replace(Accounts(load_accounts(file).keys, white))
        until(lambda: admits() is bool(white), seconds=30, what="the white list counts")  # noqa: B023 asked at once


@ONE_VERSION
@pytest.mark.feature("access keys: transactions of one group name, each key asked about its own")
def test_java_producers_of_one_group_are_asked_about_the_transactions_of_their_own_key(jvm: Jvm, locked: Box) -> None:
    topic, group, listener = f"java{jvm.version[0]}", unique("shared_group"), "client.producer.TransactionListener"
    states, asked = (
        jvm.cls("client.producer.LocalTransactionState"),
        {DEVICE.name: set[bytes](), PRESS.name: set[bytes]()},
    )

    def checks(key: str) -> Any:
        def check(message: Any) -> Any:
            asked[key].add(bytes(message.getBody()))
            return states.COMMIT_MESSAGE

        return jvm.callback(listener, executeLocalTransaction=lambda *_: states.UNKNOW, checkLocalTransaction=check)

    with ExitStack() as stack:
        for account in (DEVICE, PRESS):
            made = signed(jvm, account.name, account.secret)("client.producer.TransactionMQProducer", group)
            made.setTransactionListener(checks(account.name))
            stack.enter_context(started(made, locked.namesrv, {"SendMsgTimeout": 10_000, "InstanceName": unique("i")}))
            made.sendMessageInTransaction(jvm.message(topic, account.name.encode()), None)
        own = signed(jvm, DEVICE.name, DEVICE.secret)
        collected = stack.enter_context(push_consumer(jvm, locked.namesrv, topic, make=own))

        def committed() -> bool:
            return {each.body for each in collected.wait_count(1)} >= {name.encode() for name in asked}

        until(committed, seconds=100, what="both transactions are committed")
    assert asked == {name: {name.encode()} for name in asked}


@ONE_VERSION
@pytest.mark.feature("access keys: request and reply")
def test_a_java_clients_request_with_one_key_is_answered_with_another(jvm: Jvm, locked: Box) -> None:
    topic, utility = f"java{jvm.version[0]}", jvm.cls("client.utils.MessageUtil")
    asking, answering = signed(jvm, DEVICE.name, DEVICE.secret), signed(jvm, PRESS.name, PRESS.secret)
    with (
        producer(jvm, locked.namesrv, make=asking) as client,
        producer(jvm, locked.namesrv, make=answering) as replier,
    ):

        def reply(messages: Any, _context: Any) -> Any:
            for message in messages:
                if bytes(message.getBody()) == b"question":
                    replier.send(utility.createReplyMessage(message, b"answer"), 5000)
            return jvm.cls("client.consumer.listener.ConsumeConcurrentlyStatus").CONSUME_SUCCESS

        consumer = answering("client.consumer.DefaultMQPushConsumer", unique("replier"))
        consumer.subscribe(topic, "*")
        listener = "client.consumer.listener.MessageListenerConcurrently"
        consumer.registerMessageListener(jvm.callback(listener, consumeMessage=reply))
        with started(consumer, locked.namesrv, {}):
            answer = client.request(jvm.message(topic, b"question"), 20_000)
    assert bytes(answer.getBody()) == b"answer"


@pytest.mark.feature("mqadmin with an admin key; refused without it")
@pytest.mark.parametrize("version", [pytest.param("4.9.7", marks=pytest.mark.soak), "5.5.0"])
def test_mqadmin_administers_with_a_key_and_not_without(locked: Box, version: str) -> None:
    def made(account: Account | None) -> str:
        wanted = ["updateTopic", "-n", locked.namesrv, "-b", locked.broker, "-t", unique("made")]
        return patient(version, wanted, account)

    assert "success" in made(ADMIN)
    assert "Need admin permission for request code=17, but accessKey=device-key is not" in made(DEVICE)
    assert "No accessKey is configured" in made(None)


def test_mqadmins_account_commands_change_the_boxs_keys(locked: Box) -> None:
    put = ["-n", locked.namesrv, "-b", locked.broker, "-a", "new-device", "-s", "new-secret", "-i", "PUB"]
    assert "success" in patient("4.9.7", ["updateAclConfig", *put], ADMIN)
    shown = patient("4.9.7", ["clusterAclConfigVersion", "-n", locked.namesrv, "-c", "DefaultCluster"], ADMIN)
    assert "accounts.json" in shown
    gone = ["-n", locked.namesrv, "-b", locked.broker, "-a", "new-device"]
    said = patient("4.9.7", ["deleteAclConfig", *gone], ADMIN)
    assert "success" in said or "no account new-device" in said  # the latter when the first answer came too late
    assert "new-device" not in load_accounts(locked.data / "access/accounts.json").keys


@pytest.fixture(scope="module")
def enforced(module_path: Path) -> Iterator[Box]:
    """A box that refuses plain text, with a certificate it makes for itself."""
    box = Box(module_path / "enforced", config="[tls]\nmode = 'enforcing'\n")
    box.start()
    yield box
    assert box.stop() == 0, box.log_tail()


@pytest.mark.feature("TLS: send and consume; plain text is refused if TLS is required")
def test_a_java_client_speaks_tls_and_plain_text_is_refused(jvm: Jvm, enforced: Box) -> None:
    topic = unique("secured")
    with producer(jvm, enforced.namesrv, UseTLS=True, **QUICK) as made:
        for number in range(20):
            assert made.send(jvm.message(topic, bytes(40_000) + b"%d" % number)).getSendStatus().name() == "SEND_OK"
    with push_consumer(jvm, enforced.namesrv, topic, UseTLS=True) as collected:
        assert {each.body[40_000:] for each in collected.wait_count(20)} == {b"%d" % number for number in range(20)}
    refused = pytest.raises(Exception, match=r"connect|send request|No route")
    with producer(jvm, enforced.namesrv, **QUICK) as made, refused:
        made.send(jvm.message(topic, b"plain"))


def answer_routes(ports: "queue.Queue[int]", door: TlsDoor, asked: list[int], ended: threading.Event) -> None:
    """Serve a name server that knows no topic, behind a door, until told to end; in a thread of its own."""

    def handle(request: RemotingCommand, peer: Peer) -> Reply:
        asked.append(request.code)
        return Reply(request.reply(ResponseCode.TOPIC_NOT_EXIST, "asked through the door"))

    async def main() -> None:
        listeners = await open_listeners("127.0.0.1", 0)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(serve_remoting, listeners, handle, tls=door))
            ports.put(listeners[0].socket.getsockname()[1])
            await trio.to_thread.run_sync(ended.wait)
            nursery.cancel_scope.cancel()

    trio.run(main)


@pytest.mark.feature("TLS with a client certificate", client="Java 4.9.7")
def test_a_java_client_shows_its_certificate_and_one_without_is_sent_away(tmp_path: Path) -> None:
    box, client = tmp_path / "box/box.crt", tmp_path / "client/client.crt"
    for cert, name in ((box, "box"), (client, "client")):
        make_certificate(cert, cert.with_suffix(".key"), name, [], now=datetime.now(UTC))
    config = TlsConfig(box, box.with_suffix(".key"), TlsMode.ENFORCING, client_auth=ClientAuth.REQUIRE, trust=client)
    ports: queue.Queue[int] = queue.Queue()
    asked, ended = list[int](), threading.Event()
    server = threading.Thread(target=answer_routes, args=(ports, TlsDoor(config), asked, ended))
    server.start()
    try:
        namesrv = f"127.0.0.1:{ports.get(timeout=30)}"
        shown = [f"-Dtls.client.certPath={client}", f"-Dtls.client.keyPath={client.with_suffix('.key')}"]
        for options, comes_in in ((shown, True), ([], False)):
            asked.clear()
            jvm = secured_jvm(options)
            refused = pytest.raises(Exception, match=r"No route info|connect|send request|timeout")
            with producer(jvm, namesrv, UseTLS=True, SendMsgTimeout=8000) as made, refused:
                made.send(jvm.message("any", b"x"))
            jvm.close()
            assert (int(RequestCode.GET_ROUTEINFO_BY_TOPIC) in asked) is comes_in
    finally:
        ended.set()
        server.join()


def secured_jvm(options: list[str]) -> Jvm:
    try:
        return Jvm("4.9.7", ["-Dtls.enable=true", "-Dtls.test.mode.enable=false", *options])
    except Unavailable as error:
        pytest.skip(str(error))


def keyed(secret: str = DEVICE.secret) -> dict[str, str]:
    return {"INTEROP_ACCESS_KEY": DEVICE.name, "INTEROP_SECRET_KEY": secret}


def check_program(program: Program, locked: Box) -> None:
    program.run("send", locked.namesrv, program.name, 10, **keyed())
    group = unique(f"{program.name}_keys")
    assert len(program.run("consume", locked.namesrv, program.name, group, 10, "*", **keyed())) == 10
    for environ in (keyed("wrong-secret"), {}):
        with pytest.raises(AssertionError):
            program.run("send", locked.namesrv, program.name, 1, **environ)
    with pytest.raises(AssertionError):
        program.run("send", locked.namesrv, "readonly", 1, **keyed())


@pytest.mark.feature("access keys: signed, unsigned, forged; topic permissions", client=GO)
def test_a_go_client_gets_in_with_its_key_alone(go: Program, locked: Box) -> None:
    check_program(go, locked)


@pytest.mark.feature("access keys: signed, unsigned, forged; topic permissions", client=NODE)
def test_a_node_client_gets_in_with_its_key_alone(node: Program, locked: Box) -> None:
    check_program(node, locked)


def test_a_locked_box_proves_to_itself_that_it_answers(locked: Box) -> None:
    def health() -> Any:
        return json.loads((locked.data / "run/health.json").read_text())

    until(lambda: health()["state"] in ("ok", "degraded"), seconds=60, what="not healthy")
    command = [sys.executable, "-m", "appliance", "selftest", "--json", "--data", str(locked.data)]
    command += ["--config", str(_ports_file(locked))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert json.loads(done.stdout)["ok"], done.stdout + done.stderr


def _ports_file(box: Box) -> Path:
    file = box.data.parent / "ports.toml"
    file.write_text(f"[listen]\nbroker_port = {box.broker_port}\nnamesrv_port = {box.namesrv_port}\n")
    return file
