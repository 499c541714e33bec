"""The address in a route."""

import pytest

from appliance.configuration.settings import AdvertiseRule
from appliance.namesrv.address import AnsweredAddress

INTERFACES = {
    "lo": ["127.0.0.1", "::1"],
    "eth0": ["192.168.7.5", "2001:db8::5", "fe80::1"],
    "eth1": ["2001:db8:1::5", "fe80::2"],
    "eth2": ["169.254.3.3", "fe80::3"],
}
RULES = [AdvertiseRule("10.0.0.0/8", "203.0.113.9", 30911), AdvertiseRule("2001:db8:9::/48", "box.example")]


@pytest.mark.parametrize(
    ("reached", "asker", "answer"),
    [
        ("192.168.7.5", "192.168.7.9", "192.168.7.5:10911"),
        ("::ffff:192.168.7.5", "::ffff:192.168.7.9", "192.168.7.5:10911"),
        ("127.0.0.1", "127.0.0.1", "127.0.0.1:10911"),
        ("::1", "::1", "127.0.0.1:10911"),
        ("2001:db8::5", "2001:db8::9", "192.168.7.5:10911"),
        ("2001:db8:1::5", "2001:db8:1::9", "[2001:db8:1::5]:10911"),
        ("fe80::1%eth0", "fe80::9%eth0", "192.168.7.5:10911"),
        ("fe80::3", "fe80::9", "192.168.7.5:10911"),
        ("169.254.3.3", "169.254.3.9", "192.168.7.5:10911"),
        ("192.168.7.5", "10.1.2.3", "203.0.113.9:30911"),
        ("192.168.7.5", "::ffff:10.1.2.3", "203.0.113.9:30911"),
        ("2001:db8::5", "2001:db8:9::7", "box.example:10911"),
    ],
)
def test_the_answer_is_the_address_the_client_reached_or_a_rule(reached: str, asker: str, answer: str) -> None:
    answered = AnsweredAddress(RULES, 10911, lambda: INTERFACES, fallback="192.168.7.5")
    assert answered(reached, asker) == answer
