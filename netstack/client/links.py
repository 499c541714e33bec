"""One connection per address, opened when first needed and again when it was lost; all users of a client share them."""

import ssl
from collections.abc import Callable, Collection

import trio

from netstack.client.errors import TimedOut, Unreachable
from netstack.serving.channel import Channel, open_channel
from netstack.serving.connection import Handle

CONNECT_S = 3.0


def host_and_port(address: str) -> tuple[str, int]:
    """Return the parts of `host:port` or `[v6]:port`. Raises Unreachable."""
    if "://" in address:
        raise Unreachable(address, f"it is not of the form HOST:PORT: leave out {address.partition('://')[0]}://")
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or len(port) > 5 or int(port) > 65535:
        raise Unreachable(address, "it is not of the form HOST:PORT")
    return host.strip("[]"), int(port)


class _Opening:
    """A connection on its way, for all who wait for it."""

    __slots__ = ("channel", "error", "settled")

    def __init__(self) -> None:
        self.settled = trio.Event()
        self.channel: Channel | None = None
        self.error = "closed here"


class Links:
    """Connections outlive a cancellation from outside until `close`, so that a closing client can unregister."""

    def __init__(self, handle: Handle, tls: ssl.SSLContext | None, opened: Callable[[str], None]) -> None:
        self._handle, self._tls, self._told_open = handle, tls, opened
        self._channels: dict[str, Channel] = {}
        self._openings: dict[str, _Opening] = {}
        self._scopes: dict[str, trio.CancelScope] = {}
        self._closed = False

    @property
    def addresses(self) -> list[str]:
        """Where there is a connection now."""
        return list(self._channels)

    def opened(self, address: str) -> Channel | None:
        """Return the connection if there is one that lives."""
        channel = self._channels.get(address)
        return None if channel is None or channel.peer.closed.is_set() else channel

    async def channel(self, address: str, nursery: trio.Nursery, timeout_s: float = CONNECT_S) -> Channel:
        """Return a connection to the address. Raises Unreachable, TimedOut."""
        channel = self.opened(address)
        if channel is not None:
            return channel
        if self._closed:
            raise Unreachable(address, "the client is closed")
        opening = self._openings.get(address)
        if opening is None:
            host, port = host_and_port(address)
            opening = self._openings[address] = _Opening()
            nursery.start_soon(self._hold, address, (host, port), opening)
        with trio.move_on_after(timeout_s):
            await opening.settled.wait()
            if opening.channel is None:
                raise Unreachable(address, opening.error)
            return opening.channel
        raise TimedOut(f"connecting to {address}", timeout_s)

    def drop(self, address: str) -> None:
        """Close a connection that seems dead; the next user opens a new one."""
        channel = self._channels.pop(address, None)
        if channel is not None:
            channel.close()

    def drop_silent(self, address: str, since: float) -> None:
        """Close a connection over which nothing came since then; one that brings other answers is not dead."""
        channel = self._channels.get(address)
        if channel is not None and channel.silent_since(since):
            self.drop(address)

    def keep_only(self, addresses: Collection[str]) -> None:
        """Close connections to addresses that are in no route any more."""
        for address in [each for each in self._channels if each not in addresses]:
            self.drop(address)

    def close(self) -> None:
        """Close all connections and refuse new ones."""
        self._closed = True
        for scope in self._scopes.values():
            scope.cancel()

    async def _hold(self, address: str, target: tuple[str, int], opening: _Opening) -> None:
        """Open a connection and keep it until it ends."""
        with trio.CancelScope(shield=True) as scope:
            self._scopes[address] = scope
            if self._closed:
                scope.cancel()
            try:
                async with open_channel(
                    *target, handle=self._handle, tls=self._tls, connect_timeout_s=CONNECT_S
                ) as channel:
                    self._channels[address] = opening.channel = channel
                    self._settle(address, opening)
                    self._told_open(address)
                    await channel.closed.wait()
            except OSError as error:
                opening.error = str(error)
            finally:
                if self._channels.get(address) is opening.channel is not None:
                    del self._channels[address]
                if self._scopes.get(address) is scope:
                    del self._scopes[address]
                self._settle(address, opening)

    def _settle(self, address: str, opening: _Opening) -> None:
        if self._openings.get(address) is opening:
            del self._openings[address]
        opening.settled.set()
