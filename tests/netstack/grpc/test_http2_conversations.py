"""Conversations by chance with a client of h2, which watches over windows and settings: all arrives, nothing stays."""

import random
from typing import Any

import pytest
from h2.events import DataReceived, StreamEnded
from h2.settings import SettingCodes

from netstack.grpc.call_events import CallOpened, HalfClosed, Received
from netstack.grpc.testing import enveloped
from tests.netstack.grpc.test_http2 import MIB, Both

SIZES = (0, 1, 122, 123, 127, 128, 16_378, 16_379, 16_380, 65_530, 65_531, 70_000, 300_000)
WINDOWS = (0, 1, 100, 65_535, 70_000, MIB)
FLOODS: dict[str, Any] = {"control_burst": 1_000_000_000, "resets_burst": 1_000_000_000}  # not what is tried here


class Conversation:
    """A client that sends calls in pieces, with padding, and a server that answers them, both whenever they like."""

    def __init__(self, seed: int) -> None:
        self.chance, self.both = random.Random(seed), Both(**FLOODS)
        self.client, self.server = self.both.client, self.both.server
        self.sent: dict[int, list[bytes]] = {}
        self.left: dict[int, bytearray] = {}
        self.taken: dict[int, list[bytes]] = {}
        self.half_closed: set[int] = set()
        self.answered: dict[int, bytes] = {}
        self.got: dict[int, bytearray] = {}
        self.over: set[int] = set()
        self.reset: set[int] = set()
        self._wire, self._back = bytearray(), bytearray()

    def step(self) -> None:
        self.both.now += self.chance.random() / 10
        self.chance.choice((self._open, self._send, self._send, self._change_window, self._read, self._answer))()
        if self.chance.random() < 0.1:
            self._reset()
        self._wire += self.client.data_to_send()
        self._feed(self.chance.randrange(len(self._wire) + 1))
        self._back += self.server.outgoing()
        self._deliver(self.chance.randrange(len(self._back) + 1))

    def end(self) -> None:
        """Go on until all is said."""
        for _ in range(1000):
            for number in list(self.left):
                self._send_of(number, 16_384, 0)
            self._read()
            self._answer(always=True)
            self._wire += self.client.data_to_send()
            self._feed(len(self._wire))
            self._back += self.server.outgoing()
            self._deliver(len(self._back))
            if not self.left and self.over == self.sent.keys():
                return
        raise AssertionError(f"calls {sorted(self.sent.keys() - self.over)} go on for ever")

    def _open(self) -> None:
        number = self.both.begin()
        self.sent[number] = [bytes(self.chance.choice(SIZES)) for _ in range(self.chance.choice((1, 1, 2)))]
        self.left[number] = bytearray(b"".join(map(enveloped, self.sent[number])))
        self.got[number] = bytearray()

    def _send(self) -> None:
        for number in list(self.left):
            padding = self.chance.choice((0, 0, 100, 255))
            self._send_of(number, self.chance.choice((1, 5, 100, 10_000, 16_000)), padding)

    def _send_of(self, number: int, most: int, padding: int) -> None:
        window, left = self.client.local_flow_control_window(number), self.left[number]
        size = min(window, most, len(left))
        padding = padding if padding < window - size else 0
        if size > 0:
            last = size == len(left)
            self.client.send_data(number, bytes(left[:size]), end_stream=last, pad_length=padding or None)
            del left[:size]
            if last:
                del self.left[number]

    def _change_window(self) -> None:
        self.client.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: self.chance.choice(WINDOWS)})

    def _read(self) -> None:
        self.client.increment_flow_control_window(100_000)
        for number in self.sent.keys() - self.over:
            self.client.increment_flow_control_window(70_000, number)

    def _answer(self, *, always: bool = False) -> None:
        for number in self.taken.keys() - self.answered.keys() - self.over:
            if number in self.half_closed and (always or self.chance.random() < 0.5):
                answer = bytes(self.chance.choice(SIZES))
                self.server.answer(number, answer)
                self.answered[number] = enveloped(answer)

    def _reset(self) -> None:
        for number in sorted(self.sent.keys() - self.over)[:1]:
            self.client.reset_stream(number, 8)
            self.over.add(number)
            self.reset.add(number)
            self.left.pop(number, None)

    def _feed(self, size: int) -> None:
        for event in self.server.feed(bytes(self._wire[:size])):
            if isinstance(event, CallOpened):
                self.taken[event.stream] = []
            elif isinstance(event, Received):
                self.taken[event.stream].append(event.message)
            if isinstance(event, HalfClosed) or (isinstance(event, Received) and event.last):
                self.half_closed.add(event.stream)
        del self._wire[:size]

    def _deliver(self, size: int) -> None:
        for event in self.client.receive_data(bytes(self._back[:size])):
            if isinstance(event, DataReceived):
                self.got[event.stream_id or 0] += event.data or b""
            elif isinstance(event, StreamEnded):
                self.over.add(event.stream_id or 0)
        del self._back[:size]


@pytest.mark.parametrize("seed", range(12))
def test_all_that_is_said_arrives_within_the_windows_and_nothing_stays(seed: int) -> None:
    one = Conversation(seed)
    for _ in range(60):
        one.step()
    one.end()
    for number in one.half_closed:
        assert one.taken[number] == one.sent[number]
    for number in one.answered.keys() - one.reset:
        assert one.got[number] == one.answered[number]
    server = one.server
    assert (server.calls, server.partial_bytes, server.blocked_bytes) == (0, 0, 0)
    assert not one.both.uploads.is_crowded
