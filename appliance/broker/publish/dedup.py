"""The producer dedup window: a retried send is answered with the first result instead of being stored twice.

To drop a message is worse than to store one twice, and a reused `Message` object keeps its UNIQ_KEY on purpose. So by
default a send counts as a retry only within 30 s, and only while the first reply is not out yet or its connection has
died; on the same connection only after the time in which no client gives up. A topic may have a wider window. What is
remembered is bounded: two generations of keys, the older dropped when the younger is full or old.
"""

from collections.abc import Callable, Iterable, Sequence
from struct import pack
from typing import Final

from appliance.broker.tables.topics import HALF_TOPIC, SCHEDULE_TOPIC
from appliance.requests import RequestPeer
from storage_driver.crc import crc32
from storage_driver.log.clock import STEP_MS
from storage_driver.named_tuple import NamedTuple
from storage_driver.record import StoredMessage

DEFAULT_WINDOW_S: Final = 30.0  # three sends of 3 s each, and slower clients
RETRY_AFTER_S: Final = (
    0.5  # one object sent several times without waiting comes sooner, a retry after its timeout later
)
REAL_TOPIC: Final = "REAL_TOPIC"


class FirstCopy(NamedTuple):
    """Where the first copy is, and who sent it; `peer` is None after a restart."""

    queue_id: int
    queue_offset: int
    log_offset: int
    end: int  # mark for when_committed
    peer: RequestPeer | None
    sent_s: float
    more: bytes = b""  # log offsets of the rest of a batch, i64 each: as numbers they take five times the room
    whole: int = 0  # hash of a batch's messages


Kept = tuple[int, int, int, int, RequestPeer | None, float, bytes, int]
"""What a `FirstCopy` says, without its names: one is made for each message, which with them takes six times as long."""


class DedupRules(NamedTuple):
    """What the window needs of the configuration."""

    entries: int = 65_536
    window_s: int = 0
    topics: frozenset[str] = frozenset()
    topics_s: int = 600


