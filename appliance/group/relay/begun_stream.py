"""A connection of which something was read before it was known who serves it."""

import trio


class BegunStream(trio.abc.Stream):
    """The stream of a client; `read_ahead` first, then any number of receives, which begin with what that took."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self._stream, self._begun = stream, bytearray()

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

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await self._stream.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        await self._stream.wait_send_all_might_not_block()

    async def aclose(self) -> None:
        await self._stream.aclose()
