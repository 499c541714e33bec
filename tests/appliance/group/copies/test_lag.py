"""How old what a copy lacks is."""

from appliance.group.copies.lag import MOST_NOTES, LogAges


def test_the_age_is_that_of_the_first_byte_that_is_missing() -> None:
    ages = LogAges()
    assert ages.age_s(5.0, 0) == 0
    for end, now_s in ((100, 1.0), (200, 2.0), (300, 3.0)):
        ages.note(end, now_s)
    assert [ages.age_s(10.0, synced) for synced in (0, 99, 100, 250, 300, 400)] == [9, 9, 8, 7, 0, 0]


def test_a_note_is_of_when_the_end_was_reached_not_of_when_it_was_looked_at() -> None:
    ages = LogAges()
    for now_s in (1.0, 2.0, 3.0):
        ages.note(100, now_s)
    assert ages.age_s(4.0, 0) == 3


def test_a_log_that_was_cut_forgets_what_was_above() -> None:
    ages = LogAges()
    ages.note(100, 1.0)
    ages.note(900, 2.0)
    ages.note(200, 3.0)
    assert (ages.age_s(5.0, 150), ages.age_s(5.0, 300)) == (2, 0)


def test_days_of_notes_take_no_more_room_than_minutes() -> None:
    ages = LogAges()
    for at in range(1, 200_000):
        ages.note(at, at * 0.5)
    assert len(ages._notes) <= MOST_NOTES
    now_s = 199_999 * 0.5
    assert 0 < ages.age_s(now_s, 199_990) < 10
    assert 40_000 < ages.age_s(now_s, 100_000) <= 50_000
