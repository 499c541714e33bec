"""TLS at a whole box: the three modes, client certificates, the box's own programs, rotation, expiry, a wrong clock."""

import os
import random
import shutil
import subprocess
import sys
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import psutil
import pytest
import trio

from appliance.access import certificate
from appliance.access.certificate import make_certificate
from appliance.access.guard import certificate_conditions, make_guard, open_door, own_addresses
from appliance.access.lazy_tls import LazyTls
from appliance.broker.access.accounts import Account
from appliance.configuration.config import load_config
from appliance.device.probe import Probe
from appliance.errors import ConfigError
from appliance.health.doctor_facts import NO_ROUTE, NOBODY_LEAVES, answers
from appliance.testing import wall_ms
from netstack.errors import ChannelClosed
from netstack.serving.channel import Channel, open_channel
from netstack.serving.tls import ClientAuth, TlsConfig, TlsDoor, client_context, not_after_ms
from netstack.testing import echo, serving
from netstack.wire.acl import sign
from netstack.wire.codes import RequestCode, ResponseCode
from netstack.wire.command import request
from tests.appliance.box import FACTS, Box, running_box
from tests.appliance.keys import write
from tests.appliance.metrics.test_gather import scraped, value
from tests.waiting import until_it

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl: apt install openssl"),
]
SEED = int(os.environ.get("ROCKETBOX_TEST_SEED", "20240613"))
GREETINGS = (b"", b"\x03\x01", b"\x03\x01\x00\xf8\x01\x00\x00\xf4\x03\x03", b"\xff\xff\xff\xff")
NOW = datetime(2026, 11, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("tls")
    make_certificate(folder / "box.crt", folder / "box.key", "test-box", own_addresses(), now=NOW)
    return folder / "box.crt", folder / "box.key"


def tls_table(mode: str, files: tuple[Path, Path], more: str = "") -> str:
    return f"[tls]\nmode = '{mode}'\ncert = '{files[0]}'\nprivate_key = '{files[1]}'\n{more}\n"


async def speaks(box: Box, *, trust: Path | None = None, tls: bool, host: str = "127.0.0.1") -> bool:
    """Return whether a client gets an answer on both ports."""
    context = client_context(trust=trust) if tls else None
    answers = []
    for port in (box.broker_port, box.namesrv_port):
        try:
            async with open_channel(host, port, tls=context) as line:
                answers.append((await line.ask(request(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "x"}))).code)
        except (OSError, ChannelClosed):
            answers.append(-1)
    assert (answers[0] < 0) == (answers[1] < 0)
    return answers[0] >= 0


@pytest.mark.parametrize(
    ("mode", "plain", "secured"), [("permissive", True, True), ("enforcing", False, True), ("disabled", True, False)]
)
async def test_each_mode_lets_in_what_it_says(
    tmp_path: Path, files: tuple[Path, Path], mode: str, plain: bool, secured: bool
) -> None:
    async with running_box(tmp_path, tls_table(mode, files)) as box:
        assert await speaks(box, tls=False) is plain
        assert await speaks(box, tls=True) is secured
        if secured:
            assert await speaks(box, trust=files[0], tls=True)  # the certificate names the address


async def test_client_certificates_are_asked_of_others_and_not_of_the_boxs_own_programs(
    tmp_path: Path, files: tuple[Path, Path]
) -> None:
    needed = f"client_auth = 'require'\ntrust = '{files[0]}'\n"
    config = load_config(tls_table("enforcing", files, needed), source="test", facts=FACTS)
    guard = make_guard(config, tmp_path, now_ms=wall_ms)
    assert guard.door is not None
    async with running_box(tmp_path / "data", tls_table("enforcing", files, needed)) as box:
        assert await speaks(box, tls=True)
        assert await Probe("127.0.0.1", box.broker_port, box.namesrv_port, guard.local_credentials)()


async def test_the_box_gets_through_its_own_doors_when_both_are_locked(
    tmp_path: Path, files: tuple[Path, Path]
) -> None:
    locked = tls_table("enforcing", files) + "[access]\nmode = 'keys'\nadmin = 'keys'\n"
    async with running_box(tmp_path, locked) as box:
        assert not await Probe("127.0.0.1", box.broker_port, box.namesrv_port)()
        for port, question in ((box.broker_port, NOBODY_LEAVES), (box.namesrv_port, NO_ROUTE)):
            seen = await trio.to_thread.run_sync(partial(answers, "127.0.0.1", port, question, secured=True))
            assert seen == "rocketmq"  # as doctor asks
        command = [sys.executable, "-m", "appliance", "topics", "list", "--namesrv", f"127.0.0.1:{box.namesrv_port}"]
        done = await trio.run_process(
            [*command, "--data", str(tmp_path)], capture_stdout=True, capture_stderr=True, check=False
        )
        assert (done.returncode, done.stderr) == (0, b"")


