"""Client-made message ids (`UNIQ_KEY`) and the times they hold. Source: RocketMQ 4.9.8 MessageClientIDSetter."""

from datetime import datetime


class IdMaker:
    """Makes ids that no other client makes: upper-case hex of

    address (4 or 16) · pid (2) · number of this process (4) · ms since the month began, local time (4) · counter (2)
    """

    def __init__(self, address: bytes, pid: int, mark: int) -> None:
        self._prefix = (
            (address + (pid & 0xFFFF).to_bytes(2, "big") + (mark & 0xFFFFFFFF).to_bytes(4, "big")).hex().upper()
        )
        self._counter = 0
        self._month_ms = self._next_month_ms = 0
        self._made_ms, self._up_to_now = -1, ""  # hundreds of ids begin alike

    def make(self, now_ms: int) -> str:
        """Return the next id; 32 characters for an IPv4 address, 56 for IPv6."""
        if now_ms != self._made_ms:
            if not self._month_ms <= now_ms < self._next_month_ms:
                self._month_ms, self._next_month_ms = month_of(now_ms)
            self._made_ms = now_ms
            self._up_to_now = f"{self._prefix}{(now_ms - self._month_ms) & 0xFFFFFFFF:08X}"
        self._counter = counter = (self._counter + 1) & 0xFFFF
        return f"{self._up_to_now}{counter:04X}"


def month_of(now_ms: int) -> tuple[int, int]:
    """Return when the local month of this time began and when the next one begins, in epoch milliseconds."""
    first = datetime.fromtimestamp(now_ms / 1000).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    later = first.replace(year=first.year + first.month // 12, month=first.month % 12 + 1)
    return int(first.timestamp() * 1000), int(later.timestamp() * 1000)


def offset_message_id(store_host: bytes, log_offset: int) -> str:
    """Return the id under which a broker finds a message: hex of its address, port and log offset."""
    return (store_host + log_offset.to_bytes(8, "big")).hex().upper()


def log_offset_of(offset_id: str) -> int:
    """Return the log offset inside an offset message id. Raises ValueError."""
    if len(offset_id) not in (32, 56):
        raise ValueError(f"{offset_id!r} is not an offset message id: 32 or 56 hex characters")
    return int(offset_id[-16:], 16)
