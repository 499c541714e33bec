"""How fast an address may connect."""

import trio
import trio.testing

from netstack.serving.connect_pace import BURST, PER_S, ConnectPace


def admitted(pace: ConnectPace, address: str, times: int) -> int:
    return sum(pace.admits(address) for _ in range(times))


def test_an_address_has_a_burst_and_then_so_many_a_second() -> None:
    async def main() -> None:
        pace = ConnectPace()
        assert admitted(pace, "10.0.0.1", 10 * BURST) == BURST
        assert admitted(pace, "10.0.0.2", 10) == 10
        assert admitted(pace, "127.0.0.1", 10 * BURST) == 10 * BURST
        await trio.sleep(1)
        assert admitted(pace, "10.0.0.1", 10 * BURST) == PER_S
        assert admitted(pace, "2001:db8::1", BURST) + admitted(pace, "2001:db8::2", BURST) == BURST, "one /64"

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
