"""The token: made once, private, replaced at will, compared whole."""

import stat
from pathlib import Path

import pytest

from appliance.access.page_token import NAME, is_token, new_token, read_token


def test_a_token_is_made_once_and_for_its_owner_alone(tmp_path: Path) -> None:
    token = read_token(tmp_path)
    assert len(token) == 24
    assert read_token(tmp_path) == token
    assert stat.S_IMODE((tmp_path / NAME).stat().st_mode) == 0o600
    other = new_token(tmp_path)
    assert other != token
    assert read_token(tmp_path) == other


def test_an_empty_file_is_no_token_that_everybody_has(tmp_path: Path) -> None:
    for text in (b"", b"\n", b"  \n", bytes(25), b"\xff" * 25, b"short\n"):
        (tmp_path / NAME).write_bytes(text)
        token = read_token(tmp_path)
        assert len(token.strip("\0")) == 24
        assert read_token(tmp_path) == token


@pytest.mark.parametrize("given", ["", "abc", "abcde", "ABCD", " abcd", "ü", "\udcff"[:0]])
def test_only_the_whole_token_fits(given: str) -> None:
    assert is_token("abcd", "abcd")
    assert not is_token(given, "abcd")


def test_a_folder_that_is_not_there_is_an_error_and_no_token(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        read_token(tmp_path / "none")
