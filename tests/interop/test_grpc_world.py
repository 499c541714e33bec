"""Official gRPC clients in what both generations share: keys, repeated sends, groups, transactions, dead letters."""

import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from appliance.access.access import changing
from appliance.broker.access.accounts import Account, Accounts, perm_of
from tests.interop.box import until
from tests.interop.client import producer, push_consumer, unique
from tests.interop.grpc_java import JavaClient
from tests.interop.jvm import Jvm
from tests.interop.programs import Program, finished
from tests.interop.served import QUICK, GrpcBox
from tests.interop.test_grpc import GO, JAVA, NODE, PYTHON, RUST, until_member
from tests.interop.test_java_admin import admin
from tests.interop.test_java_pop import make, pop_consumer, until_acknowledged
from tests.interop.test_java_pop import send as send_remoting

pytestmark = [pytest.mark.slow, pytest.mark.soak]  # each needs clients of its own, and waits for them

GRANTED, DENIED, STRANGERS = "granted", "denied", "strangers"
DEVICE = Account(
    "grpc-key",
    "grpc-secret",
    topic=perm_of("PUB|SUB"),
    topics={DENIED: perm_of("DENY")},
    group=perm_of("SUB"),
    groups={STRANGERS: perm_of("DENY")},
)
KEYS = "gRPC: access keys: signed, unsigned, forged; topic permissions"


@pytest.fixture(scope="module")
def locked5(module_path: Path) -> Iterator[GrpcBox]:
    """A box that asks its clients for signatures; tools on this machine need none."""
    data = module_path / "locked5"
    data.mkdir()
    box = GrpcBox(data)
    box.start()
    for topic in (GRANTED, DENIED):
        box.make_topic(topic)
    assert box.stop() == 0
    with changing(data / "access/accounts.json") as replace:
        replace(Accounts({DEVICE.name: DEVICE}))
    box = GrpcBox(data, f"[access]\nmode = 'keys'\n{QUICK}")
    box.start()
    yield box
    assert box.stop() == 0, box.log_tail()


def keyed(secret: str = DEVICE.secret) -> dict[str, str]:
    return {"INTEROP_ACCESS_KEY": DEVICE.name, "INTEROP_SECRET_KEY": secret}


def check_keys(program: Program, box: GrpcBox, home: dict[str, str]) -> None:
    group = unique(f"{program.name}_keys")
    granted = box.topic(GRANTED)
    reading = program.start("simple", box.endpoint, granted, group, 10, **home, **keyed())
    program.run("send", box.endpoint, granted, 10, **home, **keyed())
    assert len([each for each in finished(reading) if "body" in each]) == 10
    for topic, environ in ((granted, keyed("wrong-secret")), (granted, {}), (DENIED, keyed())):
        with pytest.raises(AssertionError):
            program.run("send", box.endpoint, topic, 1, **home, **environ)
    with pytest.raises(AssertionError, match="no permission for group strangers"):
        program.run("simple", box.endpoint, granted, STRANGERS, 1, **home, **keyed())


@pytest.mark.feature(KEYS, client=PYTHON)
def test_a_python_client_gets_in_with_its_key_alone(python5: Program, locked5: GrpcBox, home: dict[str, str]) -> None:
    check_keys(python5, locked5, home)


@pytest.mark.feature(KEYS, client=NODE)
def test_a_node_client_gets_in_with_its_key_alone(node5: Program, locked5: GrpcBox, home: dict[str, str]) -> None:
    check_keys(node5, locked5, home)


@pytest.mark.feature(KEYS, client=GO)
def test_a_go_client_gets_in_with_its_key_alone(go5: Program, locked5: GrpcBox, home: dict[str, str]) -> None:
    check_keys(go5, locked5, home)


@pytest.mark.feature(KEYS, client=RUST)
def test_a_rust_client_gets_in_with_its_key_alone(rust5: Program, locked5: GrpcBox, home: dict[str, str]) -> None:
    check_keys(rust5, locked5, home)


@pytest.mark.feature(KEYS, client=JAVA)
def test_a_java_client_gets_in_with_its_key_alone(java5: Jvm, locked5: GrpcBox) -> None:
    def client(secret: str | None) -> JavaClient:
        return JavaClient(java5, locked5, tls=True, key=(DEVICE.name, secret) if secret else None)

    own = client(DEVICE.secret)
    group = unique("java_keys")
    consumer = own.push_consumer(GRANTED, group)
    made = own.producer(GRANTED)
    try:
        sent = {str(made.send(own.message(GRANTED, number).build()).getMessageId()) for number in range(10)}
        until(lambda: {key for key, _ in own.seen} >= {f"key-{n}" for n in range(10)}, seconds=60, what="ten came")
        with pytest.raises(Exception, match="permission"):
            made.send(own.message(DENIED, 1).build())
    finally:
        made.close()
        consumer.close()
    assert len(sent) == 10
    for secret in ("wrong-secret", None):
        with pytest.raises(Exception, match=r"40100|signature|no key|Unauthorized"):
            client(secret).producer(GRANTED)


