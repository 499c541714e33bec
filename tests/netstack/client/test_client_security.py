"""Accounts and TLS: every request of a client is signed, and it speaks TLS to NameServer and broker alike."""

import shutil
import ssl
import subprocess
from pathlib import Path

import pytest
import trio

from netstack.client import BrokerRefused, Credentials, Message, NoNameServer, Producer, PushConsumer
from netstack.client.instance import Instance
from netstack.serving.peer import Peer
from netstack.serving.tls import TlsConfig, TlsDoor, TlsMode
from netstack.testing import serving
from netstack.wire.acl import verify
from netstack.wire.command import RemotingCommand
from netstack.wire.conversation import Answer, Reply

STORED = {"msgId": "7F00000100002A9F00000000000003E8", "queueId": "0", "queueOffset": "5"}
ROUTE = (
    b'{"brokerDatas":[{"brokerAddrs":{0:"127.0.0.1:%d"},"brokerName":"a","cluster":"C"}],"filterServerTable":{},'
    b'"queueDatas":[{"brokerName":"a","perm":6,"readQueueNums":1,"topicSysFlag":0,"writeQueueNums":1}]}'
)


class Cluster:
    """NameServer and broker behind one port that let in whoever signs with the secret."""

    def __init__(self, secret: str | None) -> None:
        self.secret, self.port = secret, 0
        self.codes: list[int] = []
        self.over_tls: set[bool] = set()

    def handle(self, request: RemotingCommand, peer: Peer) -> Answer:
        self.codes.append(request.code)
        self.over_tls.add(peer.tls)
        if self.secret is not None and not verify(request, self.secret):
            return Reply(request.reply(1, "Check signature failed"))
        if request.code == 105:
            return Reply(request.reply(body=ROUTE % self.port))
        return Reply(request.reply(0, None, STORED))


async def test_every_request_is_signed_pipelined_ones_too() -> None:
    cluster = Cluster("secret")
    async with serving(cluster.handle) as cluster.port:
        address = f"127.0.0.1:{cluster.port}"
        async with (
            Instance(address, credentials=Credentials("me", "secret")) as instance,
            Producer("g", instance=instance) as producer,
        ):
            await producer.send(Message("T", "grüß".encode()))
            await (await producer.submit(Message("T", b"x"))).wait()
            await producer.send_oneway(Message("T", b"x"))
            async with PushConsumer("c", instance=instance, topics={"T": "*"}):
                pass
        async with Producer("g", address, credentials=Credentials("me", "wrong")) as producer:
            with pytest.raises(BrokerRefused, match="signature"):
                await producer.send(Message("T", b"x"))
    assert {310, 105, 34, 35} <= set(cluster.codes)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl: apt install openssl")
async def test_a_client_speaks_tls_and_trusts_only_what_it_is_told(tmp_path: Path) -> None:
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    options = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", str(key), "-out", str(cert))
    names = ("-subj", "/CN=box", "-addext", "subjectAltName=IP:127.0.0.1")
    await trio.run_process(("openssl", "req", "-x509", *options, *names), stderr=subprocess.DEVNULL)
    cluster = Cluster(None)
    door = TlsDoor(TlsConfig(cert, key, TlsMode.ENFORCING))
    async with serving(cluster.handle, tls=door) as cluster.port:
        address = f"127.0.0.1:{cluster.port}"
        async with Producer("g", address, tls=ssl.create_default_context(cafile=cert)) as producer:
            assert (await producer.send(Message("T", b"x"))).status == "SEND_OK"
        assert cluster.over_tls == {True}
        async with Producer("g", address, tls=ssl.create_default_context()) as stranger:
            with pytest.raises(NoNameServer, match="TLS"):
                await stranger.send(Message("T", b"x"))
