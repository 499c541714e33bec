"""What a scraper gets of a running box: every family bounded, the numbers those of the messages, Prometheus content."""

from __future__ import annotations

import json
import shutil
import urllib.error
import urllib.request
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from prometheus_client.parser import text_string_to_metric_families

from appliance.__main__ import main
from appliance.access.page_token import read_token
from appliance.metrics.families import FAMILIES
from appliance.metrics.gather import Sheet
from netstack.wire.codes import RequestCode
from tests.appliance.box import ask, connected, heartbeat, pull, running_box, send
from tests.ports import apache_port, free_port
from uplink_spark.testing_site import gateway

pytestmark = pytest.mark.slow
Capture = pytest.CaptureFixture[str]
Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


async def scraped(data: Path, capsys: Capture) -> Samples:
    """Return what `rocketbox metrics` prints, read by the library's own parser."""
    capsys.readouterr()
    assert await trio.to_thread.run_sync(main, ["metrics", "--data", str(data)]) == 0
    found: Samples = {}
    for family in text_string_to_metric_families(capsys.readouterr().out):
        for sample in family.samples:
            found[sample.name, frozenset(sample.labels.items())] = sample.value
    return found


def value(samples: Samples, name: str, **labels: str) -> float:
    [found] = [v for (n, given), v in samples.items() if n == name and labels.items() <= dict(given).items()]
    return found


async def test_the_numbers_are_those_of_the_messages(tmp_path: Path, capsys: Capture) -> None:
    async with running_box(tmp_path) as box, connected(box) as channel:
        for _ in range(7):
            await channel.ask(send("Engine", b"x" * 100), timeout_s=5)
        await channel.ask(heartbeat("c1", consumers={"CG": {"Engine": "*"}}), timeout_s=5)
        await channel.ask(pull("Engine", max_count=5), timeout_s=5)
        commit = ask(15, consumerGroup="CG", topic="Engine", queueId=0, commitOffset=5)
        await channel.ask(commit, timeout_s=5)
        await channel.ask(ask(31999), timeout_s=5)
        await channel.ask(ask(RequestCode.UPDATE_BROKER_CONFIG), timeout_s=5)
        await channel.ask(ask(RequestCode.DELETE_ACL_CONFIG, accessKey="x"), timeout_s=5)
        samples = await scraped(tmp_path, capsys)
    assert value(samples, "rocketmq_messages_in_total", topic="Engine", is_system="false", node_id="box") == 7
    assert value(samples, "rocketmq_messages_out_total", topic="Engine", consumer_group="CG") == 5
    assert value(samples, "rocketmq_consumer_lag_messages", topic="Engine", consumer_group="CG") == 2
    assert value(samples, "rocketmq_consumer_lag_latency_milliseconds", consumer_group="CG", topic="Engine") > 0
    assert value(samples, "rocketbox_stored_messages_total") == 7
    assert value(samples, "rocketbox_sync_seconds_bucket", le="+Inf") == value(samples, "rocketbox_sync_seconds_count")
    assert value(samples, "rocketbox_requests_total", port="broker", request="SEND_MESSAGE_V2") == 7
    assert value(samples, "rocketbox_unknown_requests_total", port="broker") == 2
    denied = {dict(labels)["class"]: n for (name, labels), n in samples.items() if "denied_total" in name and n}
    assert denied == {"never": 2, "accounts": 1}
    assert value(samples, "rocketmq_consumer_connections", consumer_group="CG", consume_mode="push") == 1
    assert value(samples, "process_resident_memory_bytes") > 1 << 20


async def test_every_series_belongs_to_the_catalogue_and_keeps_its_bound(tmp_path: Path, capsys: Capture) -> None:
    async with running_box(tmp_path) as box, connected(box) as channel:
        for number in range(230):
            await channel.ask(send(f"T{number}"), timeout_s=5)
        samples = await scraped(tmp_path, capsys)
    count: dict[str, int] = {}
    for name, _ in samples:
        family = name if name in FAMILIES else name.rpartition("_")[0]
        count[family] = count.get(family, 0) + 1
    assert {name: n for name, n in count.items() if name not in FAMILIES or n > FAMILIES[name].most} == {}
    assert value(samples, "rocketbox_series_left_out", of="topics") >= 30
    assert value(samples, "rocketmq_topic_number") > 230


async def test_what_waits_for_the_uplink_is_as_old_as_its_message_whoever_saw_it_first(
    tmp_path: Path, capsys: Capture
) -> None:
    away = f"[uplink]\ngateway = '127.0.0.1:{free_port()}'\n"
    async with running_box(tmp_path, away) as box, connected(box) as channel:
        await channel.ask(send("Engine"), timeout_s=5)
        sent_s = trio.current_time()
    await trio.sleep(0.3)
    waited_s = trio.current_time() - sent_s
    async with running_box(tmp_path, away):
        samples = await scraped(tmp_path, capsys)
    assert value(samples, "rocketbox_uplink_unshipped_bytes") > 0
    assert value(samples, "rocketbox_uplink_oldest_unshipped_seconds") > waited_s


