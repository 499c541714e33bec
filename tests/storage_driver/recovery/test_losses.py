"""The list of losses: told once, counted, until somebody has acknowledged it."""

from pathlib import Path

from storage_driver.files.disk import RealDisk
from storage_driver.record import MessageQueue
from storage_driver.recovery.losses import MOST_RANGES, Loss, Losses, counted, joined, merged


def losses(tmp_path: Path) -> Losses:
    (tmp_path / "rocketbox").mkdir(exist_ok=True)
    made = Losses(RealDisk(), tmp_path)
    made.load()
    return made


def loss(number: int, start: int = 0, end: int = 100, messages: int | None = None) -> Loss:
    return Loss(number, 1_700_000_000_000, [(start, end)], ["gone"], {"the index": end + 10}, messages)


def test_a_loss_is_there_after_a_restart_and_gone_once_it_was_acknowledged(tmp_path: Path) -> None:
    losses(tmp_path).note(loss(1, messages=7))
    known = losses(tmp_path)
    assert (known.messages(), known.known_to) == (7, 110)
    assert [each.number for each in known.acknowledge(5)] == [1]
    assert (losses(tmp_path).unacknowledged(), losses(tmp_path).known_to) == ([], 110)
    losses(tmp_path).note(loss(2, 200, 300))
    assert losses(tmp_path).messages() == 1, "what was not counted is one at least"


def test_a_loss_that_was_not_counted_before_a_power_cut_keeps_its_number(tmp_path: Path) -> None:
    known = losses(tmp_path)
    known.note(loss(3, messages=1))
    known.note(loss(4, 200, 300))
    assert known.next_number([(250, 400)]) == 4
    assert known.next_number([(500, 600)]) == 5


def test_a_damaged_list_is_an_empty_one(tmp_path: Path) -> None:
    losses(tmp_path).note(loss(1))
    (tmp_path / "rocketbox" / "losses.json").write_text('{"losses": [{"number": 1}]}')
    assert losses(tmp_path).found == []


def test_the_sentence_names_the_queues_that_lost_most_and_says_at_least() -> None:
    lost = {MessageQueue("T", number): number + 1 for number in range(5)}
    text = counted(loss(1), lost).sentence()
    assert text.startswith("lost at least 15 messages (T/4: 5, T/3: 4, T/2: 3 and 2 more queues), ")
    assert "log offsets 0 to 100, 100 bytes: gone" in text
    assert loss(1).sentence().startswith("lost messages, how many was not counted,")


def test_ranges_that_touch_are_one() -> None:
    assert merged([(5, 9), (0, 5), (20, 20), (12, 15)]) == [(0, 9), (12, 15)]


def damage(start: int, messages: int | None = 1, count: int = 1) -> Loss:
    rows = [("T", 0, count)] if messages is not None else []
    return Loss(0, 1_700_000_000_000, [(start, start + 10)], ["crc"], {}, messages, rows, damaged=True)


def test_damage_is_one_entry_until_it_is_acknowledged_and_hides_no_loss(tmp_path: Path) -> None:
    known = losses(tmp_path)
    for start in (0, 5, 100):
        known.note_damage(damage(start))
    (one,) = losses(tmp_path).found
    assert (one.number, one.ranges, one.messages, one.queues) == (1, [(0, 10), (100, 110)], 2, [("T", 0, 2)])
    assert (known.known_to, known.messages(), known.next_number([(0, 10)])) == (0, 0, 2)
    known.acknowledge(5)
    known.note_damage(damage(100))
    assert known.unacknowledged() == [], "it is known"
    known.note_damage(damage(200, None))
    known.note_damage(damage(300))
    assert [(each.number, each.messages) for each in known.unacknowledged()] == [(2, None)]
    known.note(loss(3, 0, 400, messages=4))
    assert [each.number for each in known.found] == [3], "the recovery has covered what was damaged"


def test_all_are_acknowledged_also_when_an_older_one_has_grown(tmp_path: Path) -> None:
    known = losses(tmp_path)
    known.note_damage(damage(0))
    known.note(loss(2, 500, 900, messages=4))
    known.note_damage(damage(100))
    assert [each.number for each in known.found] == [1, 2]
    known.acknowledge(5)
    assert losses(tmp_path).unacknowledged() == []


def test_the_ranges_of_a_disk_that_falls_apart_have_a_bound() -> None:
    whole = damage(0)
    for number in range(1, MOST_RANGES + 5):
        whole = joined(whole, damage(20 * number))
    assert (len(whole.ranges), whole.ranges[-1][1], whole.messages) == (
        MOST_RANGES,
        20 * (MOST_RANGES + 4) + 10,
        MOST_RANGES + 5,
    )