class DedupWindow:
    """Keys of recent sends -> where they were stored. Keys are hashes of address, topic, UNIQ_KEY and body CRC."""

    def __init__(
        self,
        rules: DedupRules,
        *,
        now_s: Callable[[], float],
        durable: Callable[[], int],
        answered: Callable[[str], int],
        connected: Callable[[RequestPeer], bool],
    ) -> None:
        """answered: up to which log offset those who sent to a topic may have been answered."""
        self._rules, self._now_s, self._durable, self._connected = rules, now_s, durable, connected
        self._answered = answered
        self._young: dict[int, Kept] = {}
        self._old: dict[int, Kept] = {}
        self._since_s = now_s()
        self.enabled = rules.entries > 0
        longest_s = max(rules.window_s, rules.topics_s if rules.topics else 0)
        self._keep_s = max(float(longest_s), DEFAULT_WINDOW_S)
        self.hits = 0

    @property
    def now_s(self) -> float:
        """The window's clock."""
        return self._now_s()

    @property
    def keep_s(self) -> float:
        """How long a key is remembered at least, if there is room."""
        return self._keep_s

    def retried(self, key: int, topic: str, peer: RequestPeer, *, own_key: bool = False) -> FirstCopy | None:
        """Return the first copy when a send with this key is a retry; from here on it is answered to this peer.

        `own_key`: each send of the client has a key of its own, so that one that comes again is a retry.
        """
        if key not in self._young and key not in self._old:
            return None
        sent = self._recent(key) if own_key else None
        sent = sent or self.find(key, topic, peer)
        if sent is not None and sent.peer is not peer:
            self.remember(key, sent._replace(peer=peer))
        return sent

    def retried_batch(self, keys: Sequence[int], topic: str, peer: RequestPeer, whole: int) -> FirstCopy | None:
        """Return the first copy of a whole batch: remembered as one, or after a restart as its messages."""
        known = self._known(keys[0])
        if known is not None and known.more and known.whole != whole:
            return None  # begins with the same message, but not all of its messages are stored
        sent = self.retried(keys[0], topic, peer)
        if sent is None or len(sent.more) // 8 + 1 == len(keys):
            return sent
        if sent.more:
            return None
        rest = [self.find(key, topic, peer) for key in keys[1:]]
        found = [other for other in rest if other is not None]
        if len(found) < len(rest) or found[-1].queue_offset != sent.queue_offset + len(found):
            return None
        return sent._replace(end=found[-1].end, more=packed([other.log_offset for other in found]))

    def find(self, key: int, topic: str, peer: RequestPeer) -> FirstCopy | None:
        """Return the first copy when a send with this key by this peer is a retry."""
        sent = self._known(key)
        if sent is None:
            return None
        window_s = self._rules.topics_s if topic in self._rules.topics else self._rules.window_s
        age_s = self._now_s() - sent.sent_s
        if not (window_s and age_s <= window_s) and not self._unanswered(sent, topic, peer, age_s):
            return None  # a new message with an old key
        self.hits += 1
        return sent

    def _recent(self, key: int) -> FirstCopy | None:
        sent = self._known(key)
        if sent is None or self._now_s() - sent.sent_s > DEFAULT_WINDOW_S:
            return None
        self.hits += 1
        return sent

    def _known(self, key: int) -> FirstCopy | None:
        kept = self._young.get(key) or self._old.get(key)
        return None if kept is None else FirstCopy(*kept)

    def _unanswered(self, sent: FirstCopy, topic: str, peer: RequestPeer, age_s: float) -> bool:
        """Return whether the sender may be without its answer, so that it sends again."""
        unanswered = sent.end > self._answered(topic)
        if age_s > DEFAULT_WINDOW_S and not (unanswered and sent.end > self._durable()):
            return False  # also where a topic's mark alone lags: it may have had another policy when that was answered
        if unanswered:
            return sent.peer is not peer or age_s >= RETRY_AFTER_S
        return sent.peer is None or not self._connected(sent.peer)

    def forget(self, key: int, end: int) -> None:
        """Forget a send that the log took back: another message will be where it lay.

        One that is durable stays known, though its sender was told of a failure with those that it waited with.
        """
        if end <= self._durable():
            return
        for generation in (self._young, self._old):
            kept = generation.get(key)
            if kept is not None and FirstCopy(*kept).end == end:
                del generation[key]

    def remember(self, key: int, sent: Kept) -> None:
        """Note where a send was stored."""
        sent_s = sent[5]
        if len(self._young) * 2 >= self._rules.entries or sent_s - self._since_s > self._keep_s:
            self._old, self._young, self._since_s = self._young, {}, sent_s
        self._young[key] = sent

    def rebuild(self, messages: Iterable[StoredMessage], *, age_s: Callable[[StoredMessage], float]) -> int:
        """Take in what clients sent before a restart and return how many there were; copies by the broker are not."""
        before = len(self._young) + len(self._old)
        for message in messages:
            properties = message.property_map
            unique, topic = properties.get("UNIQ_KEY"), message.topic
            at_rest = topic in (SCHEDULE_TOPIC, HALF_TOPIC)
            if not unique or message.reconsume_times or (REAL_TOPIC in properties) is not at_rest:
                continue
            key = key_of(
                message.born_host[:-4], properties[REAL_TOPIC] if at_rest else topic, unique, crc32(message.body)
            )
            age = age_s(message)
            if age < -STEP_MS / 1000:
                continue  # the clock was set back since: nobody knows when it was sent
            end, sent_s = message.log_offset + message.size, self._now_s() - max(0.0, age)
            self.remember(key, FirstCopy(message.queue_id, message.queue_offset, message.log_offset, end, None, sent_s))
        return len(self._young) + len(self._old) - before

    def __len__(self) -> int:
        return len(self._young) + len(self._old)


def packed(log_offsets: Sequence[int]) -> bytes:
    """Return log offsets as a window keeps them."""
    return pack(f">{len(log_offsets)}q", *log_offsets)


def key_of(address: bytes, topic: str, unique: str, crc: int) -> int:
    """Return the key of one send; `address` is the sender's, without port, `crc` that of the body."""
    return hash((address, topic, unique, crc))
