"""NameServer headers in the words of brokers."""

from netstack.wire.headers_namesrv import RegisterBrokerHeader, RegisterBrokerReply, RouteHeader


def test_registrations_of_both_generations_are_read() -> None:
    old = {
        "brokerName": "a",
        "brokerAddr": "1.2.3.4:10911",
        "clusterName": "C",
        "haServerAddr": "1.2.3.4:10912",
        "brokerId": "0",
        "compressed": "true",
        "bodyCrc32": "77",
    }
    header = RegisterBrokerHeader.from_ext(old)
    assert (header.broker_id, header.compressed, header.body_crc32, header.heartbeat_timeout_ms) == (0, True, 77, None)
    new = RegisterBrokerHeader.from_ext({**old, "heartbeatTimeoutMillis": "5000", "__ZONE_NAME": "z"})
    assert (new.heartbeat_timeout_ms, new.zone_name) == (5000, "z")


def test_a_master_gets_no_addresses_back_and_a_slave_both() -> None:
    assert RegisterBrokerReply().to_ext() == {}
    assert RegisterBrokerReply("1:2", "1:1").to_ext() == {"haServerAddr": "1:2", "masterAddr": "1:1"}


def test_a_route_request_may_demand_standard_json() -> None:
    assert RouteHeader.from_ext({"topic": "T", "acceptStandardJsonOnly": "true"}).standard_json_only
    assert not RouteHeader.from_ext({"topic": "T"}).standard_json_only
