"""consume and tail with a key that lacks the right for their default group: told at once, with what helps."""

from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest
import trio

from appliance.__main__ import main
from appliance.commands.messaging import tail
from netstack.client import BrokerRefused, ClientError, MessageQueue
from tests.appliance.keys import ADMIN, ADMIN_SECRET, DEVICE, KEYS_MODE, SECRET, write
from tests.interop.box import Box

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def locked(module_path: Path) -> Iterator[Box]:
    write(module_path / "locked", DEVICE, ADMIN)
    box = Box(module_path / "locked", config=KEYS_MODE)
    box.start()
    yield box
    assert box.stop() == 0


@pytest.fixture
def device(locked: Box, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A topic of the device, and how it gets in."""
    at = ["--namesrv", locked.namesrv, "--access-key"]
    monkeypatch.setenv("ROCKETMQ_SECRET_KEY", ADMIN_SECRET)
    assert main(["topics", "create", "T", *at, ADMIN.name]) == 0
    monkeypatch.setenv("ROCKETMQ_SECRET_KEY", SECRET)
    return [*at, DEVICE.name]


@pytest.mark.parametrize(("command", "group"), [("consume", "rocketbox_consume"), ("tail", "TOOLS_CONSUMER")])
def test_the_default_group_without_its_right_is_named_with_the_option(
    device: list[str], command: str, group: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["send", "T", "x", "--quiet", *device]) == 0
    assert main([command, "T", *device]) == 1  # and does not wait for ever
    assert f"may not consume as group {group}; name a group that it may use with --group" in capsys.readouterr().err
    assert main([command, "T", "--group", "CG", *(["--max", "1"] if command == "consume" else []), *device]) == 0


class Refusing:
    """A reader whose broker refuses everything."""

    group = "CG"

    def __init__(self, refused: BrokerRefused) -> None:
        self._refused = refused

    async def pull(self, *_: object, **__: object) -> NoReturn:
        await trio.lowlevel.checkpoint()
        raise self._refused


@pytest.mark.parametrize(("remark", "named"), [("the topic is not there", False), ("no right: group:CG", True)])
async def test_a_refusal_for_another_reason_is_raised_as_it_came(remark: str, named: bool) -> None:
    refused = BrokerRefused("10.0.0.1:10911", 16, remark)
    with pytest.raises(ClientError) as caught:
        await tail._pull(Refusing(refused), MessageQueue("T", "box", 0), 0, "*")  # type: ignore[arg-type]
    assert (caught.value is refused, caught.value.__cause__ is refused) == (not named, named), "not its own cause"


def test_a_key_that_may_not_list_the_topics_is_told_that_nothing_came(
    device: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["consume", "Unknown", "--group", "CG", "--timeout", "0.3", *device]) == 3
    assert "no message from Unknown within 0.3 s" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("command", "told"),
    [("consume", ("default: rocketbox_consume", "default: first")), ("tail", ("default: TOOLS_CONSUMER",))],
)
def test_help_tells_the_defaults(command: str, told: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([command, "--help"])
    shown = " ".join(capsys.readouterr().out.split())
    assert all(each in shown for each in told)