async def test_a_certificate_is_made_for_a_box_that_others_reach(tmp_path: Path) -> None:
    open_to_network = load_config("[listen]\nhost = '0.0.0.0'\n", source="test", facts=FACTS)
    assert isinstance(open_door(load_config("", source="test", facts=FACTS), tmp_path), LazyTls)
    assert isinstance(open_door(open_to_network, tmp_path), TlsDoor)
    first = (tmp_path / "tls/box.crt").read_bytes()
    later = open_door(open_to_network, tmp_path)
    assert isinstance(later, LazyTls), "OpenSSL is loaded for the first client that speaks TLS"
    assert (tmp_path / "tls/box.crt").read_bytes() == first


def test_a_certificate_is_good_whatever_the_clock_said_when_it_was_made(tmp_path: Path) -> None:
    for number, year in enumerate((1971, 2026, 2038)):
        cert = tmp_path / str(number) / "box.crt"
        cert.parent.mkdir()
        make_certificate(cert, cert.with_suffix(".key"), "box", [], now=datetime(year, 1, 1, tzinfo=UTC))
        dates = subprocess.run(["openssl", "x509", "-startdate", "-noout", "-in", cert], capture_output=True, text=True)
        assert "2024" in dates.stdout
        assert datetime.fromtimestamp(not_after_ms(cert.read_text()) / 1000, UTC).year == max(year, 2026) + 10


def test_enforcing_without_a_usable_certificate_is_a_wrong_configuration(tmp_path: Path) -> None:
    wrong = load_config(tls_table("enforcing", (tmp_path / "a", tmp_path / "b")), source="test", facts=FACTS)
    with pytest.raises(ConfigError, match=r"tls\.mode"):
        open_door(wrong, tmp_path)


@pytest.mark.parametrize("mode", ["permissive", "disabled"])
def test_certificates_cannot_be_required_beside_plain_text(tmp_path: Path, files: tuple[Path, Path], mode: str) -> None:
    needed = f"client_auth = 'require'\ntrust = '{files[0]}'\n"
    config = load_config(tls_table(mode, files, needed), source="test", facts=FACTS)
    with pytest.raises(ConfigError, match="plain-text clients need no certificate"):
        open_door(config, tmp_path)


def test_the_alarm_comes_thirty_days_before_the_end_and_only_with_a_clock_that_can_tell(
    files: tuple[Path, Path],
) -> None:
    seen = TlsDoor(TlsConfig(*files)).statistics()
    end_ms, day_ms = not_after_ms(files[0].read_text()), 86_400_000
    assert list(certificate_conditions(seen, end_ms - 31 * day_ms, True)) == []
    (found,) = certificate_conditions(seen, end_ms - 29 * day_ms, True)
    assert (found.id, "29 days" in found.text) == ("certificate_ends", True)
    (found,) = certificate_conditions(seen, end_ms + day_ms, True)
    assert "expired" in found.text
    (_, found) = certificate_conditions(seen._replace(failure="box.crt: holds no certificate"), end_ms, True)
    assert ("box.crt" in found.text, "`rocketbox tls make`" in found.next) == (True, True)
    assert list(certificate_conditions(seen, end_ms + day_ms, False)) == []


async def test_certificate_and_keys_change_under_a_running_box_and_connections_go_on(
    tmp_path: Path, files: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("netstack.serving.tls.CHECK_S", 0.1)
    monkeypatch.setattr("appliance.access.access.LOOK_S", 0.1)
    cert, key = (Path(shutil.copy(each, tmp_path)) for each in files)
    locked = tls_table("enforcing", (cert, key)) + "[access]\nmode = 'keys'\n"
    write(tmp_path / "data", Account("device-1", "first-secret"))

    async def code(line: Channel, secret: str) -> int:
        asked = request(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "x"})
        sign(asked, "device-1", secret)
        return (await line.ask(asked)).code

    async with (
        running_box(tmp_path / "data", locked) as box,
        open_channel("127.0.0.1", box.namesrv_port, tls=client_context(trust=cert)) as line,
    ):
        good, ends_s = await code(line, "first-secret"), partial(expiry_s, tmp_path / "data", capsys)
        assert (good, await code(line, "next-secret")) == (ResponseCode.TOPIC_NOT_EXIST, ResponseCode.SYSTEM_ERROR)
        assert await ends_s() > 9 * 365 * 86400
        monkeypatch.setattr(certificate, "DAYS", 20)
        make_certificate(tmp_path / "new.crt", tmp_path / "new.key", "box", own_addresses(), now=datetime.now(UTC))
        (tmp_path / "new.key").replace(key)
        (tmp_path / "new.crt").replace(cert)
        await until_it(lambda: is_now(ends_s(), lambda seconds: seconds < 30 * 86400))  # what the alarm looks at
        assert await speaks(box, trust=cert, tls=True)  # who trusts the new one alone
        write(tmp_path / "data", Account("device-1", "first-secret").rotated("next-secret", wall_ms() + 60_000))
        await until_it(lambda: is_now(code(line, "next-secret"), lambda answer: answer == good))
        assert await code(line, "first-secret") == good  # clients change over one by one
        write(tmp_path / "data")
        await until_it(lambda: is_now(code(line, "next-secret"), lambda answer: answer == 1))
        assert not line.closed.is_set()  # the connection is that of the beginning


