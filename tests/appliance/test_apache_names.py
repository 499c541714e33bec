"""Settings under Apache's names: units as its tools expect them, and nothing that opens a door."""

from appliance.apache_names import MIB, broker_properties, namesrv_properties
from appliance.configuration.group_settings import GroupSection
from appliance.configuration.settings import (
    AccessSection,
    BoxSection,
    Config,
    NamesrvSection,
    ReplicationSection,
    TlsSection,
)


def test_units_are_those_of_apache() -> None:
    config = Config()
    found = broker_properties(config, "10.1.0.7:10911")
    assert (found["brokerIP1"], found["listenPort"]) == ("10.1.0.7", "10911")
    assert found["transactionTimeOut"] == config.broker.transaction_timeout_s * 1000
    assert found["transactionCheckInterval"] == config.broker.transaction_check_s * 1000
    assert found["registerNameServerPeriod"] == config.namesrv.register_s * 1000
    assert found["maxMessageSize"] == config.limits.message_mib * MIB
    assert found["maxDelayTime"] == config.broker.timer_days * 86_400
    assert (found["fileReservedTime"], found["flushDiskType"]) == (config.store.retention_h, "SYNC_FLUSH")


def test_an_ipv6_address_keeps_its_brackets_and_its_port() -> None:
    found = broker_properties(Config(), "[2001:db8::7]:10911")
    assert (found["brokerIP1"], found["listenPort"]) == ("[2001:db8::7]", "10911")


def test_names_and_modes_are_those_of_the_box() -> None:
    config = Config()._replace(
        box=BoxSection(name="press-17", cluster="Hall"),
        access=AccessSection(mode="keys"),
        tls=TlsSection(mode="enforcing"),
        namesrv=NamesrvSection(register_at=("a:1", "b:2")),
    )
    found = broker_properties(config, "h:1")
    assert (found["brokerName"], found["brokerClusterName"], found["namesrvAddr"]) == ("press-17", "Hall", "a:1;b:2")
    assert (found["aclEnable"], found["useTLS"]) == (True, True)
    plain = broker_properties(Config(), "h:1")
    assert (plain["aclEnable"], plain["useTLS"], plain["namesrvAddr"]) == (False, False, "")


def test_no_path_and_no_secret_is_told() -> None:
    config = Config()._replace(
        tls=TlsSection(cert="/secret/cert", private_key="/secret/key", passphrase_file="/secret/word")
    )
    for found in (broker_properties(config, "h:1"), namesrv_properties(config)):
        assert not any("/secret" in str(value) for value in found.values())
        assert not any(word in name.lower() for name in found for word in ("secret", "password", "private"))


def test_a_member_of_a_group_is_named_by_how_it_stands() -> None:
    group = GroupSection(member="b", members=("a=h:2", "b=h:4", "w=h:6 witness"))
    config = Config(replication=ReplicationSection(role="member"), group=group)
    leader, follower = (broker_properties(config, "h:1", follows=follows) for follows in (False, True))
    assert (leader["brokerId"], leader["brokerRole"]) == (0, "SYNC_MASTER")
    assert (follower["brokerId"], follower["brokerRole"]) == (2, "SLAVE")
    config = config._replace(group=group.changed(acknowledge="one"))
    assert broker_properties(config, "h:1")["brokerRole"] == "ASYNC_MASTER"
