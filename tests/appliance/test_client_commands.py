"""send, consume, tail, request, bench: JSON in and out, exit codes, against a box over real sockets."""

import io
import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from appliance.__main__ import main
from netstack.client import ConsumerOptions, StartFrom, make_reply
from netstack.client.blocking import Producer, PushConsumer
from tests.interop.box import ROOT, Box

FIRST = ConsumerOptions(start_from=StartFrom.FIRST)


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Box]:
    box = Box(tmp_path_factory.mktemp("commands") / "data")
    box.start()
    yield box
    assert box.stop() == 0


@pytest.fixture
def rocketbox(box: Box, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """Return a function that runs a command and gives (exit code, rows of stdout, stderr)."""
    monkeypatch.setenv("NAMESRV_ADDR", box.namesrv)

    def run(*arguments: str, stdin: str = "") -> tuple[int, list[dict[str, Any]], str]:
        monkeypatch.setattr("sys.stdin", io.StringIO(stdin))
        code = main(arguments)
        captured = capsys.readouterr()
        return code, [json.loads(line) for line in captured.out.splitlines()], captured.err

    return run


def test_what_send_sends_consume_and_tail_print(rocketbox: Any, tmp_path: Path) -> None:
    code, (sent,), _ = rocketbox("send", "Text", "grüß", "--tags", "t", "--keys", "k", "--property", "a=b=c")
    assert (code, sent["status"], sent["topic"]) == (0, "SEND_OK", "Text")
    code, (row,), _ = rocketbox("tail", "Text")
    assert (code, row["body"], row["tags"], row["keys"], row["id"]) == (0, "grüß", "t", "k", sent["id"])
    assert row["properties"]["a"] == "b=c"
    assert (row["queue"], row["offset"]) == (sent["queue"], sent["offset"])
    code, (row,), _ = rocketbox("consume", "Text", "--group", "text_group", "--max", "1")
    assert (code, row["id"]) == (0, sent["id"])
    code, rows, _ = rocketbox("consume", "Text", "--group", "text_group", "--timeout", "0.3")
    assert (code, rows) == (3, [])  # the offset was committed
    (tmp_path / "file").write_bytes(b"\xff\x00")
    assert rocketbox("send", "Binary", f"@{tmp_path / 'file'}")[0] == 0
    assert rocketbox("tail", "Binary")[1][0]["body_base64"] == "/wA="


def test_lines_of_stdin_are_messages_plain_or_json(rocketbox: Any) -> None:
    code, rows, err = rocketbox("send", "Lines", "--tags", "all", stdin="one\ntwo\n\nthree\n")
    assert (code, len(rows)) == (0, 3)
    assert "3 messages sent" in err
    lines = '{"body":"x","tags":"own","properties":{"n":1}}\n{"body_base64":"/wA="}\n'
    assert rocketbox("send", "Lines", "--json", "--tags", "all", stdin=lines)[0] == 0
    tagged = {row.get("body", row.get("body_base64")): row["tags"] for row in rocketbox("tail", "Lines")[1]}
    assert tagged == {"one": "all", "two": "all", "three": "all", "x": "own", "/wA=": "all"}
    assert [row["body"] for row in rocketbox("tail", "Lines", "--tags", "own")[1]] == ["x"]


def test_a_printed_message_can_be_sent_again(rocketbox: Any) -> None:
    rocketbox("send", "Copy", "body", "--tags", "t", "--property", "p=q")
    row = rocketbox("tail", "Copy")[1][0]
    del row["properties"]["CLUSTER"]
    assert rocketbox("send", "CopyOf", "--json", stdin=json.dumps(row))[0] == 0
    again = rocketbox("tail", "CopyOf")[1][0]
    assert (again["body"], again["tags"], again["properties"]["p"]) == ("body", "t", "q")


@pytest.mark.parametrize(
    ("arguments", "stdin", "expected"),
    [
        (("send", "T", "--json"), "no json\n", "expected an object with body"),
        (("send", "T", "--json"), '{"bod":"x"}\n', "expected an object with body"),
        (("send", "no topic", "x"), "", "illegal characters"),
        (("send", "T", "x", "--property", "novalue"), "", "NAME=VALUE"),
        (("send", "T", "@/no/such/file"), "", "No such file"),
        (("send", "T", "x", "--namesrv", "127.0.0.1:1"), "", "is this its address"),
        (("tail", "NoSuchTopic"), "", "create the topic"),
        (("send", "T", "x", "--access-key", "k"), "", "ROCKETMQ_SECRET_KEY"),
        (("send", "T", "x", "--tls-ca", "/no/such/ca"), "", "/no/such/ca"),
    ],
)
def test_a_failure_is_one_line_with_the_next_step_and_exit_code_1(
    rocketbox: Any, arguments: tuple[str, ...], stdin: str, expected: str
) -> None:
    code, rows, err = rocketbox(*arguments, stdin=stdin)
    assert (code, rows) == (1, [])
    assert expected in err
    assert "Traceback" not in err


@pytest.mark.parametrize("arguments", [("consume",), ("send", "T", "x", "--delay-level", "19")])
def test_wrong_usage_is_exit_code_2(rocketbox: Any, arguments: tuple[str, ...]) -> None:
    with pytest.raises(SystemExit) as ended:
        rocketbox(*arguments)
    assert ended.value.code == 2


def test_the_broker_s_port_in_place_of_the_name_server_s_is_told(rocketbox: Any, box: Box) -> None:
    code, _, err = rocketbox("send", "T", "x", "--namesrv", f"127.0.0.1:{box.broker_port}")
    assert (code, "right port?" in err) == (1, True)


def test_the_data_folder_alone_leads_to_the_ports_of_a_box_started_by_hand(
    rocketbox: Any, box: Box, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NAMESRV_ADDR")
    monkeypatch.delenv("RUNTIME_DIRECTORY", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    code, (row,), _ = rocketbox("brokers", "--json", "--data", str(box.data))
    assert (code, row["address"]) == (0, f"127.0.0.1:{box.broker_port}")


def test_a_key_keeps_its_queue_and_one_way_prints_nothing(rocketbox: Any) -> None:
    rocketbox("send", "Keyed", "x")
    queues = {row["queue"] for _ in range(3) for row in rocketbox("send", "Keyed", "x", "--order-key", "k")[1]}
    assert len(queues) == 1
    assert rocketbox("send", "Keyed", "x", "--oneway")[:2] == (0, [])
    assert rocketbox("send", "Keyed", "x", "--quiet") == (0, [], "")


def test_a_request_prints_the_reply_or_ends_with_3(rocketbox: Any, box: Box) -> None:
    assert rocketbox("request", "Ask", "anybody?", "--timeout", "0.3")[0] == 3
    with (
        Producer("responder", box.namesrv) as producer,
        PushConsumer("responder", box.namesrv, options=FIRST, topics={"Ask": "*"}) as consumer,
    ):

        def respond() -> None:
            for message in consumer:
                consumer.ack(message)
                if message.body == b"anybody?":
                    continue  # who asked has gone
                producer.send(make_reply(message, b"re: " + message.body))
                if message.body == b"again?":
                    return

        thread = threading.Thread(target=respond)
        thread.start()
        code, (row,), _ = rocketbox("request", "Ask", "again?", "--timeout", "10")
        thread.join()
    assert (code, row["body"]) == (0, "re: again?")


@pytest.mark.slow
def test_bench_prints_its_figures(rocketbox: Any) -> None:
    code, (figures,), err = rocketbox("bench", "-n", "2000", "--size", "200")
    assert code == 0
    assert figures["failed"] == 0
    assert figures["produced_per_s"] > 100 < figures["consumed_per_s"]
    assert "2,000 messages sent" in err
    assert "left_behind" not in figures
    topics = {row["topic"] for row in rocketbox("topics", "list", "--all", "--json")[1]}
    groups = {row["group"] for row in rocketbox("groups", "list", "--all", "--json")[1]}
    assert not [name for name in topics | groups if "bench_" in name], "nothing is left behind"
    code, (figures,), _ = rocketbox("bench", "-n", "2000", "--batch", "50", "--only", "produce")
    assert code == 0
    assert [row["topic"] for row in rocketbox("tail", figures["topic"], "-n", "1")[1]] == [figures["topic"]]
    topic = figures["topic"]
    code, (figures,), _ = rocketbox("bench", "-n", "2000", "--only", "consume", "--topic", topic)
    assert (code, figures["topic"], "produced_per_s" in figures) == (0, topic, False)


def test_bench_does_not_wait_for_messages_of_a_topic_that_nobody_named(rocketbox: Any) -> None:
    code, rows, err = rocketbox("bench", "--only", "consume")
    assert (code, rows, err) == (2, [], "rocketbox: --only consume needs --topic, one with messages in it\n")


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_consumer_leaves_its_group_and_keeps_its_offset(
    rocketbox: Any, box: Box, number: signal.Signals
) -> None:
    topic = f"Interrupted{number}"
    rocketbox("send", topic, "x")
    command = [sys.executable, "-m", "appliance", "consume", topic, "--group", topic, "--namesrv", box.namesrv]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT) as consumer:
        assert consumer.stdout is not None
        assert json.loads(consumer.stdout.readline())["body"] == "x"
        consumer.send_signal(number)
        _, err = consumer.communicate(timeout=60)
    assert consumer.returncode == 130
    assert "Traceback" not in err
    assert rocketbox("consume", topic, "--group", topic, "--timeout", "0.3")[0] == 3


@pytest.mark.slow
def test_tail_follows_and_ends_quietly_when_its_reader_goes(rocketbox: Any, box: Box) -> None:
    rocketbox("send", "Followed", "old")
    command = [sys.executable, "-m", "appliance", "tail", "Followed", "-f", "--namesrv", box.namesrv]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT) as tail:
        assert tail.stdout is not None
        assert tail.stderr is not None
        assert json.loads(tail.stdout.readline())["body"] == "old"
        rocketbox("send", "Followed", "new")
        assert json.loads(tail.stdout.readline())["body"] == "new"
        tail.stdout.close()
        rocketbox("send", "Followed", "unread")
        assert "Traceback" not in tail.stderr.read()
        assert tail.wait(60) == 0
