"""White lists in every form Apache's brokers know."""

import pytest

from appliance.broker.access.address_patterns import PatternWrong, matcher


@pytest.mark.parametrize(
    ("pattern", "inside", "outside"),
    [
        ("*", ["10.0.0.1", "fd00::1"], []),
        ("*.*.*.*", ["10.0.0.1"], []),
        ("", [], ["10.0.0.1"]),
        ("10.0.0.9", ["10.0.0.9", "::ffff:10.0.0.9"], ["10.0.0.8", "fd00::9"]),
        ("10.0.0.{1,2,7}", ["10.0.0.1", "10.0.0.7"], ["10.0.0.3"]),
        ("10.0.0.1,10.0.0.2", ["10.0.0.1", "10.0.0.2"], ["10.0.0.3"]),
        ("10.0.0.*", ["10.0.0.0", "10.0.0.255"], ["10.0.1.0", "110.0.0.1"]),
        ("10.0.*.*", ["10.0.9.9"], ["10.1.0.0"]),
        ("10.0.0.10-20", ["10.0.0.10", "10.0.0.20"], ["10.0.0.9", "10.0.0.21"]),
        ("10.0.1-100.*", ["10.0.1.1", "10.0.100.9"], ["10.0.0.1", "10.0.101.1"]),
        ("fd00::9", ["fd00:0:0::9", "FD00::9"], ["fd00::8"]),
        ("fd00:0:0:0:0:0:0:*", ["fd00::1"], ["fd00::1:1"]),
        ("fd00:0:0:0:0:0:0:10-1f", ["fd00::11"], ["fd00::20"]),
    ],
)
def test_a_pattern_holds_the_addresses_it_names(pattern: str, inside: list[str], outside: list[str]) -> None:
    holds = matcher([pattern])
    assert [holds(each) for each in inside] == [True] * len(inside)
    assert [holds(each) for each in outside] == [False] * len(outside)


@pytest.mark.parametrize("pattern", ["10.0", "10.*.0.1", "10.0.0.300", "10.0.0.20-10", "x", "10.0.0.{}", "10.0.0.1-x"])
def test_a_pattern_that_means_nothing_is_refused(pattern: str) -> None:
    with pytest.raises(PatternWrong):
        matcher([pattern])
