"""The box's side of a conversation: repeated requests, authentication, expiry. No line, no file, no clock."""

from __future__ import annotations

import hmac
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from provisioning.errors import ProvisioningError
from provisioning.frame import ERROR, RESULT, Message
from provisioning.ownership import Patience, bench_mac, box_mac

PROTO = 1
EXPIRY_S = 60.0
OPEN_TO_ALL = frozenset({"identify", "status", "doctor", "auth", "claim"})
OWNER_ONLY = frozenset(
    {
        *("plan", "apply", "verify", "put", "get", "baud", "install", "commit", "rollback"),
        *("time", "reboot", "safe_leave", "release", "factory_reset"),
    }
)


@dataclass(frozen=True, slots=True)
class Owner:
    """Whom a box belongs to."""

    owner_id: str
    secret: bytes = field(repr=False)


class Session:
    """One bench on the line; silence of 60 s ends it and with it the authentication."""

    def __init__(self, serial: str, *, fresh_nonce: Callable[[], bytes]) -> None:
        self.serial, self._fresh_nonce = serial, fresh_nonce
        self.nonce = fresh_nonce()
        self.authenticated = False
        self.expired = False
        self._patience = Patience()
        self._heard_s: float | None = None
        self._works = 0  # requests being worked on
        self._last: tuple[int, str, Mapping[str, Any]] | None = None
        self._answer: Message | None = None

    def heard(self, now_s: float) -> None:
        """Note a valid frame; after too long a silence everything except the transfers starts again."""
        if self._heard_s is not None and not self._works and now_s - self._heard_s > EXPIRY_S:
            self.expired = self.authenticated
            self.renew()
        self._heard_s = now_s

    @property
    def works(self) -> int:
        """How many requests are worked on."""
        return self._works

    def begin_work(self) -> None:
        """Note that a request is worked on: a bench that waits for its answer is not silent."""
        self._works += 1

    def end_work(self, now_s: float) -> None:
        """Note that one is answered; silence counts from here."""
        self._works, self._heard_s = self._works - 1, now_s

    def renew(self, *, keeping: tuple[int, str, Mapping[str, Any]] | None = None) -> None:
        """Start again: no rights, another nonce; `keeping` is the request that begins it."""
        self.authenticated, self._last, self._answer = False, keeping, None
        self.nonce = self._fresh_nonce()

    def repeated(self, number: int, op: str, arguments: Mapping[str, Any]) -> bool:
        """Tell whether this is the last request once more; remembers it if not."""
        request = (number, op, arguments)
        if self._last == request:
            return True
        self._last, self._answer = request, None
        return False

    @property
    def answer(self) -> Message | None:
        """The answer to the last request, None while it is worked on."""
        return self._answer

    def result(self, number: int, result: Mapping[str, Any]) -> Message:
        return self._kept([RESULT, number, dict(result)])

    def error(self, number: int, error: ProvisioningError) -> Message:
        return self._kept([ERROR, number, error.code, error.text[:1000], error.facts])

    def _kept(self, answer: Message) -> Message:
        """Return the answer; it is that to the last request unless another has come meanwhile."""
        if self._last is not None and self._last[0] == answer[1]:
            self._answer = answer
        return answer

    def check(self, op: str, owner: Owner | None) -> None:
        """Raise unless this session may do that."""
        if op in OPEN_TO_ALL:
            return
        if op not in OWNER_ONLY:
            raise ProvisioningError(
                "E105", f"operation {op!r} is unknown here: update the bench or the box", proto=PROTO
            )
        if owner is None and op == "plan":
            return  # it changes nothing, and whoever may look here may claim the box
        if owner is None:
            raise ProvisioningError("E201", "the box is unclaimed: run `rocketbox provision`")
        if not self.authenticated:
            if self.expired:
                raise ProvisioningError("E204", "the session expired after 60 s of silence: authenticate again")
            raise ProvisioningError("E203", "not the owner of this box", owner_id=owner.owner_id)

    def authenticate(self, arguments: Mapping[str, Any], owner: Owner | None, now_s: float) -> dict[str, Any]:
        """Check the bench's proof, return the box's own. Every attempt uses the nonce up. Raises E201, E202, E203."""
        if owner is None:
            raise ProvisioningError("E201", "the box is unclaimed: run `rocketbox provision`")
        wait_s = self._patience.wait_s(now_s)
        if wait_s > 0:
            raise ProvisioningError(
                "E203", f"wait {math.ceil(wait_s)} s before the next attempt", wait_s=round(wait_s, 1)
            )
        host_nonce, mac = arguments.get("host_nonce"), arguments.get("mac")
        nonce, self.nonce = self.nonce, self._fresh_nonce()
        if not isinstance(host_nonce, bytes) or not isinstance(mac, bytes) or len(host_nonce) < 16:
            raise ProvisioningError("E203", "auth needs host_nonce and mac")
        if not hmac.compare_digest(mac, bench_mac(owner.secret, self.serial, nonce, host_nonce)):
            wait_s = self._patience.failed(now_s)
            claimed = arguments.get("owner_id")
            if isinstance(claimed, str) and claimed != owner.owner_id:
                text = f"the box belongs to another owner ({owner.owner_id}): use that fleet secret (--secret FILE); "
                text += "where it is lost, root removes /etc/rocketbox/owner on the box"
                raise ProvisioningError("E202", text, owner_id=owner.owner_id, wait_s=wait_s)
            raise ProvisioningError("E203", f"authentication failed, wait {wait_s:.0f} s", wait_s=wait_s)
        self._patience.succeeded()
        self.authenticated, self.expired = True, False
        return {"mac": box_mac(owner.secret, self.serial, nonce, host_nonce)}