async def test_the_figures_of_the_uplink_are_those_of_what_was_shipped_and_lost(
    tmp_path: Path, capsys: Capture
) -> None:
    port = free_port()
    settings = f"[uplink]\ngateway = '127.0.0.1:{port}'\nmax_delay_s = 0.05\nkbit_s = 80000\n"

    async def until(name: str, least: float) -> Samples:
        with trio.fail_after(60):
            while True:
                samples = await scraped(tmp_path, capsys)
                if any(n == f"rocketbox_uplink_{name}" and v >= least for (n, _), v in samples.items()):
                    return samples
                await trio.sleep(0.05)

    def figure(samples: Samples, name: str, **labels: str) -> float:
        return value(samples, f"rocketbox_uplink_{name}", **labels)

    async with running_box(tmp_path, settings, "box-17") as box, connected(box) as channel:
        async with gateway(tmp_path / "landing", port):
            await channel.ask(send("Engine", b"x" * 100), timeout_s=5)
            shipped = await until("receipted_bytes", 1)
        await channel.ask(send("Engine", b"y" * 100), timeout_s=5)
        discard = ["uplink", "discard", "--before", str(1 << 40), "--reason", "x", "--yes", "--data", str(tmp_path)]
        assert await trio.to_thread.run_sync(main, discard) == 0
        ended = await until("connection_errors_total", 1)
    length = figure(shipped, "receipted_bytes")
    assert length == figure(shipped, "raw_bytes_total") > 100
    assert figure(shipped, "wire_bytes_total") > 100  # HELLO and a piece
    assert length == figure(shipped, "durable_bytes") < figure(ended, "durable_bytes")
    assert figure(shipped, "pieces_total", kind="log") == figure(shipped, "connects_total") == 1
    assert (figure(shipped, "connected"), figure(ended, "connected")) == (1, 0)
    assert figure(shipped, "rate_bytes") == 10_000_000
    for name in ("unshipped_bytes", "backlog_bytes", "eta_seconds", "oldest_unshipped_seconds", "repeat_bytes_total"):
        assert figure(shipped, name) == 0, name
    for name in ("month_wire_bytes", "paused", "gateway_full", "gaps_undelivered"):
        assert figure(shipped, name) == 0, name
    assert figure(ended, "gaps_declared_total", **{"class": "missing"}) == figure(ended, "gaps_undelivered") == 1
    assert figure(ended, "gap_bytes_total", **{"class": "missing"}) == length
    assert figure(ended, "unshipped_bytes") == 0  # declared


def test_an_alarm_of_the_uplink_is_a_series_and_does_not_end_the_scrape() -> None:
    sheet = Sheet({})
    sheet.add_each("rocketbox_uplink_alarm", "name", {"damage": 1})
    metric = next(iter(sheet.collect()))
    assert [(one.labels, one.value) for one in metric.samples] == [({"name": "damage"}, 1)]


async def test_the_series_of_a_deleted_topic_end(tmp_path: Path, capsys: Capture) -> None:
    async with running_box(tmp_path) as box, connected(box) as channel:
        await channel.ask(send("Gone"), timeout_s=5)
        await channel.ask(ask(15, consumerGroup="CG", topic="Gone", queueId=0, commitOffset=0), timeout_s=5)
        assert "Gone" in str(await scraped(tmp_path, capsys))
        deleted = await channel.ask(ask(RequestCode.DELETE_TOPIC_IN_BROKER, topic="Gone"), timeout_s=5)
        assert deleted.code == 0
        assert "Gone" not in str(await scraped(tmp_path, capsys))


