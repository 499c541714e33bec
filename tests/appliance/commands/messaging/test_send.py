"""send and tail: JSON in and out, exit codes, against a box over real sockets."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from appliance.commands.messaging.send import Complaints
from netstack.client import ClientError
from tests.interop.box import ROOT, Box


def test_what_send_sends_consume_and_tail_print(rocketbox: Any, tmp_path: Path) -> None:
    code, (sent,), _ = rocketbox("send", "Text", "grüß", "--tags", "t", "--keys", "k", "--property", "a=b=c")
    assert (code, sent["status"], sent["topic"]) == (0, "SEND_OK", "Text")
    code, (row,), _ = rocketbox("tail", "Text")
    after = ("tail", "Text", "--since-ms", str(row["stored_ms"] + 1))
    assert rocketbox(*after)[:2] == (3, [])  # the nearest message is an older one
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


def test_a_key_keeps_its_queue_and_one_way_prints_nothing(rocketbox: Any) -> None:
    rocketbox("send", "Keyed", "x")
    queues = {row["queue"] for _ in range(3) for row in rocketbox("send", "Keyed", "x", "--order-key", "k")[1]}
    assert len(queues) == 1
    assert rocketbox("send", "Keyed", "x", "--oneway")[:2] == (0, [])
    assert rocketbox("send", "Keyed", "x", "--quiet") == (0, [], "")


def test_an_error_that_comes_again_is_told_once_and_how_often_at_the_end(rocketbox: Any) -> None:
    bad, other = '{"body":"x","properties":{"a\\u0001b":"c"}}\n', '{"body":"x","properties":{"KEYS\\u0002":"c"}}\n'
    code, sent, err = rocketbox("send", "Failing", "--json", stdin='{"body":"good"}\n' + 12 * bad + other)
    first, second, total, progress = err.splitlines()
    assert (code, len(sent)) == (1, 1)
    assert total == f"rocketbox: 12 messages failed so: {first.removeprefix('rocketbox: ')}"
    assert second != first
    assert "1 messages sent" in progress


def test_of_many_different_errors_ten_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    complaints = Complaints()
    for number in range(15):
        complaints.note(ClientError(f"error {number}"))
    complaints.end()
    lines = capsys.readouterr().err.splitlines()
    assert lines == [*(f"rocketbox: error {number}" for number in range(10)), "rocketbox: 5 more failed in other ways"]


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


@pytest.mark.slow
def test_a_line_that_is_no_utf_8_is_a_body_like_any_other(rocketbox: Any, box: Box) -> None:
    command = [sys.executable, "-m", "appliance", "send", "Latin", "--namesrv", box.namesrv]
    strict = os.environ | {"PYTHONIOENCODING": "utf-8:strict"}  # as under every locale but C
    sent = subprocess.run(command, input=b"gr\xfcn\nrot\n", capture_output=True, cwd=ROOT, env=strict, timeout=60)
    assert (sent.returncode, len(sent.stdout.splitlines())) == (0, 2), sent.stderr
    rows = rocketbox("tail", "Latin")[1]
    assert sorted(row.get("body", row.get("body_base64")) for row in rows) == ["Z3L8bg==", "rot"]
    code = subprocess.run(
        [*command, "--json"], input=b'{"body":"\xff"}\n', capture_output=True, cwd=ROOT, env=strict, timeout=60
    )
    assert (code.returncode, b"not a message" in code.stderr, b"Traceback" in code.stderr) == (1, True, False)
