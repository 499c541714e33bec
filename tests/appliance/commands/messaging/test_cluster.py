"""What the commands that talk to a cluster share: where it is, and how a failure is told."""

from pathlib import Path
from typing import Any

import pytest

from tests.interop.box import Box


@pytest.mark.parametrize(
    ("arguments", "stdin", "expected"),
    [
        (("send", "T", "--json"), "no json\n", "expected an object with body"),
        (("send", "T", "--json"), '{"bod":"x"}\n', "expected an object with body"),
        (("send", "no topic", "x"), "", "illegal characters"),
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


@pytest.mark.parametrize(
    "arguments",
    [("consume",), ("send", "T", "x", "--delay-level", "19"), ("send", "T", "x", "--property", "novalue")],
)
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
