import pytest

from uplink_spark.centre.zone_files.object_store import ObjectStore, open_store
from uplink_spark.errors import LandingError

pytestmark = pytest.mark.slow


def test_a_repeat_of_the_own_create_is_no_lost_race(url: str) -> None:
    store = ObjectStore(url)
    assert store.create("x", b"mine")
    assert store.create("x", b"mine")
    assert not store.create("x", b"other")


def test_objects_are_listed_read_in_part_and_deleted(url: str) -> None:
    store = ObjectStore(url)
    for name in ("a/x", "a/b/y"):
        store.replace(name, b"0123456789")
    assert store.names("a") == ["x", "b"]
    assert store.names("a", deep=True) == ["b/y", "x"]
    assert (store.names("a", after="c"), store.names("a", after="x")) == (["x"], [])
    assert (store.get("a/x", 3, 4), store.size("a/x"), store.get("a/z"), store.size("a/z")) == (b"3456", 10, None, 0)
    store.delete("a/x")
    assert store.names("a") == ["b"]


def test_a_url_of_something_else_is_refused() -> None:
    with pytest.raises(LandingError, match="a gateway writes into a folder, s3:, gs: or abfs:; hdfs:"):
        open_store("hdfs://node/zone")


def test_a_url_with_a_key_is_refused_without_saying_the_key() -> None:
    with pytest.raises(LandingError, match=r"landing zone s3://\*\*\*@bucket/zone: a key does not belong") as caught:
        ObjectStore("s3://id:hidden@bucket/zone")
    assert "hidden" not in str(caught.value)
