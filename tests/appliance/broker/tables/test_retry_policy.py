"""Pauses between the deliveries of a message that fails."""

import pytest

from appliance.broker.tables.retry_policy import RetryPolicy, retry_policy_from_json


def test_a_policy_without_pauses_is_the_default() -> None:
    for content in (None, {}, {"type": "CUSTOMIZED"}, {"customizedRetryPolicy": {"next": []}, "type": "CUSTOMIZED"}):
        assert retry_policy_from_json(content) is None


def test_growing_pauses_have_apaches_defaults() -> None:
    assert retry_policy_from_json({"type": "EXPONENTIAL"}) == RetryPolicy((), 5000, 7_200_000, 2)


@pytest.mark.parametrize("name", ["initial", "max", "multiplier"])
def test_a_number_out_of_bounds_is_refused(name: str) -> None:
    for value in (0, 1 << 62, "5", 1.5, True):
        with pytest.raises(ValueError, match=name):
            retry_policy_from_json({"type": "EXPONENTIAL", "exponentialRetryPolicy": {name: value}})
