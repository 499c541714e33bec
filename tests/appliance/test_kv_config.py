"""The NameServer's key/value table."""

import pytest

from appliance.namesrv.kv_config import KvConfig, KvConfigDamaged


def test_values_are_put_read_and_deleted_and_an_empty_namespace_stays() -> None:
    table = KvConfig()
    table.put("N", "k", "v")
    table.put("ORDER_TOPIC_CONFIG", "T", "broker-a:4")
    table.delete("N", "k")
    assert table.to_object() == {"configTable": {"N": {}, "ORDER_TOPIC_CONFIG": {"T": "broker-a:4"}}}
    assert table.get("N", "k") is None
    assert table.namespace("N") == {}
    assert table.namespace("M") is None


def test_a_stored_table_comes_back() -> None:
    table = KvConfig()
    table.put("N", "k", "v")
    assert KvConfig.from_object(table.to_object()).to_object() == table.to_object()
    assert KvConfig.from_object(None).to_object() == {"configTable": {}}


@pytest.mark.parametrize(
    "loaded", [[], {"configTable": None}, {"configTable": {"N": 3}}, {"configTable": {"N": {"k": 1}}}]
)
def test_anything_else_is_refused_with_the_expected_form(loaded: object) -> None:
    with pytest.raises(KvConfigDamaged, match="configTable"):
        KvConfig.from_object(loaded)


def test_every_change_raises_the_version_and_a_vain_delete_does_not() -> None:
    table = KvConfig()
    table.put("N", "k", "v")
    table.delete("N", "k")
    table.delete("N", "k")
    assert table.version == 2


def test_the_table_has_a_limit() -> None:
    table = KvConfig({"N": {f"k{number}": "v" for number in range(9_999)}})
    assert table.is_full_for("N", "more", "v")
    assert not table.is_full_for("N", "k1", "w")
    assert table.is_full_for("N", "k1", "w" * 40_000)
    large = KvConfig({"N": {f"k{number}": "v" * 32_000 for number in range(262)}})
    assert large.is_full_for("N", "more", "v" * 8_000)
    assert not large.is_full_for("N", "k1", "v")
