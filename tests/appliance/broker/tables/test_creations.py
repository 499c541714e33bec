"""What an address causes by sending and consuming is bounded by the hour, and goes when nobody uses it."""

from appliance.broker.tables.creations import FEW, GROUP, HOUR_MS, TOPIC, Creations, Uses
from appliance.testing import MemoryStateFile


class Made:
    """Creations with a clock, and what is used and wanted by name."""

    def __init__(self, per_hour: int = 10, file: MemoryStateFile | None = None) -> None:
        self.now_ms, self.file = 1_000_000, file or MemoryStateFile()
        self.creations = Creations(self.file, per_hour=per_hour, now_ms=lambda: self.now_ms)
        self.used, self.wanted, self.deleted = set[str](), set[str](), list[str]()

    def expire(self) -> list[str]:
        use = Uses(self.used.__contains__, self.wanted.__contains__, self.deleted.append)
        return self.creations.expire({TOPIC: use, GROUP: use})


def test_an_address_may_cause_so_many_in_an_hour_and_then_more_as_time_goes() -> None:
    made = Made(per_hour=10)
    assert [made.creations.allows("10.0.0.1", crowded=False) for _ in range(12)] == [True] * 10 + [False] * 2
    assert made.creations.allows("10.0.0.2", crowded=False), "another address has its own"
    made.now_ms += HOUR_MS // 10
    assert [made.creations.allows("10.0.0.1", crowded=False) for _ in range(2)] == [True, False]


def test_an_ipv6_network_is_one_address_and_this_machine_is_exempt() -> None:
    made = Made(per_hour=1)
    assert [made.creations.allows(f"2001:db8::{number}", crowded=False) for number in (1, 2)] == [True, False]
    assert all(made.creations.allows("127.0.0.1", crowded=False) for _ in range(5))


def test_what_is_remembered_of_addresses_is_bounded() -> None:
    made = Made(per_hour=1)
    for number in range(10_000):
        made.creations.allows(f"10.0.{number >> 8}.{number & 255}", crowded=False)
    assert len(made.creations._left) == 4096


def test_what_nobody_uses_within_an_hour_is_deleted_and_what_is_used_stays() -> None:
    made = Made()
    for name in ("used", "wanted", "unused"):
        made.creations.made(TOPIC, name)
    made.used, made.wanted = {"used"}, {"wanted"}
    made.now_ms += HOUR_MS - 1
    assert made.expire() == []
    made.now_ms += 1
    assert made.expire() == ["topic unused"]
    made.wanted = set()
    made.used = set()
    assert (made.expire(), made.deleted) == (["topic wanted"], ["unused", "wanted"]), "what was used once stays"


def test_what_was_asked_for_by_name_meanwhile_stays() -> None:
    made = Made()
    made.creations.made(GROUP, "G")
    made.creations.forget(GROUP, "G")
    made.now_ms += 2 * HOUR_MS
    assert made.expire() == []


def test_a_restart_knows_what_was_made_by_the_way() -> None:
    first = Made()
    first.creations.made(GROUP, "G")
    second = Made(file=MemoryStateFile(first.creations.to_json()))
    second.now_ms += HOUR_MS
    assert second.expire() == ["group G"]
    third = Made(file=MemoryStateFile({"made": [["group"], 7, ["queue", "x", 1], ["topic", "T", 1]]}))
    assert len(third.creations) == 1


def test_when_half_of_the_table_is_full_the_rest_is_for_those_who_caused_few() -> None:
    made = Made(per_hour=1000)
    assert all(made.creations.allows("10.0.0.1", crowded=False) for _ in range(FEW))
    assert [made.creations.allows("10.0.0.1", crowded=crowded) for crowded in (True, False)] == [False, True]
    assert [made.creations.allows("10.0.0.2", crowded=True) for _ in range(FEW + 1)] == [True] * FEW + [False]
    few = Made(per_hour=2)
    assert [few.creations.allows("10.0.0.2", crowded=True) for _ in range(3)] == [True, True, False]
