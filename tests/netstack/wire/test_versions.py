"""Numbers of versions, as Apache's MQVersion orders them, and their texts."""

import pytest

from netstack.wire.versions import version_name, version_number, version_text


@pytest.mark.parametrize(
    ("number", "text"),
    [(213, "4.0.0"), (273, "4.3.0"), (408, "4.9.8-SNAPSHOT"), (409, "4.9.8"), (413, "5.0.0"), (611, "5.9.9")],
)
def test_a_number_is_a_version(number: int, text: str) -> None:
    assert version_text(number) == text
    assert version_name(number) == "v" + text.replace(".", "_").replace("-", "_").lower()


def test_numbers_beyond_those_of_4_and_5_are_named_by_their_generation() -> None:
    assert (version_text(62), version_text(612), version_text(0x1FFF)) == ("3.x", "6.x", "6.x")


@pytest.mark.parametrize(("text", "number"), [("5.0.8", 429), ("5.1.2", 437), ("5.0.0-SNAPSHOT", 413), ("5.9.9", 611)])
def test_the_version_of_a_grpc_client_has_a_number(text: str, number: int) -> None:
    assert version_number(text) == number


@pytest.mark.parametrize("text", ["", "1.0.8", "5", "5.0.10", "x.y.z", "5.٣.1", "9" * 1000])
def test_a_client_that_counts_in_its_own_way_is_of_5_0(text: str) -> None:
    assert version_text(version_number(text)) == "5.0.0"