@pytest.mark.feature("gRPC: a send is repeated after a lost answer: stored once", client=JAVA)
def test_a_send_that_java_repeats_is_stored_once(java5: Jvm, tmp_path: Path, jvm4: Jvm) -> None:
    box = GrpcBox(tmp_path / "data")
    box.start()
    topic, client = box.topic("repeated"), JavaClient(java5, box, tls=False, timeout_s=2)
    made = client.producer(topic)
    process = psutil.Process(box.pid)
    resuming = threading.Timer(3.0, process.resume)
    try:
        made.send(client.message(topic, 0).build())
        process.suspend()  # the request is received by its kernel, the answer comes too late: the client asks again
        resuming.start()
        made.send(client.message(topic, 1).build())
        made.send(client.message(topic, 2).build())
        with push_consumer(jvm4, box.namesrv, topic) as collected:
            collected.wait_count(3)
            made.send(client.message(topic, 3).build())
            seen = collected.wait_count(4)
    finally:
        resuming.join()
        made.close()
        box.stop()
    assert sorted(each.keys or "" for each in seen) == [f"key-{number}" for number in range(4)]


@pytest.mark.feature("gRPC: one group of both generations: POP push consumers share the messages", client=JAVA)
def test_consumers_of_both_generations_share_a_group(java5: Jvm, jvm5: Jvm, box5: GrpcBox) -> None:
    topic, group, client = unique("mixed"), unique("mixed_group"), JavaClient(java5, box5, tls=False)
    client.fails = False
    with admin(jvm5, box5) as tool, producer(jvm5, box5.namesrv) as remoting:
        make(jvm5, tool, topic, group, mode="POP")
        consumer, made = client.push_consumer(topic, group), client.producer(topic)
        with pop_consumer(jvm5, box5, topic, group) as collected:
            both = 0
            while both < 400 and not (client.seen and collected.seen):  # joining takes either some seconds
                for number in range(both, both + 20):
                    made.send(client.message(topic, number).build())
                    send_remoting(jvm5, remoting, topic, f"remoting {number}")
                both += 20

                def all_came(count: int = 2 * both) -> bool:
                    return len(client.seen) + len(collected.seen) >= count

                until(all_came, seconds=60, what=lambda: f"{len(client.seen)} and {len(collected.seen)} came")
            assert client.seen
            assert collected.seen
            until_acknowledged(tool, topic, group)
        made.close()
        consumer.close()
    assert len(client.seen) + len(collected.seen) == 2 * both


@pytest.mark.feature("gRPC: a transaction is checked after a restart of the box", client=JAVA)
def test_a_transaction_is_checked_after_a_kill_of_the_box(java5: Jvm, jvm4: Jvm, tmp_path: Path) -> None:
    box = GrpcBox(tmp_path / "data", f"{QUICK}".replace("transaction_timeout_s = 1", "transaction_timeout_s = 6"))
    box.start()
    topic, client = box.topic("checked"), JavaClient(java5, box, tls=False)
    made = client.producer(topic)
    try:
        made.send(client.message(topic, 5).build(), made.beginTransaction())
        box.kill()
        assert not client.checked.is_set()
        box.start()
        assert client.checked.wait(90), "the client was asked"
        with push_consumer(jvm4, box.namesrv, topic) as collected:
            seen = collected.wait_count(1)
    finally:
        made.close()
        box.stop()
    assert [each.keys for each in seen] == ["key-5"]


RESTARTED = "gRPC: a consumer goes on after a kill of the box"


def goes_on(program: Program, how: str, folder: Path, jvm: Jvm, home: dict[str, str]) -> None:
    """Kill a box under a consumer that waits: it gets what is sent afterwards, within its minute."""
    box = GrpcBox(folder / "data")
    box.start()
    topic, group = box.topic("goes_on", queues=1), box.group("goes_on_group")
    process = program.start(how, box.endpoint, topic, group, 10, **home)
    try:
        until_member(box, jvm, group)
        box.kill()
        box.start()
        program.run("send", box.endpoint, topic, 10, **home)
        assert len({each["body"] for each in finished(process) if "body" in each}) == 10
    finally:
        process.kill()
        box.stop()


@pytest.mark.feature(RESTARTED, client=PYTHON)
def test_python_goes_on_after_a_kill_of_the_box(
    python5: Program, tmp_path: Path, jvm4: Jvm, home: dict[str, str]
) -> None:
    goes_on(python5, "push", tmp_path, jvm4, home)


@pytest.mark.feature(RESTARTED, client=NODE)
def test_node_goes_on_after_a_kill_of_the_box(node5: Program, tmp_path: Path, jvm4: Jvm, home: dict[str, str]) -> None:
    goes_on(node5, "push", tmp_path, jvm4, home)


@pytest.mark.feature(RESTARTED, client=GO)
def test_go_goes_on_after_a_kill_of_the_box(go5: Program, tmp_path: Path, jvm4: Jvm, home: dict[str, str]) -> None:
    goes_on(go5, "push", tmp_path, jvm4, home)


@pytest.mark.feature(RESTARTED, client=RUST)
def test_rust_goes_on_after_a_kill_of_the_box(rust5: Program, tmp_path: Path, jvm4: Jvm, home: dict[str, str]) -> None:
    goes_on(rust5, "simple", tmp_path, jvm4, home)
