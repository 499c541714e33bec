"""The commands against every cluster that the client is tried on: what they print, how they end."""

import json
import subprocess
import sys
import threading
from typing import Any

from netstack.client import ConsumerOptions, StartFrom, make_reply
from netstack.client.blocking import Producer, PushConsumer
from tests.interop.box import ROOT
from tests.netstack.client.conftest import PATIENT

FIRST = ConsumerOptions(start_from=StartFrom.FIRST)


def rocketbox(namesrv: str, *arguments: str, stdin: str = "") -> list[dict[str, Any]]:
    """Run a command to its good end and return the rows that it printed."""
    command = [sys.executable, "-m", "appliance", arguments[0], "--namesrv", namesrv, *arguments[1:]]
    done = subprocess.run(command, input=stdin, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_send_consume_tail_and_bench_work_against_any_cluster(namesrv: str, topic: str) -> None:
    (sent,) = rocketbox(namesrv, "send", topic, "grüß", "--tags", "t", "--keys", "k", "--property", "a=b")
    lines = "".join(json.dumps({"body": f"{number}", "tags": "more"}) + "\n" for number in range(20))
    more = rocketbox(namesrv, "send", topic, "--json", stdin=lines)
    assert {row["status"] for row in (sent, *more)} == {"SEND_OK"}
    ids = {row["id"] for row in (sent, *more)}
    wanted = ("--max", "21", "--timeout", "120")
    consumed = rocketbox(namesrv, "consume", topic, "--group", topic, *wanted)
    assert {row["id"] for row in consumed} == ids
    assert {row["id"] for row in rocketbox(namesrv, "tail", topic, "-n", "99")} == ids
    (row,) = rocketbox(namesrv, "tail", topic, "--tags", "t")
    assert (row["id"], row["body"], row["keys"], row["properties"]["a"]) == (sent["id"], "grüß", "k", "b")
    (figures,) = rocketbox(namesrv, "bench", "-n", "500", "--size", "100", "--timeout", "120")
    assert (figures["failed"], "left_behind" in figures) == (0, False)


def test_a_request_is_answered_on_any_cluster(namesrv: str, topic: str) -> None:
    with (
        Producer(f"{topic}_responder", namesrv, options=PATIENT) as producer,
        PushConsumer(topic, namesrv, options=FIRST, topics={topic: "*"}) as consumer,
    ):

        def respond() -> None:
            for message in consumer:
                consumer.ack(message)
                producer.send(make_reply(message, b"re: " + message.body))
                return

        thread = threading.Thread(target=respond)
        thread.start()
        (row,) = rocketbox(namesrv, "request", topic, "anybody?", "--timeout", "120")
        thread.join()
    assert row["body"] == "re: anybody?"
