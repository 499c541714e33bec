"""topics, groups, offsets, clients, messages, trace, brokers, top: against a box over real sockets."""

import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trio

from appliance.__main__ import COMMANDS, main
from netstack.client import (
    TRACE_TOPIC,
    ConsumerOptions,
    Message,
    ProducerOptions,
    PushConsumer,
    ReceivedMessage,
    StartFrom,
    blocking,
)
from tests import waiting
from tests.interop.box import ROOT, Box, Foreign, until

pytestmark = pytest.mark.slow
TRACEPARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


@pytest.fixture(scope="module")
def box(module_path: Path) -> Iterator[Box | Foreign]:
    """A box, or the cluster that INTEROP_NAMESRV names: the commands are for any."""
    if "INTEROP_NAMESRV" in os.environ:
        yield Foreign(os.environ["INTEROP_NAMESRV"])
        return
    box = Box(module_path / "data")
    box.start()
    yield box
    assert box.stop() == 0


@pytest.fixture
def rocketbox(box: Box | Foreign, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """Return a function that runs a command and gives exit code, rows (with --json) or text, and stderr."""
    monkeypatch.setenv("NAMESRV_ADDR", box.namesrv)

    def run(*arguments: str) -> tuple[int, Any, str]:
        monkeypatch.setattr("sys.stdin", io.StringIO(""))
        code = main(arguments)
        said = capsys.readouterr()
        rows = [json.loads(line) for line in said.out.splitlines()] if "--json" in arguments else said.out
        return code, rows, said.err

    return run


async def consume(namesrv: str, count: int) -> None:
    """Consume so many messages of `readings` as group `billing`, with trace on."""
    options = ConsumerOptions(start_from=StartFrom.FIRST, trace_topic=TRACE_TOPIC)

    async def handle(message: ReceivedMessage) -> None:
        await trio.lowlevel.checkpoint()

    async with (
        PushConsumer("billing", namesrv, topics={"readings": "*"}, options=options) as consumer,
        trio.open_nursery() as n,
    ):
        n.start_soon(consumer.run, handle)
        await waiting.until(lambda: sum(consumer.positions("readings").values()) == count)
        n.cancel_scope.cancel()


@pytest.fixture(scope="module")
def history(box: Box | Foreign) -> dict[str, Any]:
    """Ten messages sent with trace on, eight of them consumed."""
    namesrv = box.namesrv
    with blocking.Producer("maker", namesrv, options=ProducerOptions(trace_topic=TRACE_TOPIC)) as producer:
        properties = {"traceparent": TRACEPARENT}
        results = [
            producer.send(Message("readings", f"n{n}".encode(), keys=f"k{n}", tags="t", properties=properties))
            for n in range(10)
        ]
    trio.run(consume, namesrv, 10)
    return {"ids": [each.message_id for each in results], "offset_ids": [each.offset_message_id for each in results]}


def test_topics_are_made_listed_changed_and_deleted(rocketbox: Any, history: Any) -> None:
    assert rocketbox("topics", "create", "made", "--queues", "3")[0] == 0
    code, rows, _ = rocketbox("topics", "list", "--json")
    by_name = {row["topic"]: row for row in rows}
    assert (code, by_name["made"]["queues"], by_name["readings"]["messages"]) == (0, 3, 10)
    assert not any(name.startswith(("RMQ_SYS", "%RETRY%", "TBW102")) for name in by_name)
    assert rocketbox("topics", "change", "made", "--perm", "r")[0] == 0
    assert "PERMISSION" in rocketbox("topics", "list")[1]
    assert next(row for row in rocketbox("topics", "list", "--json")[1] if row["topic"] == "made")["perm"] == "read"
    code, text, _ = rocketbox("topics", "show", "readings")
    assert (code, "consumed by: billing" in text) == (0, True)
    code, _, said = rocketbox("topics", "show", "reading")
    assert (code, "did you mean readings?" in said) == (1, True)
    assert rocketbox("topics", "delete", "made")[0] == 1  # nobody can be asked here
    assert rocketbox("topics", "delete", "made", "--yes")[0] == 0
    assert "made" not in [row["topic"] for row in rocketbox("topics", "list", "--json")[1]]


def test_groups_show_progress_and_offsets_go_where_they_are_put(rocketbox: Any, history: Any) -> None:
    code, rows, _ = rocketbox("groups", "list", "--json")
    assert (code, [(row["group"], row["lag"]) for row in rows if row["group"] == "billing"]) == (0, [("billing", 0)])
    reset = ("offsets", "reset", "billing", "--topic", "readings")
    assert sum(row["moves"] for row in rocketbox(*reset, "--to", "first", "--dry-run", "--json")[1]) == -10
    code, _, said = rocketbox(*reset, "--to", "first")
    assert (code, "--yes" in said) == (1, True)
    assert rocketbox(*reset, "--to", "first", "--yes")[0] == 0
    assert sum(row["lag"] for row in rocketbox("groups", "show", "billing", "--json")[1]) == 10
    assert rocketbox(*reset, "--to", "last", "--yes", "--json")[0] == 0
    assert sum(row["lag"] for row in rocketbox("offsets", "show", "billing", "--json")[1]) == 0
    assert rocketbox(*reset, "--to", "2100-01-01 00:00", "--yes", "--json")[0] == 0  # after the last message: the end
    assert sum(row["lag"] for row in rocketbox("offsets", "show", "billing", "--json")[1]) == 0
    queue = next(row for row in rocketbox("topics", "show", "readings", "--json")[1] if row["end"] > 0)
    put = ("offsets", "set", "billing", "--topic", "readings", "--queue", str(queue["queue"]), "--yes", "--at")
    assert rocketbox(*put, "0")[0] == 0
    assert "outside of the queue" in rocketbox(*put, "999")[2]
    shown = rocketbox("offsets", "show", "billing", "--json")[1]
    assert [row["committed"] for row in shown if row["queue"] == queue["queue"] and row["topic"] == "readings"] == [0]
    code, _, said = rocketbox("groups", "show", "biling")
    assert (code, "did you mean billing?" in said) == (1, True)
    assert "no member is connected" in rocketbox("groups", "show", "billing")[1]
    assert rocketbox("offsets", "clone", "billing", "--to", "billing-next", "--topic", "readings", "--yes")[0] == 0
    cloned = rocketbox("offsets", "show", "billing-next", "--json")[1]
    assert [(row["queue"], row["committed"]) for row in cloned] == [
        (row["queue"], row["committed"]) for row in shown if row["topic"] == "readings"
    ]
    (route,) = rocketbox("topics", "route", "readings", "--json")[1]
    assert (route["perm"], route["address"].startswith("0: 127.0.0.1:")) == ("read, write", True)


def test_a_group_is_made_changed_and_deleted(rocketbox: Any) -> None:
    assert rocketbox("groups", "create", "fresh", "--retries", "3")[0] == 0
    assert rocketbox("groups", "change", "fresh", "--consume", "off")[0] == 0
    assert "fresh" in [row["group"] for row in rocketbox("groups", "list", "--json")[1]]
    assert rocketbox("groups", "delete", "fresh", "--yes")[0] == 0
    assert "fresh" not in [row["group"] for row in rocketbox("groups", "list", "--json")[1]]


def test_what_exists_is_never_changed_by_create(rocketbox: Any) -> None:
    assert rocketbox("topics", "create", "kept", "--queues", "6") == (0, "kept created: 6 queues\n", "")
    code, _, said = rocketbox("topics", "create", "kept", "--queues", "4")
    assert (code, "kept exists already: 6 queues; `rocketbox topics change kept …` changes it" in said) == (1, True)
    for line in ("", "--queues 6", "--perm rw --acknowledge box"):
        assert rocketbox("topics", "create", "kept", *line.split()) == (0, "kept exists already: 6 queues\n", "")
    assert rocketbox("groups", "create", "kept", "--retries", "3")[1] == "kept created: 3 retries, not ordered\n"
    code, _, said = rocketbox("groups", "create", "kept", "--ordered")
    assert (code, "kept exists already: 3 retries, not ordered; `rocketbox groups change" in said) == (1, True)
    for line in ("", "--retries 3", "--no-ordered --consume on"):
        code, text, _ = rocketbox("groups", "create", "kept", *line.split())
        assert (code, text) == (0, "kept exists already: 3 retries, not ordered\n")
    (row,) = rocketbox("topics", "create", "kept", "--json")[1]
    assert (row["name"], row["done"], row["queues"]) == ("kept", "exists already", 6)
    rocketbox("topics", "delete", "kept", "--yes")
    rocketbox("groups", "delete", "kept", "--yes")


def test_a_change_to_fewer_queues_names_those_that_nobody_reads_any_more(rocketbox: Any) -> None:
    rocketbox("topics", "create", "fewer", "--queues", "8")
    for number in range(8):
        rocketbox("send", "fewer", f"n{number}", "--quiet")
    code, _, said = rocketbox("topics", "change", "fewer", "--queues", "4")
    assert (code, "add --yes" in said, "will not read queues 4 to 7 any more" in said) == (1, True, True)
    assert len(rocketbox("topics", "show", "fewer", "--json")[1]) == 8
    assert rocketbox("topics", "change", "fewer", "--queues", "7", "--yes")[1] == "fewer changed: 7 queues\n"
    assert rocketbox("topics", "change", "fewer", "--queues", "9") == (0, "fewer changed: 9 queues\n", "")
    rocketbox("topics", "delete", "fewer", "--yes")


def test_types_of_topics_and_order_of_groups_are_set_shown_and_changed(rocketbox: Any) -> None:
    for kind in ("NORMAL", "DELAY", "TRANSACTION", "PRIORITY", "MIXED", "FIFO"):
        text = rocketbox("topics", "create", f"of-{kind}", "--type", kind)[1]
        assert text == f"of-{kind} created: 8 queues, type {kind}\n"
        assert f"\ntype: {kind}\n" in rocketbox("topics", "show", f"of-{kind}")[1]
    assert {row["type"] for row in rocketbox("topics", "show", "of-FIFO", "--json")[1]} == {"FIFO"}
    assert rocketbox("topics", "create", "of-FIFO", "--type", "DELAY")[0] == 1
    said = rocketbox("topics", "change", "of-FIFO", "--perm", "r")[1]
    assert said == "of-FIFO changed: 8 queues, permission read, type FIFO\n"
    assert "type NORMAL" in rocketbox("topics", "change", "of-FIFO", "--type", "NORMAL")[1]
    assert rocketbox("groups", "create", "inorder", "--ordered")[1] == "inorder created: 16 retries, ordered\n"
    assert rocketbox("groups", "create", "inorder", "--ordered")[0] == 0
    assert "\n16 retries, ordered\n" in rocketbox("groups", "show", "inorder")[1]
    rows = rocketbox("groups", "list", "--json")[1]
    assert [row["ordered"] for row in rows if row["group"] == "inorder"] == [True]
    assert "ordered" in rocketbox("groups", "change", "inorder", "--retries", "4")[1]
    assert rocketbox("groups", "change", "inorder", "--no-ordered")[1] == "inorder changed: 4 retries, not ordered\n"


def test_clients_are_named_while_they_are_connected(rocketbox: Any, box: Box | Foreign) -> None:
    with blocking.PushConsumer("watched", box.namesrv, topics={"readings": "*"}):
        rows = until(lambda: rocketbox("clients", "--group", "watched", "--json")[1], seconds=60, what="not listed")
    assert [(row["role"], row["group"]) for row in rows] == [("consumer", "watched")]
    assert rocketbox("clients", "--group", "nobody")[0] == 0


def test_messages_are_found_by_key_by_both_ids_and_by_time(rocketbox: Any, history: Any) -> None:
    def found(*how: str) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = rocketbox("messages", *how, "--json")[1]
        return rows

    by_key = until(lambda: found("find", "readings", "--key", "k3"), seconds=60, what="not in the index")
    assert [(row["body"], row["id"], row["offset_id"]) for row in by_key] == [
        ("n3", history["ids"][3], history["offset_ids"][3])
    ]
    assert found("find", "readings", "--id", history["ids"][3]) == by_key
    assert [row["body"] for row in found("show", history["offset_ids"][3])] == ["n3"]
    (shown,) = found("show", history["ids"][3], "--topic", "readings")
    assert (shown["properties"]["traceparent"], "billing" in shown["consumers"]) == (TRACEPARENT, True)
    assert len(found("find", "readings", "--since", "1h")) == 10
    assert len(found("find", "readings", "--since", "1h", "--max", "4")) == 4
    assert rocketbox("messages", "find", "readings", "--key", "none")[0] == 3
    assert rocketbox("messages", "show", "00" * 16)[0] == 3
    assert "body" in rocketbox("messages", "show", history["ids"][3], "--topic", "readings")[1]


def test_a_trace_tells_who_sent_and_who_consumed(rocketbox: Any, history: Any) -> None:
    def steps() -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = rocketbox("trace", history["ids"][5], "--topic", "readings", "--json")[1]
        return rows if {row["what"] for row in rows} >= {"sent", "consumed", "stored"} else []

    rows = until(steps, seconds=30, what="not traced")
    sent, consumed = (next(row for row in rows if row["what"] == what) for what in ("sent", "consumed"))
    assert (sent["group"], sent["topic"], sent["result"]) == ("maker", "readings", "stored")
    assert (consumed["group"], consumed["result"], consumed["took_ms"] >= 0) == ("billing", "success", True)
    assert next(row for row in rows if row["what"] == "stored")["traceparent"] == TRACEPARENT
    text = rocketbox("trace", history["ids"][5])[1]
    assert text.splitlines()[0].startswith("WHEN")
    assert rocketbox("trace", "F" * 32)[0] == 3


def test_brokers_and_top_show_what_goes_on(rocketbox: Any, history: Any) -> None:
    (row,) = rocketbox("brokers", "--json")[1]
    assert row["today"] >= 10
    (looked,) = rocketbox("top", "--every", "0.2", "--count", "1", "--json")[1]
    assert {"readings"} <= {each["topic"] for each in looked["topics"]}
    assert {"billing"} <= {each["group"] for each in looked["groups"]}
    assert "IN/S" in rocketbox("top", "--every", "0.2", "--count", "1")[1]


def test_contexts_name_boxes_and_keep_secrets_to_themselves(
    rocketbox: Any, box: Box | Foreign, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("NAMESRV_ADDR")
    assert rocketbox("context", "add", "here", "--namesrv", box.namesrv)[0] == 0
    assert rocketbox("context", "add", "nowhere", "--namesrv", "127.0.0.1:1")[0] == 0
    assert rocketbox("topics", "list")[0] == 0  # the first one added is used
    code, _, said = rocketbox("topics", "list", "--context", "nowhere")
    assert (code, "127.0.0.1:1" in said) == (1, True)
    assert "did you mean here" in rocketbox("topics", "list", "--context", "here1")[2]
    assert rocketbox("context", "use", "nowhere")[0] == 0
    assert rocketbox("topics", "list")[0] == 1
    assert rocketbox("topics", "list", "--namesrv", box.namesrv)[0] == 0
    listed = {row["name"]: row["current"] for row in rocketbox("context", "list", "--json")[1]}
    assert listed == {"here": False, "nowhere": True}
    assert (tmp_path / "rocketbox/contexts.json").stat().st_mode & 0o777 == 0o600


def test_bash_completes_commands_verbs_and_options() -> None:
    script = subprocess.run([sys.executable, "-m", "appliance", "completion", "bash"], cwd=ROOT, capture_output=True)
    ask = 'COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); _rocketbox; echo "${{COMPREPLY[@]}}"'

    def completed(*words: str) -> set[str]:
        line = script.stdout.decode() + ask.format(words=" ".join(f"'{word}'" for word in words))
        done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=True)
        return set(done.stdout.split())

    assert completed("rocketbox", "top") == {"top", "topics"}
    assert completed("rocketbox", "offsets", "re") == {"reset"}
    assert {"--topic", "--to", "--yes"} <= completed("rocketbox", "offsets", "reset", "--")
    assert completed("rocketbox", "access", "add", "--pub") == {"--publish"}


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_every_command_says_what_it_is_for(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([command, "--help"])
    assert ended.value.code == 0
    assert COMMANDS[command].purpose in capsys.readouterr().out.replace("\n", " ")


def test_every_command_that_the_documentation_names_is_there() -> None:
    script = subprocess.run([sys.executable, "-m", "appliance", "completion", "bash"], cwd=ROOT, capture_output=True)
    paths = set(re.findall(r'^        "(/[^"]*)"\)', script.stdout.decode(), re.M))
    assert len(paths) > 60
    text = (ROOT / "docs/cli.md").read_text() + (ROOT / "docs/security.md").read_text()
    missing = set()
    for words in re.findall(r"rocketbox ([a-z]+)(?: ([a-z-]+))?", text):
        verbs = {path.split("/")[2] for path in paths if path.startswith(f"/{words[0]}/")}
        if f"/{words[0]}" not in paths or (verbs and words[1] and words[1] not in verbs):
            missing.add(" ".join(words))
    assert missing == set()
