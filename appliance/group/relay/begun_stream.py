"""A connection of which something was read before it was known who serves it."""

import trio

from netstack.serving.wrapped_stream import WrappedStream


class BegunStream(WrappedStream):
    """The stream of a client; `read_ahead` first, then any number of receives, which begin with what that took."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        super().__init__(stream)
        self._begun = bytearray()

    @property
    def begun(self) -> int:
        """How many bytes were read and not received yet."""
        return len(self._begun)

    async def read_ahead(self, most: int) -> bool:
        """Read once, until there are `most` bytes; False at the stream's end. Raises trio's errors of streams."""
        data = await self._stream.receive_some(most - len(self._begun))
        self._begun += data
        return bool(data)

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        """Return what came. Raises trio's errors of streams."""
        if not self._begun:
            return await self._stream.receive_some(max_bytes)
        await trio.lowlevel.checkpoint()
        size = max_bytes or len(self._begun)
        taken = self._begun[:size]
        del self._begun[:size]
        return taken
