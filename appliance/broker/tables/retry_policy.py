"""How long a failed message of a gRPC consumer waits before it is delivered again, as a group of 5.x says.

Remoting clients know delay levels alone. Source: RocketMQ 5.5.0 GroupRetryPolicy and the policies in it.
"""

from collections.abc import Mapping
from typing import Any

from storage_driver.named_tuple import NamedTuple

EXPONENTIAL, CUSTOMIZED = "EXPONENTIAL", "CUSTOMIZED"
MOST_PAUSES, LONGEST_MS, MOST_TIMES = 64, 7 * 86_400_000, 1000


class RetryPolicy(NamedTuple):
    """A list of pauses, or without one pauses that grow."""

    pauses_ms: tuple[int, ...] = ()
    first_ms: int = 5_000
    longest_ms: int = 7_200_000
    times: int = 2

    def to_json(self) -> dict[str, Any]:
        """Return what `subscriptionGroup.json` and tools call groupRetryPolicy."""
        if self.pauses_ms:
            return {"customizedRetryPolicy": {"next": list(self.pauses_ms)}, "type": CUSTOMIZED}
        growing = {"initial": self.first_ms, "max": self.longest_ms, "multiplier": self.times}
        return {"exponentialRetryPolicy": growing, "type": EXPONENTIAL}


def retry_policy_from_json(content: object) -> RetryPolicy | None:
    """Return the policy of a sent group, None for the default. Raises ValueError."""
    if not isinstance(content, Mapping):
        return None
    if content.get("type") == EXPONENTIAL:
        given = content.get("exponentialRetryPolicy")
        growing = given if isinstance(given, Mapping) else {}
        default = RetryPolicy()
        return RetryPolicy(
            (),
            _bounded("initial", growing.get("initial", default.first_ms), LONGEST_MS),
            _bounded("max", growing.get("max", default.longest_ms), LONGEST_MS),
            _bounded("multiplier", growing.get("multiplier", default.times), MOST_TIMES),
        )
    listed = content.get("customizedRetryPolicy")
    pauses = listed.get("next") if isinstance(listed, Mapping) else None
    if not isinstance(pauses, list) or not pauses:
        return None
    if len(pauses) > MOST_PAUSES:
        raise ValueError(f"groupRetryPolicy has {len(pauses)} pauses, at most {MOST_PAUSES} are allowed")
    return RetryPolicy(tuple(_bounded("next", pause, LONGEST_MS) for pause in pauses))


def stored_retry_policy(content: object) -> RetryPolicy | None:
    """Return the policy of a stored group: the default in place of one that a master of Apache's allows alone."""
    try:
        return retry_policy_from_json(content)
    except ValueError:
        return None


def _bounded(name: str, value: object, most: int) -> int:
    if type(value) is not int or not 1 <= value <= most:
        raise ValueError(f"groupRetryPolicy: {name} is {str(value)[:40]}, allowed 1..{most}")
    return value
