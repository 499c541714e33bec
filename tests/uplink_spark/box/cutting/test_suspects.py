"""Ranges a gateway refuses: the same again, then halves down to one record, which goes unparsed."""

from uplink_spark.box.cutting.suspects import Suspects, halves

FREE = 1 << 63


def test_a_refused_range_is_halved_at_a_record_border() -> None:
    assert halves(100, 400, [100, 100, 100]) == [(100, 200), (200, 400)]
    assert halves(100, 200, [100]) == [(100, 200)]


def test_the_third_refusal_halves_and_that_of_one_record_makes_a_blob() -> None:
    suspects = Suspects()
    assert not suspects.refused(0, 300, [100] * 3)
    assert not suspects.refused(0, 300, [100] * 3)
    assert [suspects.end_of(at) for at in (0, 100)] == [300, FREE]
    assert not suspects.refused(0, 300, [100] * 3)
    assert [suspects.end_of(at) for at in (0, 100)] == [100, 300]
    suspects.landed(0)
    assert not suspects.refused(100, 300, [100] * 2)  # a part is halved at once
    assert suspects.refused(200, 300, [100])
    assert [suspects.is_blob(at) for at in (0, 100, 200)] == [False, False, True]
    suspects.landed(200)
    assert (suspects.is_blob(200), suspects.end_of(200)) == (False, FREE)


def test_an_express_piece_is_given_up_at_the_third_and_changes_nothing_of_the_log() -> None:
    suspects = Suspects()
    assert [suspects.pick_refused(0, 300) for _ in range(3)] == [False, False, True]
    assert (suspects.end_of(0), suspects.is_blob(0)) == (FREE, False)
