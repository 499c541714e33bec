"""Surrogates in texts of JSON: pairs are characters, halves are not."""

from netstack.wire.json_text import without_surrogates


def test_a_pair_is_the_character_it_means_and_a_lone_half_is_replaced() -> None:
    assert without_surrogates("a\ud834\udd1eb") == "a\U0001d11eb"
    assert without_surrogates("a\ud834b\udd1e") == "a\ufffdb\ufffd"
    assert without_surrogates("plain ü") == "plain ü"