async def is_now(found: Awaitable[float], good: Callable[[float], bool]) -> bool:
    return good(await found)


async def expiry_s(data: Path, capsys: pytest.CaptureFixture[str]) -> float:
    return value(await scraped(data, capsys), "rocketbox_tls_expiry_seconds")


@pytest.fixture
def expired(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """A client's certificate whose last day was in 2020."""
    monkeypatch.setattr(certificate, "BEGINS", "20090101000000Z")
    monkeypatch.setattr(certificate, "NOT_BEFORE_THIS", datetime(2010, 1, 1, tzinfo=UTC))
    cert, key = tmp_path / "client/client.crt", tmp_path / "client/client.key"
    make_certificate(cert, key, "client", [], now=datetime(2010, 1, 1, tzinfo=UTC))
    return cert, key


@pytest.mark.parametrize("trusted", [True, False])
async def test_dates_of_client_certificates_count_only_while_the_clock_can_be_trusted(
    expired: tuple[Path, Path], files: tuple[Path, Path], trusted: bool
) -> None:
    settings = TlsConfig(*files, client_auth=ClientAuth.REQUIRE, trust=expired[0])
    door = TlsDoor(settings, clock_trusted=lambda: trusted)
    async with serving(echo, tls=door) as port:
        accepted = True
        try:
            async with open_channel("127.0.0.1", port, tls=client_context(cert=expired[0], key=expired[1])) as line:
                await line.ask(request(34))
        except (OSError, ChannelClosed):
            accepted = False
    assert accepted is not trusted


async def test_broken_greetings_end_their_connections_and_leave_no_memory(
    tmp_path: Path, files: tuple[Path, Path], caplog: pytest.LogCaptureFixture
) -> None:
    choose = random.Random(SEED)

    async def attack(port: int) -> None:
        stream = await trio.open_tcp_stream("127.0.0.1", port)
        async with stream:
            try:
                await stream.send_all(b"\x16" + choose.choice(GREETINGS) + choose.randbytes(choose.randrange(2000)))
                await stream.send_eof()
                with trio.fail_after(25):
                    while await stream.receive_some(4096):
                        pass
            except trio.BrokenResourceError:
                pass

    async with running_box(tmp_path, tls_table("enforcing", files)) as box:
        before = psutil.Process().memory_info().rss
        for _ in range(10):
            async with trio.open_nursery() as nursery:
                for number in range(40):
                    nursery.start_soon(attack, (box.broker_port, box.namesrv_port)[number % 2])
        assert await speaks(box, tls=True)
        assert psutil.Process().memory_info().rss - before < 30e6
    assert len(caplog.records) < 20, caplog.text[:2000]


def test_a_box_that_lets_in_every_address_says_so(tmp_path: Path) -> None:
    config = load_config('[access]\nallow = ["::/0"]\n', source="test", facts=FACTS)
    (found, *_) = make_guard(config, tmp_path, now_ms=wall_ms).conditions()
    assert found.key == "access_open:allow"
    assert "access.allow has ::/0" in found.text


def test_what_is_wrong_with_keys_is_a_condition(tmp_path: Path) -> None:
    def found(mode: str) -> list[tuple[str, str]]:
        config = load_config(f"[access]\nmode = '{mode}'\n", source="test", facts=FACTS)
        return [(one.id, one.text) for one in make_guard(config, tmp_path, now_ms=wall_ms).conditions()]

    assert found("subnet") == []
    assert found("open") == [("access_open", "access.mode is open: anybody who reaches the port can read and write")]
    assert found("keys") == [("accounts_unusable", "access.mode is keys and there is no key: no client has access")]
