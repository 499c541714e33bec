"""What is remembered of reads that failed."""

from storage_driver.failed_reads import FORGOTTEN_S, MOST_KNOWN, FailedReads


def test_a_place_fails_since_its_first_read_until_that_is_forgotten() -> None:
    reads = FailedReads()
    assert reads.take(5, 1000.0) == 1000.0
    reads.keep(5, 1000.0, 1000.0)
    assert reads.take(5, 1010.0) == 1000.0
    reads.keep(5, 1000.0, 1010.0)
    assert reads.take(5, 1011.0 + FORGOTTEN_S) == 1011.0 + FORGOTTEN_S


def test_a_place_that_was_given_up_makes_a_crowd_for_a_while() -> None:
    reads = FailedReads()
    assert not reads.is_crowd(0.0)
    reads.note_given_up(5.0)
    assert (reads.is_crowd(4.0 + FORGOTTEN_S), reads.is_crowd(5.0 + FORGOTTEN_S)) == (True, False)


def test_the_oldest_place_is_forgotten_when_there_are_too_many() -> None:
    reads = FailedReads()
    for place in range(MOST_KNOWN + 1):
        reads.keep(place, 0.0, 1.0)
    assert (reads.take(0, 2.0), reads.take(1, 2.0)) == (2.0, 0.0)
