"""The settings of a box: patterns of texts at their borders, and what no file may say."""

import pytest

from appliance.configuration.config_rules import Whole
from appliance.configuration.settings import AdvertiseRule, Config, rules, tables
from uplink_spark.box.plan import MAX_TARGET


@pytest.mark.parametrize(
    ("key", "good", "bad"),
    [
        ("box.name", ["", "press-17", "a" * 40], ["Press", "a" * 41, "a b", "a\n", "ü"]),
        ("box.cluster", ["DefaultCluster", "a_%|-"], ["", "a" * 101, "a b"]),
        ("listen.host", ["127.0.0.1", "::", "fe80::1%eth0", "box.example"], ["", "a b", "a" * 256]),
        ("uplink.gateway", ["", "g.example:10940", "[::1]:7", "10.1.0.7:1"], ["g.example", ":7", "g:", "g:123456"]),
        ("broker.delay_levels", ["1s", "1s 5m 2h 1d"], ["", "1", "1s  5m", "1s,5m", " 1s", "1S"]),
    ],
)
def test_texts_are_taken_up_to_their_borders(key: str, good: list[str], bad: list[str]) -> None:
    rule = rules()[key]
    for text in good:
        assert rule.read(text) == text
    for text in bad:
        with pytest.raises(ValueError, match="must be"):
            rule.read(text)


@pytest.mark.parametrize(
    ("value", "good"),
    [
        ([{"days": "mon-fri", "hours": "07:00-19:00", "kbit_s": 64}], True),
        ([{"days": "sat,sun", "hours": "22:00-06:00"}], True),
        ([{"days": "mon-fri,sun", "hours": "00:00-24:00"}], True),
        ([{"days": "monday", "hours": "07:00-19:00"}], False),
        ([{"days": "mon-", "hours": "07:00-19:00"}], False),
        ([{"days": "mon", "hours": "7:00-19:00"}], False),
        ([{"days": "mon"}], False),
        ([{"hours": "07:00-19:00"}], False),
    ],
)
def test_windows_of_the_uplink(value: object, good: bool) -> None:
    rule = rules()["uplink.windows"]
    if good:
        rule.read(value)
        return
    with pytest.raises(ValueError, match=r"must be|is missing"):
        rule.read(value)


def test_a_rule_of_advertise_reads_from_as_network() -> None:
    read = rules()["advertise.rules"].read([{"from": "10.0.0.0/8", "address": "box.example"}])
    assert read == (AdvertiseRule("10.0.0.0/8", "box.example", 0),)


def test_without_a_file_the_box_is_closed_to_the_network() -> None:
    config = Config()
    assert (config.listen.host, config.metrics.host, config.page.host) == ("127.0.0.1",) * 3
    assert (config.access.mode, config.access.admin) == ("subnet", "loopback")
    assert (config.metrics.port, config.page.port, config.uplink.gateway) == (0, 0, "")


def test_tables_are_those_of_the_configuration_in_order() -> None:
    assert list(tables()) == [
        "box", "listen", "advertise", "access", "tls", "limits", "store", "broker", "grpc", "namesrv", "replication",
        "group", "watchdog", "conditions", "update", "metrics", "page", "uplink",
    ]  # fmt: skip


def test_a_piece_may_be_set_as_large_as_the_uplink_makes_one() -> None:
    rule = rules()["uplink.piece_bytes"]
    assert isinstance(rule, Whole)
    assert rule.high == MAX_TARGET == Config().uplink.piece_bytes
