"""The checker refuses what no single queue, register or lock could have answered, and takes what one could."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.histories.history import LOCK, QUEUE, REGISTER, History, Operation, verdicts

pytestmark = pytest.mark.slow
SENT = (
    Operation("put", 11, call=1).told(0, 4),
    Operation("put", 12, call=2).told(1, 5),
    Operation("put", 13, call=3),  # its client was told nothing
    Operation("end", call=6).told(2, 7),
)
HELD = Operation("lock", 1, call=1).told(1, 2)

TAKEN: dict[str, tuple[str, Sequence[Operation]]] = {
    "what nobody was told of may be stored late": (
        QUEUE,
        (*SENT, Operation("end", call=8).told(3, 9), Operation("all", call=10, all=(11, 12, 13)).told(0, 11)),
    ),
    "or never": (QUEUE, (*SENT, Operation("all", call=10, all=(11, 12)).told(0, 11))),
    "a send may be stored twice": (QUEUE, (*SENT, Operation("all", call=10, all=(11, 12, 13, 12)).told(0, 11))),
    "two at once in either order": (
        REGISTER,
        (
            Operation("set", 5, call=1).told(0, 9),
            Operation("set", 6, call=2).told(0, 8),
            Operation("get", call=10).told(5, 11),
        ),
    ),
    "an offset that nobody was told of": (
        REGISTER,
        (Operation("set", 5, call=1), Operation("get", call=2).told(0, 3), Operation("get", call=4).told(5, 5)),
    ),
    "one after the other": (
        LOCK,
        (
            HELD,
            Operation("lock", 2, call=3).told(0, 4),
            Operation("unlock", 1, call=5),
            Operation("lock", 2, call=6).told(1, 7),
        ),
    ),
}
REFUSED: dict[str, tuple[str, Sequence[Operation]]] = {
    "an acknowledged message is gone": (QUEUE, (*SENT, Operation("all", call=10, all=(11,)).told(0, 11))),
    "it is elsewhere": (QUEUE, (*SENT, Operation("all", call=10, all=(12, 11)).told(0, 11))),
    "the end is stale": (
        QUEUE,
        (*SENT, Operation("end", call=8).told(1, 9), Operation("all", call=10, all=(11, 12, 13)).told(0, 11)),
    ),
    "the end goes back": (
        QUEUE,
        (
            *(*SENT, Operation("end", call=8).told(3, 9), Operation("end", call=10).told(2, 11)),
            Operation("all", call=12, all=(11, 12, 13)).told(0, 13),
        ),
    ),
    "a message of nobody": (QUEUE, (*SENT, Operation("all", call=10, all=(11, 12, 99)).told(0, 11))),
    "an offset is stale": (
        REGISTER,
        (
            Operation("set", 5, call=1).told(0, 2),
            Operation("set", 6, call=3).told(0, 4),
            Operation("get", call=5).told(5, 6),
        ),
    ),
    "a committed offset is gone": (
        REGISTER,
        (Operation("set", 5, call=1).told(0, 2), Operation("get", call=3).told(0, 4)),
    ),
    "two hold a lock": (LOCK, (HELD, Operation("lock", 2, call=3).told(1, 4))),
    "a lock that is free is refused": (
        LOCK,
        (HELD, Operation("unlock", 1, call=3).told(0, 4), Operation("lock", 2, call=5).told(0, 6)),
    ),
}


def test_the_checker_tells_histories_of_one_object_from_others(program: Path) -> None:
    both = {**TAKEN, **REFUSED}
    histories = [History(model, name, list(operations)) for name, (model, operations) in both.items()]
    told = verdicts(program, histories)
    assert told == {**dict.fromkeys(TAKEN, "Ok"), **dict.fromkeys(REFUSED, "Illegal")}
