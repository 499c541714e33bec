"""An object is created once: whoever finds it there, and it is the same, has made it."""

import pytest

from uplink_spark.centre.zone_files.bucket_store import created


def lost() -> None:
    raise FileExistsError("somebody was faster")


def test_who_loses_the_race_with_the_same_bytes_has_created_it_and_with_others_has_not() -> None:
    assert created(lambda: None, lambda: b"mine", b"mine")
    assert created(lost, lambda: b"mine", b"mine"), "a repeat whose answer was lost"
    assert not created(lost, lambda: b"theirs", b"mine")


def test_an_object_that_is_there_and_cannot_be_read_is_an_error_that_says_try_again() -> None:
    with pytest.raises(OSError, match="somebody was faster: it does not exist, try again"):
        created(lost, lambda: None, b"mine")
