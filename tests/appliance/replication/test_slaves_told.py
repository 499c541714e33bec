"""Slaves as people and programs are told of them: by what they report, which need not be on their disks."""

from appliance.health.health_file import describe
from appliance.replication.slaves import SlaveSeen, SlavesSeen
from appliance.replication.slaves_told import slaves_series, slaves_told

SEEN = SlavesSeen(
    [
        SlaveSeen("10.0.0.2:4000", 900, 1000, 3.4),
        SlaveSeen("10.0.0.2:4001", 700, 800, 1.0),
        SlaveSeen("10.0.0.3:1", -1, -1, 0.0),
    ],
    {"garbage": 2},
    5,
    12_345,
)


def test_each_slave_is_told_with_what_it_reports() -> None:
    told = slaves_told(SEEN, 1000)
    assert told[0] == {"address": "10.0.0.2:4000", "reported": 900, "behind_bytes": 100, "connected_s": 3}
    text = describe({"replication": {"role": "master", "slaves": told}})
    assert "10.0.0.2:4000 reports 900, 100 B behind, " in text
    assert "10.0.0.3:1 has not reported (a stock slave reports its memory, not its disk)" in text


def test_a_metric_names_the_address_and_not_the_port_of_a_slave() -> None:
    found = slaves_series(SEEN, 1000)
    series = {(name, labels.get("slave", labels.get("reason", ""))): value for name, value, labels in found}
    assert series["slave_reported_bytes", "10.0.0.2"] == 700
    assert series["slave_lag_bytes", "10.0.0.2"] == 300
    assert series["slave_lag_bytes", "10.0.0.3"] == series["lag_bytes", ""] == 1000
    assert (series["slaves", ""], series["refused_total", "garbage"]) == (3, 2)
