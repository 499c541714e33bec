import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from provisioning.transfer import WINDOW, FileSender, Receiver, chunk_bytes


def test_chunks_are_small_up_to_230400_baud() -> None:
    assert (chunk_bytes(115200), chunk_bytes(230400), chunk_bytes(460800)) == (1024, 1024, 4096)


def test_a_window_of_eight_chunks_goes_out_and_each_acknowledgement_frees_one() -> None:
    sender = FileSender(100_000, chunk=1024, baud=115200)
    assert [piece.offset for piece in sender.pieces(0)] == [1024 * n for n in range(8)]
    assert sender.pieces(0) == []
    sender.acknowledge(1024, WINDOW, 0.1)
    assert [(piece.offset, piece.length) for piece in sender.pieces(0.1)] == [(8192, 1024)]


def test_the_last_chunk_is_what_is_left_and_a_resumed_transfer_begins_where_the_box_is() -> None:
    sender = FileSender(2500, chunk=1024, baud=115200, have=2048)
    assert [(piece.offset, piece.length) for piece in sender.pieces(0)] == [(2048, 452)]
    sender.acknowledge(2500, WINDOW, 1)
    assert sender.done


def test_the_second_equal_acknowledgement_rewinds_once_and_its_echoes_do_not() -> None:
    sender = FileSender(100_000, chunk=1024, baud=115200)
    sender.pieces(0)
    sender.acknowledge(1024, WINDOW, 0.1)
    sender.pieces(0.1)
    for _ in range(7):
        sender.acknowledge(1024, WINDOW, 0.2)
    assert sender.pieces(0.2)[0].offset == 1024
    for _ in range(7):
        sender.acknowledge(1024, WINDOW, 0.3)
    assert sender.pieces(0.3) == []


def test_silence_rewinds_after_the_windows_line_time_and_one_and_a_half_seconds() -> None:
    sender = FileSender(100_000, chunk=1024, baud=9600)
    sender.pieces(0)
    line_s = 8 * (1024 + 40) * 10 / 9600
    sender.tick(line_s + 1.4)
    assert sender.pieces(line_s + 1.4) == []
    sender.tick(line_s + 1.5)
    assert sender.pieces(20)[0].offset == 0


def test_a_window_of_zero_pauses_and_its_lost_end_does_not_stop_the_transfer() -> None:
    sender = FileSender(100_000, chunk=1024, baud=115200)
    sender.pieces(0)
    sender.acknowledge(8192, 0, 1)
    assert sender.pieces(1) == []
    sender.tick(60)
    assert sender.pieces(60)[0].offset == 8192


def test_acknowledgements_outside_the_file_or_of_the_past_are_ignored() -> None:
    sender = FileSender(3000, chunk=1024, baud=115200, have=1024)
    sender.pieces(0)
    for strange in (0, 3001, 1 << 40):
        sender.acknowledge(strange, WINDOW, 0)
    assert sender.acknowledged == 1024


def test_a_receiver_takes_only_what_comes_next_and_fits() -> None:
    receiver = Receiver(3000)
    assert [receiver.take(*chunk) for chunk in [(1024, 1024), (0, 1024), (0, 1024), (1024, 0), (1024, 9999)]] == [
        False,
        True,
        False,
        False,
        False,
    ]
    assert receiver.next == 1024


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 1 << 30), st.floats(0, 0.3), st.integers(1, 40_000))
def test_whatever_is_lost_the_file_arrives_whole_and_in_order(seed: int, loss: float, size: int) -> None:
    dice = random.Random(seed)
    sender, receiver, written, now = FileSender(size, chunk=1024, baud=115200), Receiver(size), 0, 0.0
    for _ in range(20_000):
        if sender.done:
            break
        for piece in sender.pieces(now):
            if dice.random() < loss:
                continue
            if receiver.take(piece.offset, piece.length):
                assert piece.offset == written
                written += piece.length
            if dice.random() >= loss:
                sender.acknowledge(receiver.next, WINDOW, now)
        now += 0.5
        sender.tick(now)
    assert (sender.done, written) == (True, size)


@pytest.mark.parametrize("size", [0])
def test_an_empty_file_is_done_at_once(size: int) -> None:
    assert FileSender(size, chunk=1024, baud=115200).done
    assert Receiver(size).done
