"""What clients asked and were told, and when: histories for Porcupine, which tells whether they are linearizable.

An operation whose client was told nothing may have happened at any time after it began, or not at all. Messages have
bodies of their own, so what a queue holds at the end tells which of its sends were stored, and where. A send may be
stored more than once; the further copies count as sends of their own that nobody was told of.
"""

import json
import subprocess
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from tests.interop.programs import build_go

CHECKER = Path(__file__).with_name("checker")
NEVER: Final = 2**62  # when an operation ended whose client was told nothing
QUEUE, REGISTER, LOCK = "queue", "register", "lock"
TIMEOUT_S = 120


@dataclass(frozen=True, slots=True)
class Operation:
    """One request of a client. `result` counts where it is `known`; times are nanoseconds of one clock."""

    op: str
    value: int = 0
    result: int = 0
    known: bool = False
    client: int = 0
    call: int = 0
    end: int = NEVER
    all: tuple[int, ...] = ()

    def told(self, result: int, end: int) -> "Operation":
        return replace(self, result=result, known=True, end=end)


@dataclass(slots=True)
class History:
    """All operations on one object."""

    model: str
    key: str
    operations: list[Operation] = field(default_factory=list)

    def object(self) -> dict[str, Any]:
        """Return what the checker reads."""
        return {
            "model": self.model,
            "key": self.key,
            "operations": [{name: getattr(each, name) for name in Operation.__slots__} for each in self.decided()],
        }

    def decided(self) -> Sequence[Operation]:
        """Return the operations without those that nobody can have noticed."""
        if self.model == QUEUE:
            return _stored(self.operations)
        if self.model == REGISTER:
            seen = {each.result for each in self.operations if each.op == "get"}
            return [each for each in self.operations if each.known or each.value in seen]
        return self.operations


def _stored(operations: Sequence[Operation]) -> list[Operation]:
    """Return the operations of a queue: what was sent got the numbers that its content at the end tells."""
    content = next((each.all for each in reversed(operations) if each.op == "all"), ())
    places: dict[int, list[int]] = defaultdict(list)
    for place, value in enumerate(content):
        places[value].append(place)
    found = list[Operation]()
    for each in operations:
        if each.op != "put":
            found.append(each)
            continue
        mine = places.get(each.value, [])
        if each.known:
            found.append(each)  # also where it is not stored there: then the history is refused
            mine = [place for place in mine if place != each.result]
        found += [replace(each, result=place, known=True, end=NEVER) for place in mine]
    return found


def checker() -> Path:
    """Return the program that asks Porcupine, built once. Raises Unavailable."""
    return build_go(CHECKER, "histories")


def verdicts(program: Path, histories: Iterable[History]) -> dict[str, str]:
    """Return key → Ok, Illegal, or Unknown where the time was not enough."""
    asked = {"timeout_s": TIMEOUT_S, "histories": [each.object() for each in histories]}
    done = subprocess.run([program], input=json.dumps(asked), capture_output=True, text=True, check=True)
    return {row["key"]: row["verdict"] for row in map(json.loads, done.stdout.splitlines())}
