"""Deadlines and texts of gRPC as they stand in headers."""

import pytest

from netstack.grpc.status import LONGEST_TEXT, CallFailed, GrpcStatus, percent_encoded, timeout_s


@pytest.mark.parametrize(
    ("value", "seconds"), [(b"3S", 3.0), (b"2999000u", 2.999), (b"1H", 3600.0), (b"99999999n", 0.099999999)]
)
def test_a_timeout_has_digits_and_a_unit(value: bytes, seconds: float) -> None:
    assert timeout_s(value) == pytest.approx(seconds)


def test_no_timeout_is_none() -> None:
    assert timeout_s(None) is None


@pytest.mark.parametrize("value", [b"", b"S", b"3", b"3 S", b"-3S", b"123456789S", b"3x"])
def test_anything_else_ends_the_call(value: bytes) -> None:
    with pytest.raises(CallFailed) as failed:
        timeout_s(value)
    assert failed.value.status is GrpcStatus.INVALID_ARGUMENT


def test_a_text_is_encoded_and_cut() -> None:
    assert percent_encoded("a%b\nü") == b"a%25b%0A%C3%BC"
    assert len(percent_encoded("x" * 5000)) == LONGEST_TEXT
