"""Errors of the appliance, each with the facts as attributes."""

from collections.abc import Sequence

from netstack.errors import Refused
from storage_driver.named_tuple import NamedTuple

NOT_COPIED = "no other disk has the message"  # the reason begins so where a group refuses because copies are missing


class ApplianceError(Exception):
    """Something the operator can act on; the text says what."""


class DueTooLate(Refused):
    """A message is due later than messages may wait here."""


class ConfigProblem(NamedTuple):
    """One thing wrong with the configuration."""

    key: str  # "table.key", "table", or "" for the whole file
    value: object | None
    reason: str
    line: int | None

    def __str__(self) -> str:
        shown = f"{self.key} = {self.value!r}" if self.value is not None else self.key
        at = f"line {self.line}: " if self.line else ""
        return f"{at}{shown}: {self.reason}" if shown else f"{at}{self.reason}"


class ConfigError(ApplianceError):
    """The configuration cannot be used; `problems` lists everything found."""

    def __init__(self, source: str, problems: Sequence[ConfigProblem]) -> None:
        self.source, self.problems = source, list(problems)
        count = "1 problem" if len(self.problems) == 1 else f"{len(self.problems)} problems"
        super().__init__(f"{source}: {count}\n" + "\n".join(f"  {problem}" for problem in self.problems))


class PortTaken(ApplianceError):
    """A port is in use by another process."""

    def __init__(self, key: str, host: str, port: int) -> None:
        self.key, self.host, self.port = key, host, port
        super().__init__(
            f"port {port} on {host} is taken by another process: stop it (`ss -ltnp 'sport = :{port}'` names it) "
            f"or choose another {key}"
        )


def only_cause(exc: BaseException) -> BaseException:
    """Return what is inside groups of one."""
    while isinstance(exc, BaseExceptionGroup) and len(exc.exceptions) == 1:
        exc = exc.exceptions[0]
    return exc
