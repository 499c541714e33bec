import random

from hypothesis import given, settings
from hypothesis import strategies as st

from storage_driver.index.index_keys import alike_hashes, key_hash, key_hashes
from storage_driver.record import index_keys

PIECES = [
    b"UNIQ_KEY\x01",
    b"KEYS\x01",
    b"KEY",
    b"\x02",
    b"\x01",
    b"7F0000010A2B18B4AAC20001",
    b"0000",
    b"k",
    "ä".encode(),
    b"\xff",
]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=8).map(b"".join), st.booleans())
def test_the_hashes_of_a_record_are_those_of_its_keys(rest: bytes, unique: bool) -> None:
    raw = b"UNIQ_KEY\x01" + rest if unique else rest
    assert key_hashes("Tä", raw) == [key_hash(text) for text in index_keys("Tä", raw)]


def test_the_hash_of_a_unique_key_is_that_of_java() -> None:
    rng = random.Random(7)
    for _ in range(2000):
        unique = "".join(rng.choices("0123456789ABCDEFzZ", k=rng.randrange(1, 40)))
        for raw in (f"UNIQ_KEY\x01{unique}", f"UNIQ_KEY\x01{unique}\x02TAGS\x01a\x02"):
            assert key_hashes("T", raw.encode()) == [key_hash(f"T#{unique}")]
    assert key_hashes("T", b"UNIQ_KEY\x0119764sN2Y") == [key_hash("T#19764sN2Y")] == [0]  # -2^31 has no absolute value


ENDS = st.sampled_from((4, 17)).flatmap(
    lambda size: st.lists(
        st.text("0123456789ABCDEFzKEY\x01\x02", min_size=size, max_size=size).map(str.encode), min_size=1, max_size=6
    )
)
RESTS_OF_ONE = [
    None,
    b"",
    b"UNIQ_KEY\x017F0000010A2B18B4AAC20001\x02",
    b"KEYS\x01a b",
    b"UNIQ_KEY\x01\xff\xff\xff\xff\xff\x02",
]
RESTS = st.sampled_from([b"\x02", b"\x02TAGS\x01a\x02", b"\x02KEYS\x01k", b"", b"\x02CLUSTER\x01KEY"])


@given(
    st.sampled_from([b"7F0000010A2B18B4AAC2", b"", b"KEY", b"\xff", b"0" * 200]),
    ENDS,
    RESTS,
    st.sampled_from(RESTS_OF_ONE),
)
def test_the_hashes_of_records_are_those_of_each_where_they_are_found_together(
    head: bytes, ends: list[bytes], rest: bytes, other: bytes | None
) -> None:
    batch = [b"UNIQ_KEY\x01" + head + end + rest for end in ends]
    if other is not None:
        batch.append(other)
    found = alike_hashes("Tä", batch)
    assert found is None or [[value] for value in found] == [key_hashes("Tä", one) for one in batch]


def test_the_hashes_of_a_batch_of_one_client_are_found_together() -> None:
    batch = [b"UNIQ_KEY\x017F0000010A2B18B4AAC2%04X\x02TAGS\x01a\x02" % n for n in range(0, 1 << 16, 77)]
    assert alike_hashes("T", batch) == [value for one in batch for value in key_hashes("T", one)]
    lowest = b"UNIQ_KEY\x0119764sN2Y\x02"
    assert alike_hashes("T", [lowest]) == key_hashes("T", lowest) == [0]
