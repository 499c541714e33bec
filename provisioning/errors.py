"""Failures with the codes a technician looks up; the text has cause and next step, `facts` the figures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# By the code's first digit. Source for 2: the shell's usage error.
EXIT_STATUS = {"1": 3, "2": 4, "3": 5, "4": 6, "5": 7}


class ProvisioningError(Exception):
    """Something that can be told by an E-code, on either side of the line."""

    def __init__(self, code: str, text: str, **facts: Any) -> None:
        super().__init__(text)
        self.code, self.text, self.facts = code, text, facts

    @property
    def exit_status(self) -> int:
        return EXIT_STATUS.get(self.code[1:2], 1)

    def __str__(self) -> str:
        return f"{self.code} {self.text}"

    @classmethod
    def from_wire(cls, code: str, text: str, facts: Mapping[str, Any]) -> ProvisioningError:
        return cls(code, text, **{str(key): value for key, value in facts.items()})


class LinkLost(Exception):
    """The line is gone: cable, adapter or the other program."""