def fetch(url: str, *, token: str = "", host: str = "", method: str = "GET") -> tuple[int, str]:
    """Return status and body."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    headers |= {"Host": host} if host else {}
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers, method=method), timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as exc:
        return exc.code, exc.read().decode()


async def fetched(url: str, **more: str) -> tuple[int, str]:
    return await trio.to_thread.run_sync(lambda: fetch(url, **more))


async def test_other_machines_need_the_token_and_the_box_s_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("netstack.web.connections.is_loopback", lambda host: False)  # as if this came from elsewhere
    port = free_port()
    async with running_box(tmp_path, f"[metrics]\nport = {port}\n"):
        url = f"http://127.0.0.1:{port}/metrics"
        assert (await fetched(url))[0] == 401
        assert (await fetched(url, token="guessed"))[0] == 401
        token = await trio.to_thread.run_sync(read_token, tmp_path)
        status, text = await fetched(url, token=token)
        assert status == 200
        assert "rocketbox_connections" in text
        assert (await fetched(url, token=token, host="evil.example"))[0] == 421
        assert (await fetched(url, token=token, method="DELETE"))[0] == 405


PROMETHEUS = shutil.which("prometheus")


@pytest.mark.skipif(PROMETHEUS is None, reason="no Prometheus here: sudo make system-packages")
async def test_a_real_prometheus_scrapes_the_box_and_evaluates_the_rules(tmp_path: Path, capsys: Capture) -> None:
    port, own = free_port(), free_port()
    rules = Path(__file__).parents[3] / "docs/alerts.yml"
    config = tmp_path / "prometheus.yml"
    config.write_text(
        f"global: {{scrape_interval: 1s, evaluation_interval: 1s}}\nrule_files: ['{rules}']\n"
        f"scrape_configs: [{{job_name: rocketbox, static_configs: [{{targets: ['127.0.0.1:{port}']}}]}}]\n"
    )
    async with running_box(tmp_path / "data", f"[metrics]\nport = {port}\n") as box, connected(box) as channel:
        await channel.ask(send("Engine"), timeout_s=5)
        lint = await scrape_lint(tmp_path / "data", capsys)
        assert [line for line in lint if "milliseconds" not in line] == []  # RocketMQ's names, not ours
        words = [PROMETHEUS or "", f"--config.file={config}", f"--storage.tsdb.path={tmp_path / 'tsdb'}"]
        words += [f"--web.listen-address=127.0.0.1:{own}", "--log.level=error"]
        async with trio.open_nursery() as nursery:
            process = await nursery.start(partial(trio.run_process, words))
            query = f"http://127.0.0.1:{own}/api/v1/query?query=rocketmq_messages_in_total{{topic='Engine'}}"
            found = await until(query, lambda answer: answer["data"]["result"])
            assert found["data"]["result"][0]["value"][1] == "1"
            answer = await until(
                f"http://127.0.0.1:{own}/api/v1/rules",
                lambda answer: all(rule.get("health") == "ok" for rule in rules_of(answer)),
            )
            assert len(rules_of(answer)) > 10
            process.terminate()
            nursery.cancel_scope.cancel()


def rules_of(answer: dict[str, Any]) -> list[dict[str, Any]]:
    return [rule for group in answer["data"]["groups"] for rule in group["rules"]]


async def until(url: str, good: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    """Ask until the answer is good, 30 s at most."""
    with trio.fail_after(30):
        while True:
            try:
                status, text = await fetched(url.replace("{", "%7B").replace("}", "%7D").replace("'", "%22"))
            except urllib.error.URLError:
                status, text = 0, ""
            if status == 200 and good(answer := json.loads(text)):
                return dict(answer)
            await trio.sleep(0.2)


async def scrape_lint(data: Path, capsys: Capture) -> list[str]:
    """Return what promtool says against the exposition."""
    capsys.readouterr()
    assert await trio.to_thread.run_sync(main, ["metrics", "--data", str(data)]) == 0
    text = capsys.readouterr().out
    said = await trio.run_process(
        ["promtool", "check", "metrics"], stdin=text.encode(), capture_stdout=True, capture_stderr=True, check=False
    )
    return (said.stdout + said.stderr).decode().splitlines()


async def test_slaves_are_counted_with_what_they_lack(tmp_path: Path, capsys: Capture) -> None:
    async with running_box(tmp_path, '[replication]\nrole = "master"\n', broker_port=apache_port()) as box:
        async with connected(box) as channel:
            await channel.ask(send("T", b"x" * 1000), timeout_s=5)
        samples = await scraped(tmp_path, capsys)
        assert value(samples, "rocketbox_replication_slaves") == 0
        assert "rocketbox_replication_lag_bytes" not in {name for name, _ in samples}
        async with await trio.open_tcp_stream("127.0.0.1", box.broker_port + 1) as slave:
            await slave.send_all(bytes(8))
            await slave.receive_some(1 << 16)
            async with await trio.open_tcp_stream("127.0.0.1", box.broker_port + 1) as stranger:
                await stranger.send_all(b"GET / HTTP/1.1\r\n")
                assert await stranger.receive_some(1) == b""
            samples = await scraped(tmp_path, capsys)
    assert value(samples, "rocketbox_replication_slaves") == 1
    assert value(samples, "rocketbox_replication_lag_bytes") > 1000
    assert value(samples, "rocketbox_replication_sent_bytes_total") > 1000
    refused = {dict(labels)["reason"]: n for (name, labels), n in samples.items() if "replication_refused" in name}
    assert refused["garbage"] == 1
    assert sum(refused.values()) == 1
