"""`offsets`: what --to means, and what a reset would do."""

import argparse

import pytest

from appliance.commands.messaging.offsets import _row, add_arguments, place
from netstack.client import MessageQueue
from netstack.client.admin import END_OF_QUEUE


def test_the_ends_have_names_and_other_places_are_times() -> None:
    assert (place("first"), place("last")) == (0, END_OF_QUEUE)
    assert place("1795262400000") == 1_795_262_400_000
    for text in ("First", "end", "", "-1"):
        with pytest.raises(argparse.ArgumentTypeError, match="is not a time such as"):
            place(text)


def test_a_queue_without_an_offset_begins_at_its_start() -> None:
    queue = MessageQueue("T", "box", 3)
    seen = argparse.Namespace(consumer_offset=40)
    given = argparse.Namespace(group="g")
    said = {"group": "g", "topic": "T", "broker": "box", "queue": 3}
    assert _row(given, queue, {queue: seen}, 10) == said | {"before": 40, "after": 10, "moves": -30}
    assert _row(given, queue, {}, 10) == said | {"before": 0, "after": 10, "moves": 10}


@pytest.mark.parametrize(
    "given",
    [["reset", "g", "--topic", "T"], ["reset", "g", "--to", "first"], ["set", "g", "--topic", "T", "--queue", "x"], []],
)
def test_what_is_missing_is_wrong_usage(given: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    with pytest.raises(SystemExit) as ended:
        parser.parse_args(given)
    assert ended.value.code == 2
    assert "usage:" in capsys.readouterr().err
