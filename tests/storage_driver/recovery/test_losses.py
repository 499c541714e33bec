"""The list of losses: told once, counted, until somebody has acknowledged it."""

from pathlib import Path

from storage_driver.files.disk import RealDisk
from storage_driver.record import MessageQueue
from storage_driver.recovery.losses import Loss, Losses, counted, merged


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
