"""Blocks of headers (HPACK): those of a client to names and values, those of this side without any memory.

A client's block may refer to what earlier blocks of its connection said. This side's blocks never do: they are the same
bytes for every call, and what the client would remember of them is nothing of ours. Source: RFC 7541.
"""

from collections import deque
from collections.abc import Mapping

from hpack.exceptions import HPACKDecodingError
from hpack.huffman_table import decode_huffman
from hpack.table import HeaderTable

from netstack.errors import ProtocolError
from netstack.grpc.frame_gate import CONTINUATION, END_HEADERS, PADDED, PRIORITY, Frame, unpadded

TABLE_BYTES = 4096  # of a client's headers that are remembered, SETTINGS_HEADER_TABLE_SIZE at first
ENTRY_BYTES = 32  # that an entry counts beside its name and value
MOST_NUMBER = 1 << 24  # no index, size or length is larger
NO_TABLE = b"\x20"  # a change of the table's size to none: what a client says of it is followed
INDEXED, REMEMBERED, RESIZED, HUFFMAN = 0x80, 0x40, 0x20, 0x80
PSEUDO = frozenset((b":method", b":scheme", b":path", b":authority"))  # of a request
STREAM = (1 << 31) - 1  # of a number of 32 bits, those that name a call
_STATIC: list[tuple[bytes, bytes]] = [(bytes(name), bytes(value)) for name, value in HeaderTable.STATIC_TABLE]
_STATIC_COUNT = len(_STATIC)


class HeaderDecoder:
    """The blocks of one client, in their order. A block that cannot be read ends its connection."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes  # of one block, unpacked
        self.size = 0  # of the latest block, unpacked, as HTTP/2 counts
        self._entries: deque[tuple[bytes, bytes]] = deque()  # the newest first
        self._bytes, self._most = 0, TABLE_BYTES

    def decode(self, block: bytes) -> dict[bytes, bytes]:
        """Return value by name, the last of a name; pseudo-headers come first, each once. Raises ProtocolError."""
        try:
            return self._decode(block)
        except IndexError:
            raise ProtocolError("headers: the block ends inside a field, or names an entry that is not there") from None
        except HPACKDecodingError as exc:
            raise ProtocolError(f"headers: {exc}") from None

    def _decode(self, block: bytes) -> dict[bytes, bytes]:
        found: dict[bytes, bytes] = {}
        at, end, size, regular = 0, len(block), 0, False
        while at < end:
            first = block[at]
            if first & INDEXED:
                index, at = _number(block, at, 0x7F)
                entry = self._entry(index)
            elif first & REMEMBERED:
                entry, at = self._literal(block, at, 0x3F)
                self._remember(entry)
            elif first & RESIZED:
                most, at = _number(block, at, 0x1F)
                if found or most > TABLE_BYTES:
                    raise ProtocolError(f"headers: a table of {most} bytes, or resized inside a block")
                self._resize(most)
                continue
            else:
                entry, at = self._literal(block, at, 0x0F)
            size += len(entry[0]) + len(entry[1]) + ENTRY_BYTES
            if size > self._most_bytes:
                raise ProtocolError(f"headers of more than {self._most_bytes} bytes")
            if not entry[0].startswith(b":"):
                regular = True
            elif regular or entry[0] in found or entry[0] not in PSEUDO:
                raise ProtocolError(f"headers: {entry[0][:32]!r} twice, behind others or unknown")
            found[entry[0]] = entry[1]
        self.size = size
        return found

    def _entry(self, index: int) -> tuple[bytes, bytes]:
        if index > _STATIC_COUNT:
            return self._entries[index - _STATIC_COUNT - 1]
        if index == 0:
            raise IndexError(index)
        return _STATIC[index - 1]

    def _literal(self, block: bytes, at: int, mask: int) -> tuple[tuple[bytes, bytes], int]:
        index, at = _number(block, at, mask)
        if index:
            name = self._entry(index)[0]
        else:
            name, at = _text(block, at)
        value, at = _text(block, at)
        return (name, value), at

    def _remember(self, entry: tuple[bytes, bytes]) -> None:
        self._entries.appendleft(entry)
        self._bytes += len(entry[0]) + len(entry[1]) + ENTRY_BYTES
        self._resize(self._most)

    def _resize(self, most: int) -> None:
        self._most = most
        while self._bytes > most:
            name, value = self._entries.pop()
            self._bytes -= len(name) + len(value) + ENTRY_BYTES


class HeaderFrames:
    """Joins the frames of a block, between which nothing else may come, and reads it."""

    def __init__(self, most_bytes: int) -> None:
        self._decoder = HeaderDecoder(most_bytes)
        self._stream = self._flags = 0
        self._block = b""

    @property
    def open(self) -> bool:
        """Whether a block has not ended yet."""
        return self._stream != 0

    def take(self, frame: Frame) -> dict[bytes, bytes] | None:
        """Return value by name where a block ends with this frame. Raises ProtocolError."""
        kind, flags, stream, payload = frame
        if kind == CONTINUATION:
            if stream != self._stream or not stream:
                raise ProtocolError(f"more headers for call {stream}, which has none that go on")
            payload = self._block + payload
        else:
            payload = _bare(payload, flags, stream)
            self._flags = flags
        if flags & END_HEADERS:
            self._stream, self._block = 0, b""
            return self._decoder.decode(payload)
        self._stream, self._block = stream, payload
        return None

    @property
    def size(self) -> int:
        """Return the bytes of the latest block, unpacked."""
        return self._decoder.size

    @property
    def flags(self) -> int:
        """Those of the first frame of the latest block."""
        return self._flags


def _bare(payload: bytes, flags: int, stream: int) -> bytes:
    if flags & PADDED:
        payload = unpadded(payload)
    if flags & PRIORITY:
        if len(payload) < 5 or int.from_bytes(payload[:4], "big") & STREAM == stream:
            raise ProtocolError(f"call {stream} is said to depend on itself")
        payload = payload[5:]
    return payload


def _number(block: bytes, at: int, mask: int) -> tuple[int, int]:
    """Return a number that begins in the low bits of a byte, and where it ends. Raises IndexError, ProtocolError."""
    value = block[at] & mask
    at += 1
    if value < mask:
        return value, at
    shift = 0
    while True:
        byte = block[at]
        at += 1
        value += (byte & 0x7F) << shift
        shift += 7
        if value > MOST_NUMBER or shift > 28:
            raise ProtocolError("headers: a number that is too large")
        if byte < 0x80:
            return value, at


def _text(block: bytes, at: int) -> tuple[bytes, int]:
    packed = block[at] & HUFFMAN
    size, at = _number(block, at, 0x7F)
    end = at + size
    if end > len(block):
        raise IndexError(end)
    text = block[at:end]
    return (bytes(decode_huffman(text)) if packed else text), end


def is_head(metadata: Mapping[bytes, bytes]) -> bool:
    """Return whether a block has a pseudo-header, which trailers have not."""
    return any(name.startswith(b":") for name in metadata)


def plain_field(name: bytes, value: bytes) -> bytes:
    """Return a field that no one remembers."""
    return b"\x00" + _sized(name) + _sized(value)


def _sized(text: bytes) -> bytes:
    size = len(text)
    if size < 0x7F:
        return bytes((size,)) + text
    size -= 0x7F
    head = [0x7F]
    while size >= 0x80:
        head.append(0x80 | size & 0x7F)
        size >>= 7
    return bytes([*head, size]) + text
